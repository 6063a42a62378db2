"""The learner for a task in PyTorch: one single-threaded process per core, or a few that share a GPU, each with one job
at a time. In the training process of a device, it works in that process itself.

Each process loads the user's file itself, so no code is sent. A digest checks that it finds the same data. A task that
was made in Python is trained in this process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import SettingsError
from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.vectors import to_host
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.runtime import usable_cores
from async_hfl.learning.engine.trainer import TorchDevice
from async_hfl.learning.own.data import OwnData, checked_data
from async_hfl.learning.own.task import TorchTask, task_target
from async_hfl.learning.own.task_errors import TaskErrors
from async_hfl.learning.partition.dealing import Rows
from async_hfl.learning.pytorch import gpu
from async_hfl.learning.pytorch.processes import Processes, ThisProcess
from async_hfl.learning.pytorch.worker import TorchWorker
from async_hfl.learning.tasks.refresh import Refresh

_ROWS = 512
"""The most samples per evaluation request."""

Source = Callable[[], TorchTask]
"""Returns the task, here and in every process: a function that another interpreter can import by name."""


@final
class TorchLearner:
    """A `core.learner.Learner` for a `TorchTask`."""

    def __init__(
        self,
        source: Source,
        name: str,
        devices: int,
        seed: int,
        recipe: Recipe,
        *,
        threshold: float | None = None,
        refresh: float = 0.0,
        processes: int | None = None,
        device: TorchDevice = "auto",
        judged: Sequence[Rows] = (),
    ) -> None:
        """`processes`: their number; 0 to train in this process, which may not start others or alone can load the task.
        `judged`: rows of the test set on which each device evaluates; by default, its training samples."""
        if find_spec("torch") is None:
            raise SettingsError(f"{name}: needs PyTorch; install it with `pip install 'async-hfl[torch]'`")
        errors = TaskErrors(name)
        task = source()
        self._by_class = task.metric == "accuracy"
        self.target = task_target(task, errors, threshold)
        self.learning_rate = recipe.learning_rate
        self.data = data = checked_data(task, devices, seed, errors)
        self.samples = np.array([len(rows) for rows in data.owned], dtype=np.int64)
        self.samples.flags.writeable = False
        self._static = recipe.static
        self._refresh = Refresh(data.owned, data.train.targets, classes=data.classes, share=refresh, seed=seed)
        make = partial(_make_worker, source, name, devices, seed, recipe, device, _digest(data))
        self._judged = judged
        self._count = min(gpu.PROCESSES, usable_cores()) if processes is None else processes
        self._processes: Processes[TorchWorker] | ThisProcess[TorchWorker]
        self._processes = Processes(self._count, make, name) if self._count else ThisProcess(make)
        # The processes look for a GPU: this one, which may train in JAX or fork, does not touch CUDA.
        [(self.layout, self.gradient_size, self.device)] = self._processes.answers([TorchWorker.description])
        if processes is None and self.device == "cpu" and isinstance(self._processes, Processes):
            self._count = usable_cores()
            self._processes.grow(self._count)
        self.model_bytes = 4 * self.layout.size

    def initial_weights(self, seed: int) -> Weights:
        [weights] = self._processes.answers([partial(TorchWorker.initial, seed=seed)])
        return frozen(weights)

    def compile(self) -> None:
        """Load the libraries and the data in every process. There is nothing to compile."""
        self._processes.answers([TorchWorker.description] * max(1, self._count))

    def close(self) -> None:
        """Stop the processes; a later call starts them again."""
        self._processes.close()

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        if not jobs:
            return []
        devices = np.array([job.device for job in jobs], dtype=np.int64)
        held = self._refresh.rows(devices, np.array([job.generation for job in jobs], dtype=np.int64))
        sizes = self.samples[devices].tolist()
        # Longest first, so that the processes finish together.
        order = np.argsort(-self.samples[devices], kind="stable").tolist()
        answers = self._processes.answers(
            [
                partial(
                    TorchWorker.train, weights=to_host(jobs[i].weights), rows=held[i, : sizes[i]], seed=jobs[i].seed
                )
                for i in order
            ]
        )
        results = {
            i: TrainingResult(
                weights=frozen(answer.weights),
                samples=sizes[i],
                steps=answer.steps,
                loss=answer.loss / sizes[i],
                squared_loss=answer.squared_loss / sizes[i],
                gradient=None if answer.gradient is None else frozen(answer.gradient),
            )
            for i, answer in zip(order, answers, strict=True)
        }
        return [results[i] for i in range(len(jobs))]

    def train_on_all(self, weights: Weights, seed: int, learning_rate: float) -> tuple[Weights, float]:
        """Train on the data of all devices in one place; return the weights and the mean loss of the last epoch."""
        rows = np.arange(len(self.data.train), dtype=np.int32)
        request = partial(
            TorchWorker.train, weights=to_host(weights), rows=rows, seed=seed, learning_rate=learning_rate
        )
        [answer] = self._processes.answers([request])
        return frozen(answer.weights), answer.loss / len(rows)

    def evaluate(self, weights: Weights) -> Evaluation:
        [evaluation] = self._evaluated(weights, [np.arange(len(self.data.test))], of_test=True)
        return evaluation

    def evaluate_by_device(self, weights: Weights) -> list[Evaluation | None]:
        """Evaluate on the device's own part of the test set, else on at most `_ROWS` of its training samples."""
        if self._judged:
            return [*self._evaluated(weights, self._judged, of_test=True)]
        spaced = [rows[:: -(-len(rows) // _ROWS)] for rows in self.data.owned]
        return [*self._evaluated(weights, spaced, of_test=False)]

    def _evaluated(
        self, weights: Weights, groups: Sequence[npt.NDArray[np.int64]], *, of_test: bool
    ) -> list[Evaluation]:
        """Evaluate groups of rows. Sums are added in the order of the rows, whichever process computed them."""
        host = to_host(weights)
        pieces = [
            (number, partial(TorchWorker.count, weights=host, of_test=of_test, rows=rows[first : first + _ROWS]))
            for number, rows in enumerate(groups)
            for first in range(0, len(rows), _ROWS)
        ]
        totals: list[Any] = [0.0] * len(groups)
        answers = self._processes.answers([request for _, request in pieces])
        for (number, _), sums in zip(pieces, answers, strict=True):
            totals[number] = totals[number] + sums
        return [self._summarised(sums) for sums in totals]

    def _summarised(self, sums: npt.NDArray[np.float64]) -> Evaluation:
        if not self._by_class:
            losses, values, samples = (float(part) for part in sums)
            return Evaluation(metric=values / samples, loss=losses / samples)
        members, right = np.split(sums[1:], 2)
        samples = float(members.sum())
        by_class = {f"class_{label}": float(right[label] / members[label]) for label in np.flatnonzero(members)}
        return Evaluation(metric=float(right.sum()) / samples, loss=float(sums[0]) / samples, details=by_class)


def _make_worker(
    source: Source, name: str, devices: int, seed: int, recipe: Recipe, device: TorchDevice, digest: str
) -> TorchWorker:
    """Create the worker in another process."""
    errors = TaskErrors(name)
    task = source()
    data = checked_data(task, devices, seed, errors)
    if _digest(data) != digest:
        raise errors.invalid("task", "gives other data each time it is called; draw by its seed alone")
    return TorchWorker(task, data, recipe, errors, device)


def _digest(data: OwnData) -> str:
    found = hashlib.blake2b(digest_size=16)
    for array in (data.train.inputs, data.train.targets, data.test.inputs, data.test.targets, *data.owned):
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()
