"""Several runs with one engine: calls do not depend on speed, and each run gets the results it would get alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import async_hfl
from async_hfl.core.errors import InternalError, UserError
from async_hfl.core.learner import Results, TrainingResult
from async_hfl.core.weights import frozen
from async_hfl.learning.engine.shared_engine import SharedEngine
from async_hfl.learning.engine.trainer import Request, Trainer


def request(value: float) -> Request:
    return Request(
        frozen(np.array([value], np.float32)), np.arange(3, dtype=np.int32), 0, np.zeros(4, np.float32), max_samples=3
    )


class Doubling:
    """A trainer that doubles the start weights and records its calls."""

    def __init__(self) -> None:
        self.calls: list[list[float]] = []

    def compile(self, max_samples: int, jobs: int) -> None:
        return

    def begin(self, requests: Sequence[Request]) -> Results:
        values = [float(each.weights[0]) for each in requests]
        if 13.0 in values:
            raise ValueError("thirteen")
        self.calls.append(values)
        return lambda: [TrainingResult(frozen(2 * each.weights), 3, 1, 0.0, 0.0) for each in requests]


def in_threads(shared: SharedEngine, engine: Trainer, scripts: Sequence[Sequence[tuple[float, list[float]]]]) -> list:
    """Run scripts of (seconds to wait, values to train); return their results, or the exception."""
    outcomes: list = [None] * len(scripts)

    def play(run: int) -> None:
        trainer = shared.trainer(run, "engine", lambda: engine)
        got = []
        try:
            for delay, values in scripts[run]:
                time.sleep(delay)
                got.append([float(r.weights[0]) for r in trainer.begin([request(value) for value in values])()])
            outcomes[run] = got
        except ValueError as error:
            outcomes[run] = error
        finally:
            shared.leave(run)

    threads = [threading.Thread(target=play, args=(run,)) for run in range(len(scripts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a run waits forever"
    return outcomes


def test_runs_are_trained_together_and_get_their_own_results() -> None:
    engine = Doubling()
    got = in_threads(
        SharedEngine(3), engine, [[(0.0, [1, 2]), (0.05, [3])], [(0.02, [10])], [(0.0, [20]), (0.0, [30, 31])]]
    )
    assert got == [[[2, 4], [6]], [[20]], [[40], [60, 62]]]
    assert engine.calls == [[1, 2, 10, 20], [3, 30, 31]]


def test_calls_do_not_depend_on_the_speed_of_threads() -> None:
    seen = []
    for slow in range(3):
        engine = Doubling()
        scripts = [[(0.03 * (run == slow), [run * 10 + turn]) for turn in range(run + 1)] for run in range(3)]
        in_threads(SharedEngine(3), engine, scripts)
        seen.append(engine.calls)
    assert seen[0] == seen[1] == seen[2] == [[0, 10, 20], [11, 21], [22]]


def test_a_failure_reaches_every_waiting_run() -> None:
    got = in_threads(SharedEngine(2), Doubling(), [[(0.0, [13.0])], [(0.0, [1.0])]])
    assert all(isinstance(outcome, ValueError) for outcome in got)


def test_a_run_that_has_left_cannot_train() -> None:
    shared = SharedEngine(1)
    trainer = shared.trainer(0, "engine", Doubling)
    shared.leave(0)
    with pytest.raises(InternalError, match="has left"):
        trainer.begin([request(1.0)])()


def test_runs_that_share_an_engine_equal_runs_alone(tmp_path: Path) -> None:
    """Different seeds (and partitions) and methods (with and without the final gradient): the digests are the same."""
    plans = [
        {"seed": 1, "method": "async-hfl-plus"},
        {"seed": 2, "method": "async-hfl-plus"},
        {"seed": 1, "method": "async-hfl"},
        {"seed": 3, "method": "async-random"},
    ]
    runs = [{**plan, "overrides": ["cloud.epochs=6"], "out": tmp_path / f"t{n}"} for n, plan in enumerate(plans)]
    shared = async_hfl.run_together(runs)
    for number, (plan, made) in enumerate(zip(plans, shared, strict=True)):
        alone = async_hfl.run(**plan, overrides=["cloud.epochs=6"], out=tmp_path / f"a{number}")
        assert not isinstance(made, BaseException)
        assert made.summary["digest"] == alone.summary["digest"]


def test_a_failed_run_does_not_affect_the_others(tmp_path: Path) -> None:
    good = {"seed": 1, "overrides": ["cloud.epochs=2"], "out": tmp_path / "good"}
    made, failed = async_hfl.run_together([good, {"seed": 1, "overrides": ["cloud.epochs=0"]}])
    assert isinstance(failed, UserError)
    assert not isinstance(made, BaseException)
    assert made.summary["cloud_epochs"] == 2
