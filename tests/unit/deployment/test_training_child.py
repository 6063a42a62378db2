"""Training in a child process: results, stopped jobs, errors, crashes. Real processes, with a stub learner."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from async_hfl.core.errors import DataError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.protocol.effects import Evaluate
from async_hfl.core.protocol.events import Evaluated, Trained, TrainingBroke
from async_hfl.core.weights import Weights, frozen
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.training.child_process import Ready, Spent, TrainingChild, TrainingFailed
from async_hfl.deployment.training.service import TrainingService

HANG_GUARD_S = 120.0
ONES = frozen(np.ones(3, np.float32))


class Doubler:
    """Doubles the weights; a seed of 13 raises an error."""

    def train(self, job: TrainingJob) -> TrainingResult:
        if job.seed == 13:
            raise ValueError("unlucky")
        weights = frozen((job.weights * 2 + job.device).astype(np.float32))
        gradient = frozen(job.weights.copy()) if job.generation else None
        return TrainingResult(weights, 10 + job.device, 5, 0.5, 0.25, gradient)

    def evaluate(self, device: int, weights: Weights) -> Evaluation | None:
        return Evaluation(float(weights.sum()), 0.1, {"device": float(device)}) if device == 0 else None


def made() -> tuple[Doubler, Ready]:
    return Doubler(), Ready((10, 11), (Spent(0.4, 0.1), Spent(0.5, 0.2)))


def fails() -> tuple[Doubler, Ready]:
    raise DataError("there is no such data here")


def dies() -> tuple[Doubler, Ready]:
    os._exit(3)


class Heard:
    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def trained(self, *told: object) -> None:
        self.told.append(("trained", *told))

    def broke(self, *told: object) -> None:
        self.told.append(("broke", *told))

    def evaluated(self, *told: object) -> None:
        self.told.append(("evaluated", *told))

    def gone(self) -> None:
        self.told.append(("gone",))

    def wait_for(self, count: int) -> list[tuple[object, ...]]:
        given_up = time.monotonic() + HANG_GUARD_S
        while len(self.told) < count:
            assert time.monotonic() < given_up, self.told
            time.sleep(0.01)
        return self.told


def job(number: int, device: int = 0, seed: int = 1, generation: int = 0) -> TrainingJob:
    return TrainingJob(JobId(0, 1, number), device, ONES, seed, generation)


def test_jobs_go_out_and_results_come_back_as_they_were() -> None:
    heard = Heard()
    child = TrainingChild(made, heard)
    try:
        assert child.start() == Ready((10, 11), (Spent(0.4, 0.1), Spent(0.5, 0.2)))
        child.train(job(1))
        child.train(job(2, device=1, generation=1))
        child.evaluate(0, 7, ONES)
        child.evaluate(1, 8, ONES)
        first, second, judged, unjudged = heard.wait_for(4)
        assert first[:3] == ("trained", 0, JobId(0, 1, 1))
        result = first[3]
        assert isinstance(result, TrainingResult)
        assert result.weights.tolist() == [2.0, 2.0, 2.0]
        assert not result.weights.flags.writeable
        assert (result.samples, result.steps, result.loss, result.squared_loss) == (10, 5, 0.5, 0.25)
        assert result.gradient is None
        again = second[3]
        assert isinstance(again, TrainingResult)
        assert again.weights.tolist() == [3.0, 3.0, 3.0]
        assert again.gradient is not None
        assert again.gradient.tolist() == [1.0, 1.0, 1.0]
        assert judged == ("evaluated", 0, 7, Evaluation(3.0, 0.1, {"device": 0.0}))
        assert unjudged == ("evaluated", 1, 8, None)
    finally:
        child.close()
    assert not Path(f"/proc/{child.pid}").exists()


def test_an_error_of_the_task_ends_its_job_and_nothing_else() -> None:
    heard = Heard()
    child = TrainingChild(made, heard)
    try:
        child.start()
        child.train(job(1, seed=13))
        child.train(job(2))
        broke, trained = heard.wait_for(2)
        assert broke == ("broke", 0, JobId(0, 1, 1), "ValueError: unlucky")
        assert trained[0] == "trained"
    finally:
        child.close()


@pytest.mark.parametrize(("make", "words"), [(fails, "there is no such data here"), (dies, "before it was ready")])
def test_a_child_that_cannot_begin_says_why(make: object, words: str) -> None:
    with pytest.raises(TrainingFailed, match=words):
        TrainingChild(make, Heard()).start()  # type: ignore[arg-type]


def test_the_end_of_a_child_is_noticed() -> None:
    heard = Heard()
    child = TrainingChild(made, heard)
    child.start()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    assert heard.wait_for(1) == [("gone",)]
    child.train(job(1))  # changes nothing
    child.close()


def test_a_child_that_ended_is_replaced() -> None:
    async def story() -> None:
        inboxes = [Inbox(), Inbox()]
        service = TrainingService(made, inboxes)
        await service.start()
        try:
            first = service._child
            assert first is not None
            assert first.pid is not None
            service._open[0][JobId(0, 1, 9)] = (job(9), 0.0)  # open when the child ends
            service._evaluations[0][4] = Evaluate(4, ONES)
            os.kill(first.pid, signal.SIGKILL)
            (broke,) = await asyncio.wait_for(inboxes[0].take(1), HANG_GUARD_S)
            assert broke(1.0) == TrainingBroke(1.0, JobId(0, 1, 9))
            service.train(job(10))  # while the new one starts
            found = [made(2.0) for made in await _take(inboxes[0], 2)]
            assert {type(event) for event in found} == {Trained, Evaluated}
        finally:
            await service.close()

    asyncio.run(story())


def test_a_slowed_device_takes_longer_and_reports_it() -> None:
    async def story() -> None:
        inboxes = [Inbox(), Inbox()]
        service = TrainingService(made, inboxes, [1.0, 1000.0])
        try:
            assert (await service.start()).spent == (Spent(0.4, 0.1), Spent(200.0, 0.2))
            service.train(job(1, device=1))
            service.train(job(2, device=0))
            (quick,) = await _take(inboxes[0], 1)  # is not held up by the slow one
            (slow,) = await _take(inboxes[1], 1)
            events = [quick(1.0), slow(1.0)]  # type: ignore[operator]
            assert [event.job.number for event in events] == [2, 1]
            service.train(job(3, device=1))
            service.stop(1, JobId(0, 1, 3))  # superseded while it pretended to train
        finally:
            await service.close()

    asyncio.run(story())


async def _take(inbox: Inbox, count: int) -> list[object]:
    found: list[object] = []
    while len(found) < count:
        found += await asyncio.wait_for(inbox.take(count), HANG_GUARD_S)
    return found


def wait_for(file: Path) -> None:
    given_up = time.monotonic() + HANG_GUARD_S
    while not file.exists() and time.monotonic() < given_up:
        time.sleep(0.01)


class Waiter(Doubler):
    """Trains until a file exists."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def train(self, job: TrainingJob) -> TrainingResult:
        self._file.with_name("begun").touch()
        wait_for(self._file)
        return super().train(job)


