"""What the rest of the system knows of learning: jobs in, results out.

A job's result depends only on (start weights, the device's data, its seed), so a learner may train jobs late and in
any grouping. Implementations live in `learning`; shells are handed one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from async_hfl.core.identifiers import JobId
from async_hfl.core.maths.targets import Target
from async_hfl.core.serialization import plain
from async_hfl.core.vectors import HostVector, Vector
from async_hfl.core.weights import Layout, Weights


@plain
@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One local training: `device.epochs` passes over the device's data from `weights`."""

    job: JobId
    device: int
    weights: Weights
    seed: int
    """64 bits; decides the order of mini-batches and nothing else."""
    generation: int = 0
    """How many jobs the device was given before: decides which samples it holds, where they change over time."""


@plain
@dataclass(frozen=True, slots=True)
class TrainingResult:
    weights: Weights
    samples: int
    steps: int
    """Mini-batch steps taken: learning_rate x steps turns a weight difference into a gradient."""
    loss: float
    """Mean loss per sample over the last epoch."""
    squared_loss: float
    """Mean squared loss per sample over the last epoch."""
    gradient: Vector | None = None
    """Gradient of the regularised local loss at the final weights, where asked for."""


@plain
@dataclass(frozen=True, slots=True)
class Evaluation:
    metric: float
    loss: float
    details: Mapping[str, float] = field(default_factory=dict)


class Learner(Protocol):
    """A task made trainable."""

    @property
    def layout(self) -> Layout: ...

    @property
    def gradient_size(self) -> int:
        """Numbers of a gradient: the leading part of a model that is trained, which may be all of it."""
        ...

    @property
    def model_bytes(self) -> int:
        """M: what one model weighs on a link."""
        ...

    @property
    def target(self) -> Target: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """Training samples of each device."""
        ...

    def initial_weights(self, seed: int) -> Weights: ...

    def compile(self) -> None:
        """Get everything ready that is not training, so that a clock started now measures training."""
        ...

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        """Results in the order of the jobs; each as if it were trained alone."""
        ...

    def evaluate(self, weights: Weights) -> Evaluation: ...

    def evaluate_by_device(self, weights: Weights) -> list[Evaluation | None]:
        """On samples of each device's own; None for one that has none to be judged on. Empty: there is no data."""
        ...


@dataclass(frozen=True, slots=True)
class PrefetchPolicy:
    """When jobs may begin before a result of theirs is due. By counts, never by the clock: so runs repeat."""

    jobs: int
    """At least so many wait, and ..."""
    share: float
    """... so large a part of all jobs whose results have not been taken."""
    calls: int
    """Most calls under way at a time."""
    in_turn: bool = False
    """Calls and evaluations are done one after another, as they were begun."""


Results: TypeAlias = Callable[[], list[TrainingResult]]
"""Waits for results, in the order of the jobs; to be called once."""


@runtime_checkable
class AsyncLearner(Protocol):
    """A learner that trains while its caller does something else."""

    @property
    def prefetch(self) -> PrefetchPolicy | None:
        """None: there is nothing to be gained by that."""
        ...

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        """As `train_many`, but it returns at once."""
        ...

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        """As `evaluate`, but it returns at once."""
        ...


@runtime_checkable
class Accelerated(Protocol):
    """A learner that may do all its work on an accelerator."""

    @property
    def on_accelerator(self) -> bool:
        """Vectors stay there, too."""
        ...

    def to_device(self, vector: HostVector) -> Vector:
        """Return a stored vector where this learner keeps its vectors."""
        ...
