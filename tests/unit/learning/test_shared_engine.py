"""Several runs, one engine: they meet whoever is fast or slow, and get what they would get alone."""

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
    """Gives twice the start weights, and remembers who came together."""

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


def in_threads(together: SharedEngine, engine: Trainer, scripts: Sequence[Sequence[tuple[float, list[float]]]]) -> list:
    """Each script: (seconds to dawdle, values to train) in turn; what came back, or the exception."""
    outcomes: list = [None] * len(scripts)

    def play(run: int) -> None:
        door = together.trainer(run, "engine", lambda: engine)
        got = []
        try:
            for dawdle, values in scripts[run]:
                time.sleep(dawdle)
                got.append([float(r.weights[0]) for r in door.begin([request(value) for value in values])()])
            outcomes[run] = got
        except ValueError as error:
            outcomes[run] = error
        finally:
            together.leave(run)

    threads = [threading.Thread(target=play, args=(run,)) for run in range(len(scripts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a run waits for ever"
    return outcomes


def test_runs_meet_and_each_gets_its_own() -> None:
    engine = Doubling()
    got = in_threads(
        SharedEngine(3), engine, [[(0.0, [1, 2]), (0.05, [3])], [(0.02, [10])], [(0.0, [20]), (0.0, [30, 31])]]
    )
    assert got == [[[2, 4], [6]], [[20]], [[40], [60, 62]]]
    assert engine.calls == [[1, 2, 10, 20], [3, 30, 31]]


def test_who_meets_whom_does_not_depend_on_speed() -> None:
    seen = []
    for slow in range(3):
        engine = Doubling()
        scripts = [[(0.03 * (run == slow), [run * 10 + turn]) for turn in range(run + 1)] for run in range(3)]
        in_threads(SharedEngine(3), engine, scripts)
        seen.append(engine.calls)
    assert seen[0] == seen[1] == seen[2] == [[0, 10, 20], [11, 21], [22]]


def test_a_failure_reaches_everyone_who_waited() -> None:
    got = in_threads(SharedEngine(2), Doubling(), [[(0.0, [13.0])], [(0.0, [1.0])]])
    assert all(isinstance(outcome, ValueError) for outcome in got)


def test_a_run_that_has_left_cannot_come_back() -> None:
    together = SharedEngine(1)
    door = together.trainer(0, "engine", Doubling)
    together.leave(0)
    with pytest.raises(InternalError, match="has left"):
        door.begin([request(1.0)])()


def test_runs_together_are_the_runs_alone(tmp_path: Path) -> None:
    """Other seeds (other partitions), other methods (with and without the final gradient): digests as alone."""
    plans = [
        {"seed": 1, "method": "async-hfl-plus"},
        {"seed": 2, "method": "async-hfl-plus"},
        {"seed": 1, "method": "async-hfl"},
        {"seed": 3, "method": "async-random"},
    ]
    runs = [{**plan, "overrides": ["cloud.epochs=6"], "out": tmp_path / f"t{n}"} for n, plan in enumerate(plans)]
    together = async_hfl.run_together(runs)
    for number, (plan, made) in enumerate(zip(plans, together, strict=True)):
        alone = async_hfl.run(**plan, overrides=["cloud.epochs=6"], out=tmp_path / f"a{number}")
        assert not isinstance(made, BaseException)
        assert made.summary["digest"] == alone.summary["digest"]


def test_one_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    good = {"seed": 1, "overrides": ["cloud.epochs=2"], "out": tmp_path / "good"}
    made, failed = async_hfl.run_together([good, {"seed": 1, "overrides": ["cloud.epochs=0"]}])
    assert isinstance(failed, UserError)
    assert not isinstance(made, BaseException)
    assert made.summary["cloud_epochs"] == 2
