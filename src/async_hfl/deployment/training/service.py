"""The training service of a device process: one child trains for all devices, and is replaced if it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.protocol.effects import Evaluate, StartTraining
from async_hfl.core.protocol.events import Evaluated, Trained, TrainingBroke
from async_hfl.core.randomness import stream_seed, training_seed
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.shell import Workers
from async_hfl.deployment.training.child_process import LocalLearner, Ready, Spent, TrainingChild, TrainingFailed

log = logging.getLogger("async_hfl.device")
_NOTHING = Evaluation(float("nan"), float("nan"))


class TrainingService:
    def __init__(
        self, make: Callable[[], tuple[LocalLearner, Ready]], inboxes: Sequence[Inbox], slowdowns: Sequence[float] = ()
    ) -> None:
        """`slowdowns`: for each device, the factor by which its training is slowed down; empty for none."""
        self._slowdowns = slowdowns or [1.0] * len(inboxes)
        self._make = make
        self._inboxes = inboxes
        self._child: TrainingChild | None = None
        self._open: list[dict[JobId, tuple[TrainingJob, float]]] = [{} for _ in inboxes]
        """Unfinished jobs of each device, with the time at which the child got them."""
        self._evaluations: list[dict[int, Evaluate]] = [{} for _ in inboxes]
        self._loop = asyncio.get_running_loop()
        self._restarting: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Raises TrainingFailed if a child could not be restarted."""

    async def start(self) -> Ready:
        child = TrainingChild(self._make, self, self._loop.call_soon_threadsafe)
        ready = await asyncio.to_thread(child.start)
        self._child = child
        longer = zip(ready.spent, self._slowdowns, strict=True)
        return replace(ready, spent=tuple(_slowed(spent, factor) for spent, factor in longer))

    async def close(self) -> None:
        if self._restarting is not None:
            self._restarting.cancel()
        if self._child is not None:
            await asyncio.to_thread(self._child.close)

    # For the devices -------------------------------------------------------------------------------------------------

    def train(self, job: TrainingJob) -> None:
        self._open[job.device][job.job] = (job, self._loop.time())
        if self._child is not None:
            self._child.train(job)

    def stop(self, device: int, job: JobId) -> None:
        if self._open[device].pop(job, None) is not None and self._child is not None:
            self._child.stop(job)

    def evaluate(self, device: int, work: Evaluate) -> None:
        self._evaluations[device][work.epoch] = work
        if self._child is not None:
            self._child.evaluate(device, work.epoch, work.weights)

    # Called by the child, on the loop's thread -----------------------------------------------------------------------

    def trained(self, device: int, job: JobId, result: TrainingResult, spent: Spent) -> None:
        """Deliver a result: at once, or, for a slowed device, when its slowed training would have ended.

        The time for which the job waited for other devices or for a busy machine counts towards the slowed time."""
        if self._slowdowns[device] == 1.0:
            self._deliver(device, job, result, spent.seconds)
            return
        now = self._loop.time()
        _, begun = self._open[device].get(job, (None, now))
        seconds = max(_slowed(spent, self._slowdowns[device]).seconds, now - begun)
        self._loop.call_at(begun + seconds, self._deliver, device, job, result, seconds)

    def _deliver(self, device: int, job: JobId, result: TrainingResult, seconds: float) -> None:
        if self._open[device].pop(job, None) is not None:  # not stopped meanwhile
            self._inboxes[device].put(lambda at: Trained(at, job, result, seconds))

    def broke(self, device: int, job: JobId, why: str) -> None:
        log.error("training job %s failed: %s", job, why)
        if self._open[device].pop(job, None) is not None:
            self._inboxes[device].put(lambda at: TrainingBroke(at, job))

    def evaluated(self, device: int, epoch: int, evaluation: Evaluation | None) -> None:
        if self._evaluations[device].pop(epoch, None) is not None:
            found = _NOTHING if evaluation is None else evaluation
            self._inboxes[device].put(lambda at: Evaluated(at, epoch, found))

    def gone(self) -> None:
        """Restart the child. Unfinished jobs are lost, as in an outage; evaluations are repeated."""
        log.warning("the training process has ended; starting another")
        self._child = None
        for device, jobs in enumerate(self._open):
            for job in list(jobs):
                self.broke(device, job, "its process ended")
        self._restarting = self._loop.create_task(self._restart())

    async def _restart(self) -> None:
        try:
            await self.start()
        except TrainingFailed as error:
            self.failed.set_exception(error)
            return
        for jobs in self._open:
            for job, _ in list(jobs.values()):
                self.train(job)
        for device, evaluations in enumerate(self._evaluations):
            for work in list(evaluations.values()):
                self.evaluate(device, work)


def _slowed(spent: Spent, factor: float) -> Spent:
    return spent if factor == 1.0 else Spent(spent.busy_s * factor, spent.busy_s)


class DeviceWorkers(Workers):
    """The workers of one device: its jobs go to the shared training service."""

    def __init__(self, place: int, seed: int, service: TrainingService) -> None:
        self._place = place
        self._seed = stream_seed(seed, "training")
        self._service = service

    def train(self, work: StartTraining) -> None:
        job = work.job
        seed = training_seed(self._seed, job)
        self._service.train(TrainingJob(job, self._place, work.weights, seed, work.generation))

    def stop_training(self, job: JobId) -> None:
        self._service.stop(self._place, job)

    def evaluate(self, work: Evaluate) -> None:
        self._service.evaluate(self._place, work)