def waiting(file: Path) -> tuple[Doubler, Ready]:
    return Waiter(file), made()[1]


def test_the_parent_does_not_wait_for_a_child_that_trains(tmp_path: Path) -> None:
    """A parent that waited would miss its heartbeats: a pipe buffers less than a model."""
    heard, enough = Heard(), tmp_path / "enough"
    child = TrainingChild(partial(waiting, enough), heard)
    large = frozen(np.ones(1_000_000, np.float32))
    try:
        child.start()
        child.train(replace(job(0), weights=large))
        wait_for(tmp_path / "begun")
        for number in range(1, 4):
            child.train(replace(job(number), weights=large))
        child.evaluate(0, 7, large)
        assert not heard.told
        enough.touch()
        assert [told[0] for told in heard.wait_for(5)] == ["trained"] * 4 + ["evaluated"]
    finally:
        child.close()


class Sleeper(Doubler):
    """Waits, as a training does on a busy machine."""

    def train(self, job: TrainingJob) -> TrainingResult:
        time.sleep(0.3)
        return super().train(job)


def sleeping() -> tuple[Doubler, Ready]:
    return Sleeper(), Ready((10, 11), (Spent(0.3, 0.0), Spent(0.3, 0.0)))


def test_a_busy_machine_is_not_taken_for_a_slow_device() -> None:
    async def story() -> None:
        inbox = Inbox()
        service = TrainingService(sleeping, [inbox, Inbox()], [1000.0, 1000.0])
        await service.start()
        try:
            service.train(job(1, device=1))
            service.train(job(2, device=0))  # is trained after the other
            (made,) = await _take(inbox, 1)
            event = made(1.0)  # type: ignore[operator]
            assert 0.6 <= event.training_s < 300, "what it waited, not a thousand times as much"
        finally:
            await service.close()

    asyncio.run(story())
