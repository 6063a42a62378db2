"""The learner of a task whose devices train with the user's own clients: one process per core, each with one call at a
time.

A result depends on the start weights, the device, the job's seed and its number, and on what the device's client left
behind at its job before (`context.state`, integer arrays), which this learner keeps for every device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import final

import numpy as np

from async_hfl.adapters.client_errors import ClientErrors
from async_hfl.adapters.client_task import ClientTask
from async_hfl.adapters.travelling import told
from async_hfl.adapters.worker import SERVER, ClientWorker, Judged, Kept, Trained
from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.serialization import Plain
from async_hfl.core.vectors import to_host
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.engine.runtime import usable_cores
from async_hfl.learning.own.task import task_target
from async_hfl.learning.own.task_errors import TaskErrors
from async_hfl.learning.pytorch.processes import Processes, ThisProcess

log = logging.getLogger("async_hfl.adapters")

Source = Callable[[], ClientTask]
"""Returns the task, here and in every process: a function that another interpreter can import by name."""


@final
class ClientLearner:
    """A `core.learner.Learner`."""

    learning_rate = 1.0
    """With one step a job, the gradient that is derived from an update is the update itself, undivided."""

    def __init__(
        self,
        source: Source,
        name: str,
        devices: int,
        seed: int,
        *,
        gradient: bool,
        threshold: float | None = None,
        places: Sequence[int] | None = None,
        processes: int | None = None,
    ) -> None:
        """`gradient`: results carry a gradient. `places`: the partitions of the devices, by default all in order.
        `processes`: their number; 0 for none, which a process needs that may not start others."""
        self._places = list(range(devices)) if places is None else list(places)
        self._task = task = source()
        self.target = task_target(task, TaskErrors(name), threshold)
        make = partial(make_worker, source, name, devices, seed)
        self._gradient = gradient
        self._count = usable_cores() if processes is None else processes
        self._processes: Processes[ClientWorker] | ThisProcess[ClientWorker]
        self._processes = Processes(self._count, make, name) if self._count else ThisProcess(make)
        [arrangement] = self._processes.answers([ClientWorker.arrangement])
        self.told = told(task, arrangement)
        self.layout = arrangement.layout
        self.gradient_size = arrangement.trained_size
        self.model_bytes = 4 * self.layout.size
        self._kept: dict[int, Kept] = {}
        self._numbers: dict[int, int] = {}
        self._counts = np.ones(len(self._places), dtype=np.int64)
        self._derived: set[str] = set()

    @property
    def samples(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The samples that each device's client reported last. Before its first result, all count as equal."""
        return self._counts.copy()

    def initial_weights(self, seed: int) -> Weights:
        [weights] = self._processes.answers([partial(ClientWorker.initial, seed=seed)])
        return frozen(weights)

    def compile(self) -> None:
        """Load the libraries and the user's code in every process."""
        self._processes.answers([ClientWorker.arrangement] * max(1, self._count))

    def close(self) -> None:
        """Stop the processes; a later call starts them again."""
        self._processes.close()

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        found: dict[int, TrainingResult] = {}
        waiting = list(range(len(jobs)))
        while waiting:  # two jobs of a device one after the other: the second gets what the first left behind
            first = {jobs[i].device: i for i in reversed(waiting)}
            now = sorted(first.values())
            answers = self._processes.answers([self._training(jobs[i]) for i in now])
            for i, trained in zip(now, answers, strict=True):
                found[i] = self._taken(jobs[i], trained)
            waiting = [i for i in waiting if i not in found]
        return [found[i] for i in range(len(jobs))]

    def _training(self, job: TrainingJob) -> Callable[[ClientWorker], Trained]:
        return partial(
            ClientWorker.train,
            device=self._places[job.device],
            weights=to_host(job.weights),
            kept=self._kept.get(job.device, Kept()),
            seed=job.seed,
            number=job.generation + 1,
        )

    def _taken(self, job: TrainingJob, trained: Trained) -> TrainingResult:
        self._kept[job.device] = trained.kept
        self._numbers[job.device] = job.generation + 1
        self._counts[job.device] = trained.samples
        self._note(trained.derived)
        gradient = None
        if self._gradient:
            with np.errstate(over="ignore", invalid="ignore"):
                size = self.gradient_size
                gradient = frozen(to_host(job.weights)[:size] - trained.weights[:size])
        loss = trained.loss
        return TrainingResult(frozen(trained.weights), trained.samples, 1, loss, loss * loss, gradient)

    def memory(self) -> Plain:
        """Return what the devices' clients left behind, for a checkpoint."""
        return [
            [device, self._numbers[device], int(self._counts[device]), list(kept.integers), _as_array(kept.state)]
            for device, kept in self._kept.items()
        ]

    def remember(self, memory: Plain) -> None:
        self._kept.clear()
        self._numbers.clear()
        for device, number, count, integers, state in memory:
            self._kept[device] = Kept(tuple(np.array(one) for one in integers), state.tobytes())
            self._numbers[device], self._counts[device] = number, count

    def _note(self, derived: Sequence[str]) -> None:
        """Say once what the clients do not report."""
        new = [what for what in derived if what not in self._derived]
        if new:
            gradient = [] if self._derived else ["gradient = the update, undivided"]
            log.warning("not reported by the clients, so derived: %s", "; ".join([*new, *gradient]))
            self._derived.update(new)

    def evaluate(self, weights: Weights) -> Evaluation:
        """Evaluate by the user's function, if there is one; otherwise by the clients, weighted by their samples."""
        if self._task.evaluate is not None:
            return self._judged(weights, [SERVER])[0].evaluation
        wanted = min(self._task.evaluate_on or len(self._places), len(self._places))
        chosen = [i * len(self._places) // wanted for i in range(wanted)]
        judged = self._judged(weights, chosen)
        total = sum(one.samples for one in judged)
        metric, loss = (
            sum(getattr(one.evaluation, name) * one.samples for one in judged) / total for name in ("metric", "loss")
        )
        return Evaluation(metric=metric, loss=loss)

    def evaluate_by_device(self, weights: Weights) -> list[Evaluation | None]:
        """Evaluate by each device's client. Empty if the user's own function evaluates: clients may then be unable."""
        if self._task.evaluate is not None:
            return []
        return [one.evaluation for one in self._judged(weights, range(len(self._places)))]

    def _judged(self, weights: Weights, devices: Sequence[int]) -> list[Judged]:
        host = to_host(weights)
        found: list[Judged] = self._processes.answers(
            [
                partial(
                    ClientWorker.evaluate,
                    device=SERVER if device == SERVER else self._places[device],
                    weights=host,
                    kept=self._kept.get(device, Kept()),
                    number=self._numbers.get(device, 1),
                )
                for device in devices
            ]
        )
        return found


def _as_array(state: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(state, np.uint8)


def make_worker(source: Source, name: str, devices: int, seed: int) -> ClientWorker:
    """Create the worker, in this process or another."""
    return ClientWorker(source(), devices, seed, ClientErrors(name))
