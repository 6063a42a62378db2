"""A task is data, a model, a loss and a target; a recipe makes it a learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from async_hfl.core.device_vector import let_return
from async_hfl.core.learner import Evaluation, PrefetchPolicy, Results, TrainingJob, TrainingResult
from async_hfl.core.maths.targets import Target
from async_hfl.core.randomness import stream
from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.engine import Engine
from async_hfl.learning.engine.on_device.kin import Kin
from async_hfl.learning.engine.on_device.shelf import BLOCK
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions, Request, Trainer
from async_hfl.learning.evaluation.evaluator import Evaluator
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.evaluation.per_device import PerDeviceEvaluation
from async_hfl.learning.models.model import Model
from async_hfl.learning.partition import Rows
from async_hfl.learning.tasks.refresh import Refresh

_MODELS, _GRADIENTS = 2, 2
"""That a device is sent and gives, and that its gateway and the cloud know; about three in all."""
_AT_WORK = 400
"""Vectors that multiplying and blending take meanwhile."""
_MOST_DEVICES = 1024
"""Each gradient is multiplied with all others: beyond that one sum of them, kept on the host, is cheaper."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What is learnt from what; nothing of how."""

    name: str
    model: Model
    objective: Objective
    train: Samples
    test: Samples
    owned: tuple[Rows, ...]
    """Rows of the training set by device."""
    target: Target
    refresh: float = 0.0
    """Share of a device's samples renewed with each job."""
    seed: int = 0
    """Of what changes over time."""
    test_owned: tuple[Rows, ...] = ()
    """Rows of the test set by device, where the data has natural owners and devices are owners."""
    classes: int = 0
    class_names: tuple[str, ...] = ()


def settled(task: Task, options: EngineOptions, runs: int = 1) -> EngineOptions:
    """`vectors` decided: on the card where there is just one, and it takes those of so many runs."""
    if options.vectors != "auto":
        return options
    devices = jax.local_devices()
    fit = vectors_fit(len(task.owned), task.model.bytes, options.memory, runs)
    stay = devices[0].platform != "cpu" and len(devices) == 1 and fit
    return replace(options, vectors="card" if stay else "host")


def vectors_fit(devices: int, model_bytes: int, memory: int, runs: int) -> bool:
    """Is there room for the vectors of so many runs, and are they few enough to be multiplied with each other?"""
    places = -(-_GRADIENTS * devices // BLOCK) * BLOCK
    return devices <= _MOST_DEVICES and (runs * (_MODELS * devices + places) + _AT_WORK) * model_bytes <= memory


def engine_for(task: Task, recipe: Recipe, options: EngineOptions) -> Engine:
    return Engine(task.model, task.objective, task.train, recipe.shape, options)


@final
class TaskLearner:
    """`core.learner.Learner` for a task, on the host's cores or on accelerators."""

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        options: EngineOptions = EngineOptions(),  # noqa: B008  (frozen)
        trainer: Trainer | None = None,
        *,
        multiplied: bool = True,
    ) -> None:
        """`trainer` where several learners of the same task, model and recipe's shape share one. `multiplied`: somebody
        will ask for inner products of gradients."""
        self._task = task
        self._recipe = recipe
        self._options = options
        self._by_device: PerDeviceEvaluation | None = None
        self._trainer = trainer or engine_for(task, recipe, options)
        if options.vectors != "card":
            let_return(None)
        self._evaluator = Evaluator(task.model, task.objective, task.test, options.precision)
        self._refresh = Refresh(
            task.owned, task.train.targets, classes=task.classes, share=task.refresh, seed=task.seed
        )
        self._samples = np.array([len(rows) for rows in task.owned], dtype=np.int64)
        self._samples.flags.writeable = False
        self._room = int(self._samples.max())
        self._kin = Kin(recipe.learning_rate) if multiplied else None

    @property
    def task(self) -> Task:
        return self._task

    @property
    def layout(self) -> Layout:
        return self._task.model.layout

    @property
    def gradient_size(self) -> int:
        return self._task.model.trained_size

    @property
    def model_bytes(self) -> int:
        return self._task.model.bytes

    @property
    def target(self) -> Target:
        return self._task.target

    @property
    def learning_rate(self) -> float:
        return self._recipe.learning_rate

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        return self._samples

    def initial_weights(self, seed: int) -> Weights:
        return self._task.model.init(stream(seed, "initial"))

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        return self._trainer.train(self._requests(jobs)) if jobs else []

    @property
    def on_accelerator(self) -> bool:
        return self._options.vectors == "card"

    @property
    def prefetch(self) -> PrefetchPolicy | None:
        return self._trainer.ahead

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        return self._trainer.begin(self._requests(jobs))

    def _requests(self, jobs: Sequence[TrainingJob]) -> list[Request]:
        coefficients = self._recipe.coefficients
        devices = np.array([job.device for job in jobs], dtype=np.int64)
        held = self._refresh.rows(devices, np.array([job.generation for job in jobs], dtype=np.int64))
        return [
            Request(job.weights, rows[:size], job.seed, coefficients, self._room, self._kin)
            for job, rows, size in zip(jobs, held, self._samples[devices].tolist(), strict=True)
        ]

    def evaluate(self, weights: Weights) -> Evaluation:
        return self._evaluator.evaluate(weights)

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        return self._evaluator.begin(weights)

    def evaluate_by_device(self, weights: Weights) -> list[Evaluation | None]:
        """On its owner's part of the test set, else on the training samples it was dealt."""
        if self._by_device is None:
            task = self._task
            samples, owned = (task.test, task.test_owned) if task.test_owned else (task.train, task.owned)
            self._by_device = PerDeviceEvaluation(task.model, task.objective, samples, owned, self._options.precision)
        return self._by_device.evaluate(weights)

    def compile(self) -> None:
        """Compile every program now; otherwise the first call of each does."""
        self._trainer.compile(self._room, len(self._samples))
        self._evaluator.compile()
