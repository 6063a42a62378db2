"""Evaluations on a grid of times, the target over a window, and the limit on the time of a run."""

from __future__ import annotations

import pytest
from protocol_stage import Stage

from async_hfl.core.learner import Evaluation
from async_hfl.core.maths.targets import Target
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Evaluated, Started, TimerFired
from async_hfl.core.protocol.records import EpochRecord, LifecycleRecord
from async_hfl.core.serialization import from_plain, to_plain


def stage_on_grid(**cloud: object) -> Stage:
    stage = Stage(gateway={"epochs": 1}, cloud={"evaluation_grid": 50.0, **cloud})
    stage.begin(0, 0, 1)
    return stage


def makes_a_model(stage: Stage, at: float) -> None:
    stage.returns("d2", (1, 1), at=at)
    stage.exchanges("g1", at=at)


def rows(stage: Stage) -> list[tuple[float, int]]:
    return [(record.at, record.epoch) for record in stage.of(EpochRecord)]


def test_a_changed_model_is_evaluated_at_the_next_point_of_the_grid() -> None:
    stage = stage_on_grid()
    assert ("cloud", "evaluation") not in stage.timers
    makes_a_model(stage, 101.0)
    makes_a_model(stage, 120.0)
    assert (stage.evaluations, stage.timers["cloud", "evaluation"]) == ([], 150.0)
    stage.fire("cloud", "evaluation")
    stage.evaluated(0.5, at=155.0)
    # Only the newest model is evaluated, at the time of the grid; nothing follows while nothing changes.
    assert rows(stage) == [(150.0, 2)]
    assert ("cloud", "evaluation") not in stage.timers


def test_a_point_of_the_grid_has_one_evaluation() -> None:
    stage = stage_on_grid()
    makes_a_model(stage, 150.0)
    stage.fire("cloud", "evaluation")
    stage.evaluated(0.5, at=150.0)
    makes_a_model(stage, 150.0)
    assert (rows(stage), stage.timers["cloud", "evaluation"]) == ([(150.0, 1)], 200.0)


def test_no_evaluation_begins_while_another_is_in_progress() -> None:
    stage = stage_on_grid()
    for at in (110.0, 160.0, 210.0):
        makes_a_model(stage, at)
        stage.fire("cloud", "evaluation")
    assert [evaluate.epoch for evaluate in stage.evaluations] == [1]
    stage.evaluated(0.5, at=270.0)
    assert stage.timers["cloud", "evaluation"] == 300.0
    stage.fire("cloud", "evaluation")
    stage.evaluated(0.5, at=301.0)
    assert rows(stage) == [(150.0, 1), (300.0, 3)]


def test_the_last_model_is_evaluated_at_once() -> None:
    stage = stage_on_grid(epochs=2)
    makes_a_model(stage, 110.0)
    makes_a_model(stage, 120.0)
    assert stage.stopped == {}
    stage.evaluated(0.5, at=121.0)
    assert rows(stage) == [(120.0, 2)]
    assert stage.stopped == {"cloud": ""}


def test_the_run_ends_when_the_window_has_passed_even_if_no_model_is_made() -> None:
    stage = stage_on_grid(target=Target("accuracy", 0.9, window=200.0))
    makes_a_model(stage, 110.0)
    stage.fire("cloud", "evaluation")
    stage.evaluated(0.8, at=151.0)
    makes_a_model(stage, 210.0)
    stage.fire("cloud", "evaluation")
    stage.evaluated(0.95, at=251.0)
    # From 250 s on the metric is above the target by half of what it was below: 200 s later the window has passed,
    # when 66.7 s of 0.8 and 133.3 s of 0.95 are in it.
    assert stage.timers["cloud", "target"] == pytest.approx(250.0 + 200.0 * 2 / 3)
    stage.fire("cloud", "target")
    assert stage.cloud.state.progress.held_at == pytest.approx(250.0 + 200.0 * 2 / 3 - 100.0)
    assert stage.cloud.state.progress.first_at == 250.0
    assert [record.what for record in stage.of(LifecycleRecord)] == ["target_reached", "finished"]
    assert stage.stopped == {"cloud": ""}


