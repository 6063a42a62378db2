"""The learner of a task: data, a model, an objective and a target, trained by a recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from async_hfl.core.learner import Evaluation, Results, TrainingJob, TrainingResult
from async_hfl.core.maths.targets import Target
from async_hfl.core.randomness import stream
from async_hfl.core.vectors import HostVector, Vector
from async_hfl.core.weights import Weights
from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.engine import Engine
from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps
from async_hfl.learning.engine.recipe import Recipe, Transformation
from async_hfl.learning.engine.trainer import EngineOptions, LiveGradients, Request, Trainer
from async_hfl.learning.evaluation.evaluator import Evaluator
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.evaluation.per_device import PerDeviceEvaluation
from async_hfl.learning.models.model import Model
from async_hfl.learning.partition.dealing import Rows
from async_hfl.learning.tasks.refresh import Refresh

_VECTORS = 6
"""Vectors per device: the models that it receives and returns, the gradients at its gateway and at the cloud, and, if
models travel encoded, the rounding error and the decoded model. About five of them exist at a time."""
_WORKING_VECTORS = 400
"""Vectors that products and blends need temporarily."""
_MOST_DEVICES = 1024
"""Each gradient is multiplied with all others. For more devices, one sum on the host is cheaper."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """The data, model, objective and target; not the way of training."""

    name: str
    model: Model
    objective: Objective
    train: Samples
    test: Samples
    owned: tuple[Rows, ...]
    """Rows of the training set, by device."""
    target: Target
    refresh: float = 0.0
    """Share of a device's samples that each job replaces."""
    seed: int = 0
    """Seed of the changes over time."""
    test_owned: tuple[Rows, ...] = ()
    """Rows of the test set, by device, if devices are the natural owners of the data."""
    classes: int = 0
    class_names: tuple[str, ...] = ()
    optimiser: Transformation | None = None
    """An optimiser of the user's own, in place of the recipe's."""

    def recipe(self, recipe: Recipe) -> Recipe:
        """Return the recipe by which this task is trained."""
        return recipe if self.optimiser is None else replace(recipe, optimiser=self.optimiser)


def decide_vectors(task: Task, options: EngineOptions, runs: int = 1) -> EngineOptions:
    """Resolve `vectors` = auto: on the device, if there is one accelerator that has room for this many runs."""
    if options.vectors != "auto":
        return options
    devices = jax.local_devices()
    fit = vectors_fit(len(task.owned), task.model.bytes, options.memory, runs)
    stay = devices[0].platform != "cpu" and len(devices) == 1 and fit
    return replace(options, vectors="device" if stay else "host")


def vectors_fit(devices: int, model_bytes: int, memory: int, runs: int) -> bool:
    """True if there is room for the vectors of this many runs, and they are few enough to be multiplied."""
    return devices <= _MOST_DEVICES and (runs * _VECTORS * devices + _WORKING_VECTORS) * model_bytes <= memory


def engine_for(task: Task, recipe: Recipe, options: EngineOptions) -> Engine:
    return Engine(task.model, task.objective, task.train, task.recipe(recipe).static, options)


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
        needs_products: bool = True,
    ) -> None:
        """Learners of the same task, model and static hyperparameters may share a `trainer`. `needs_products` if inner
        products of gradients will be requested."""
        self.task = task
        self.layout = task.model.layout
        self.gradient_size = task.model.trained_size
        self.model_bytes = task.model.bytes
        self.target = task.target
        self.learning_rate = recipe.learning_rate
        self.samples = np.array([len(rows) for rows in task.owned], dtype=np.int64)
        self.samples.flags.writeable = False
        self._coefficients = recipe.coefficients
        self._options = options
        self._by_device: PerDeviceEvaluation | None = None
        self._trainer = trainer or engine_for(task, recipe, options)
        self.prefetch = self._trainer.prefetch
        self.on_accelerator = options.vectors == "device"
        self._ops = DeviceOps(jax.local_devices()[0]) if self.on_accelerator else None
        self._evaluator = Evaluator(task.model, task.objective, task.test, options.precision)
        self._refresh = Refresh(
            task.owned, task.train.targets, classes=task.classes, share=task.refresh, seed=task.seed
        )
        self._max_samples = int(self.samples.max())
        self._live = LiveGradients(recipe.learning_rate) if needs_products else None

    def initial_weights(self, seed: int) -> Weights:
        return self.task.model.init(stream(seed, "initial"))

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        return self._trainer.begin(self.requests(jobs))() if jobs else []

    def to_device(self, vector: HostVector) -> Vector:
        return vector if self._ops is None else self._ops.place(vector)

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        return self._trainer.begin(self.requests(jobs))

    def requests(self, jobs: Sequence[TrainingJob]) -> list[Request]:
        """Return the jobs as the engine takes them, with the rows that their devices hold."""
        devices = np.array([job.device for job in jobs], dtype=np.int64)
        held = self._refresh.rows(devices, np.array([job.generation for job in jobs], dtype=np.int64))
        return [
            Request(job.weights, rows[:size], job.seed, self._coefficients, self._max_samples, self._live, job.encoding)
            for job, rows, size in zip(jobs, held, self.samples[devices].tolist(), strict=True)
        ]

    def evaluate(self, weights: Weights) -> Evaluation:
        return self._evaluator.begin(weights)()

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        return self._evaluator.begin(weights)

    def evaluate_by_device(self, weights: Weights) -> list[Evaluation | None]:
        """Evaluate each device on its owner's part of the test set, else on its training samples."""
        if self._by_device is None:
            task = self.task
            samples, owned = (task.test, task.test_owned) if task.test_owned else (task.train, task.owned)
            self._by_device = PerDeviceEvaluation(task.model, task.objective, samples, owned, self._options.precision)
        return self._by_device.evaluate(weights)

    def compile(self) -> None:
        """Compile every program now; otherwise its first call does."""
        self._trainer.compile(self._max_samples, len(self.samples))
        self._evaluator.compile()
