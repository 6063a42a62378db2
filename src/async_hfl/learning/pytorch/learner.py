"""Learner for a task in PyTorch: one single-threaded process per core, each with one job at a time.

Each process loads the user's file itself, so that no code is sent; that it finds the same data is checked.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import SettingsError
from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.maths.targets import Target
from async_hfl.core.weights import Layout, Weights, frozen
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.own.data import OwnData, checked_data
from async_hfl.learning.own.task import TorchTask, task_target
from async_hfl.learning.own.task_errors import TaskErrors
from async_hfl.learning.pytorch.processes import Processes
from async_hfl.learning.pytorch.worker import Counting, Describing, Description, Drawing, TorchWorker, Training
from async_hfl.learning.tasks.refresh import Refresh

_ROWS = 512
"""Samples per evaluation request."""

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
    ) -> None:
        if find_spec("torch") is None:
            raise SettingsError(f"{name}: needs PyTorch; install it with `pip install 'async-hfl[torch]'`")
        errors = TaskErrors(name)
        task = source()
        self._by_class = task.metric == "accuracy"
        self._target = task_target(task, errors, threshold)
        self._data = checked_data(task, devices, seed, errors)
        self._recipe = recipe
        self._refresh = Refresh(
            self._data.owned, self._data.train.targets, classes=self._data.classes, share=refresh, seed=seed
        )
        self._samples = np.array([len(rows) for rows in self._data.owned], dtype=np.int64)
        self._samples.flags.writeable = False
        make = _Maker(source, name, devices, seed, recipe, _digest(self._data))
        self._count = processes or _cores()
        self._processes = Processes(self._count, make, name)
        [description] = self._processes.answers([Describing()])
        self._description: Description = description

    @property
    def layout(self) -> Layout:
        return self._description.layout

    @property
    def gradient_size(self) -> int:
        return self._description.trained

    @property
    def model_bytes(self) -> int:
        return 4 * self.layout.size

    @property
    def target(self) -> Target:
        return self._target

    @property
    def learning_rate(self) -> float:
        return self._recipe.learning_rate

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        return self._samples

    @property
    def data(self) -> OwnData:
        return self._data

    def initial_weights(self, seed: int) -> Weights:
        [weights] = self._processes.answers([Drawing(seed)])
        return frozen(weights)

    def compile(self) -> None:
        """Load the libraries and the data in every process. There is nothing to compile."""
        self._processes.answers([Describing()] * self._count)

    def close(self) -> None:
        """Stop the processes; a later call starts them again."""
        self._processes.close()

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        if not jobs:
            return []
        devices = np.array([job.device for job in jobs], dtype=np.int64)
        held = self._refresh.rows(devices, np.array([job.generation for job in jobs], dtype=np.int64))
        sizes = self._samples[devices].tolist()
        # Longest first, so that the processes finish together.
        order = np.argsort(-self._samples[devices], kind="stable").tolist()
        answers = self._processes.answers([Training(jobs[i].weights, held[i, : sizes[i]], jobs[i].seed) for i in order])
        steps_per_epoch = self._recipe.static.steps_per_epoch
        results = {
            i: TrainingResult(
                weights=frozen(answer.weights),
                samples=sizes[i],
                steps=self._recipe.epochs * steps_per_epoch(sizes[i]),
                loss=answer.sums[0] / sizes[i],
                squared_loss=answer.sums[1] / sizes[i],
                gradient=None if answer.gradient is None else frozen(answer.gradient),
            )
            for i, answer in zip(order, answers, strict=True)
        }
        return [results[i] for i in range(len(jobs))]

    def evaluate(self, weights: Weights) -> Evaluation:
        rows = np.arange(len(self._data.test))
        [evaluation] = self._evaluated(weights, [rows], of_test=True)
        return evaluation

    def evaluate_by_device(self, weights: Weights) -> list[Evaluation | None]:
        """Evaluate on the device's training samples, at most `_ROWS` of them, evenly spaced."""
        judged = [rows[:: -(-len(rows) // _ROWS)] for rows in self._data.owned]
        return [*self._evaluated(weights, judged, of_test=False)]

    def _evaluated(
        self, weights: Weights, groups: Sequence[npt.NDArray[np.int64]], *, of_test: bool
    ) -> list[Evaluation]:
        """Add the sums in the order of the rows, whichever process computed them."""
        pieces = [
            (number, Counting(np.asarray(weights), of_test, rows[first : first + _ROWS]))
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


@dataclass(frozen=True, slots=True)
class _Maker:
    """Creates the worker in another process."""

    source: Source
    name: str
    devices: int
    seed: int
    recipe: Recipe
    digest: str

    def __call__(self) -> Callable[[Any], Any]:
        errors = TaskErrors(self.name)
        task = self.source()
        data = checked_data(task, self.devices, self.seed, errors)
        if _digest(data) != self.digest:
            raise errors.invalid("task", "gives other data each time it is called; draw by its seed alone")
        return TorchWorker(task, data, self.recipe, errors).answer


def _digest(data: OwnData) -> str:
    found = hashlib.blake2b(digest_size=16)
    for array in (data.train.inputs, data.train.targets, data.test.inputs, data.test.targets, *data.owned):
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