def test_a_model_made_since_is_evaluated_before_the_run_ends() -> None:
    stage = stage_on_grid(target=Target("accuracy", 0.9, window=80.0))
    makes_a_model(stage, 110.0)
    stage.fire("cloud", "evaluation")
    stage.evaluated(0.95, at=150.0)
    makes_a_model(stage, 220.0)
    stage.fire("cloud", "target")
    assert stage.at == 230.0
    assert stage.stopped == {}
    stage.evaluated(0.96, at=231.0)
    assert rows(stage) == [(150.0, 1), (230.0, 2)]
    assert stage.stopped == {"cloud": ""}


def test_a_later_evaluation_that_began_in_time_may_still_miss_the_target() -> None:
    stage = stage_on_grid(target=Target("accuracy", 0.9, window=80.0))
    makes_a_model(stage, 110.0)
    stage.fire("cloud", "evaluation")
    stage.evaluated(0.95, at=150.0)
    makes_a_model(stage, 160.0)
    stage.fire("cloud", "evaluation")  # at 200 s, and it takes until 240
    stage.fire("cloud", "target")  # at 230 s
    assert stage.stopped == {}
    stage.evaluated(0.1, at=240.0)
    assert stage.cloud.state.progress.held_at is None
    assert [record.target_reached for record in stage.of(EpochRecord)] == [False, False]


def test_evaluations_after_the_target_on_a_grid() -> None:
    stage = stage_on_grid(target=Target("accuracy", 0.9, window=40.0), epochs_after_target=2)
    for at in (110.0, 210.0, 260.0):
        assert stage.stopped == {}
        makes_a_model(stage, at)
        stage.fire("cloud", "evaluation")
        stage.evaluated(0.95, at=stage.at)
        if at == 110.0:
            stage.fire("cloud", "target")
    assert [record.target_reached for record in stage.of(EpochRecord)] == [False, True, True]
    assert stage.stopped == {"cloud": ""}


def test_the_time_limit_ends_a_run_with_the_evaluation_of_its_last_model() -> None:
    stage = stage_on_grid(time_limit=300.0)
    makes_a_model(stage, 290.0)
    assert stage.timers["cloud", "time_limit"] == 300.0
    stage.fire("cloud", "time_limit")
    assert stage.stopped == {}
    stage.returns("d2", (1, 1), at=300.5)
    stage.deliver("cloud", m.Upload, at=300.5)
    assert stage.cloud.state.epoch == 1  # an upload after the end changes nothing
    stage.evaluated(0.5, at=301.0)
    assert rows(stage) == [(300.0, 1)]
    assert stage.stopped == {"cloud": ""}


def test_a_run_without_a_model_is_evaluated_at_the_time_limit() -> None:
    stage = stage_on_grid(time_limit=60.0)
    stage.fire("cloud", "time_limit")
    stage.evaluated(0.1, at=60.0)
    assert rows(stage) == [(60.0, 0)]
    assert stage.stopped == {"cloud": ""}


def test_a_restored_cloud_goes_on_with_its_grid() -> None:
    stage = stage_on_grid()
    makes_a_model(stage, 110.0)
    stored = from_plain(to_plain(stage.cloud.snapshot()))
    restored = stage.make()["cloud"]
    restored.restore(stored)
    (evaluate,) = restored.handle(TimerFired(150.0, "evaluation"))
    effects = restored.handle(Evaluated(151.0, evaluate.epoch, Evaluation(0.5, 0.5)))
    assert [effect.record.at for effect in effects] == [150.0]
    assert restored.handle(TimerFired(200.0, "evaluation")) == []


def test_a_run_without_a_limit_sets_no_timer_for_it() -> None:
    stage = Stage(cloud={"evaluation_grid": 50.0})
    stage.happens("cloud", Started(0.0))
    assert ("cloud", "time_limit") not in stage.timers
