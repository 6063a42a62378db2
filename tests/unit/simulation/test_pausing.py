"""Requests to pause: a run stops before its next event, gives up a wait for training, and ends later all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from async_hfl import api
from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.runs.simulated_run import recorded_run_for
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.learner import PrefetchPolicy, Results, TrainingJob, TrainingResult
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.learning.tasks.stub_learner import StubLearner
from async_hfl.simulation.pausing import PauseRequest

CHOSEN = {"task": "null", "network": "uniform", "seed": 3}
SETTINGS = ("task.devices=8", "task.model_size=40", "network.gateways=2", "cloud.epochs=12")


class SlowLearner(StubLearner):
    """Trains in the background. A signal handler makes the request during the wait number `asked_in`."""

    prefetch = PrefetchPolicy(2, 0.0, 2)

    def __init__(self, request: PauseRequest | None, asked_in: int) -> None:
        super().__init__(8, 40, gradient=True)
        self.request, self.asked_in = request, asked_in
        self.waits, self.finished = 0, 0

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        def results() -> list[TrainingResult]:
            self.waits += 1
            if self.waits == self.asked_in and self.request is not None:
                self.request.make()
            self.finished += 1
            return self.train_many(jobs)

        return results

    def begin_evaluation(self, weights: Any) -> Any:
        return lambda: self.evaluate(weights)


def recorded(path: Path, learner: SlowLearner) -> Any:
    composed = compose(None, **CHOSEN, overrides=SETTINGS)
    world = replace(build(composed.settings, 3).world, learner=learner)
    path.mkdir(exist_ok=True)
    return recorded_run_for(world, RunDirectory(path), composed.settings)


@pytest.mark.parametrize("asked_in", [1, 2, 9])
def test_a_wait_for_training_is_given_up(asked_in: int, tmp_path: Path) -> None:
    wanted = recorded(tmp_path / "whole", SlowLearner(None, 0)).run()
    request = PauseRequest()
    learner = SlowLearner(request, asked_in)
    first = recorded(tmp_path / "cut", learner)
    assert first.run(None, request) is None
    first.close()
    assert learner.waits == asked_in, "a checkpoint waits for no training"
    assert learner.finished == asked_in - 1, "the wait was given up"
    assert first.directory.checkpoint.is_file()
    found = recorded(tmp_path / "cut", SlowLearner(None, 0)).run()
    assert found["digest"] == wanted["digest"]
    assert found["final_metric"] == wanted["final_metric"]


def test_a_request_pauses_before_the_next_event(tmp_path: Path) -> None:
    """Before the first evaluation, too: a run of a large model may need minutes to get there."""
    request = PauseRequest()
    whole = api.run(**CHOSEN, overrides=SETTINGS, out=tmp_path / "whole")
    request.make()
    cut = api.run(**CHOSEN, overrides=SETTINGS, out=tmp_path / "cut", pause=request)
    assert not cut.complete
    assert cut.epochs == []
    assert cut.directory.checkpoint.is_file()
    assert api.resume(cut.path).summary["digest"] == whole.summary["digest"]
