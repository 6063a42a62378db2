"""The interface between the system and machine learning: training jobs in, results out.

A job's result depends only on its start weights, the device's data and the job's seed. A learner may therefore train
jobs later than they were announced, and in any grouping. Implementations are in `learning`; shells are given one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.identifiers import JobId
from async_hfl.core.maths.targets import Target
from async_hfl.core.serialization import Plain, value
from async_hfl.core.vectors import HostVector, Vector
from async_hfl.core.weights import Layout, Weights


@value
class ResultEncoding:
    """The encoding of a job's result by its device, announced so that an accelerator can encode while it trains.

    The arguments are those of `core.compression.codec.encode_change`, whose base is the job's start weights.
    """

    kind: EncodingKind
    trained: int
    key: int
    memory: Vector | None
    gradient_key: int | None
    """The key of the gradient; None if a gradient does not travel encoded."""


@value
class TrainingJob:
    """One local training: `device.epochs` passes over the device's data, starting from `weights`."""

    job: JobId
    device: int
    weights: Weights
    seed: int
    """A 64-bit number that determines the order of the mini-batches, and nothing else."""
    generation: int = 0
    """Number of jobs given to the device before. Determines its samples if its data changes over time."""
    encoding: ResultEncoding | None = None
    """The encoding that will probably be asked for. It changes no result, only when the result is encoded."""


@value
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
    """Gradient of the regularised local loss at the final weights, if the method needs it."""


@value
class Evaluation:
    metric: float
    loss: float
    details: Mapping[str, float] = field(default_factory=dict)


class Learner(Protocol):
    """A task with everything that is needed to train and evaluate its model."""

    @property
    def layout(self) -> Layout: ...

    @property
    def gradient_size(self) -> int:
        """Length of a gradient: the number of trained weights, which come first in the weight vector."""

    @property
    def model_bytes(self) -> int:
        """M: bytes of one model on a link."""

    @property
    def target(self) -> Target: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """Number of training samples of each device."""

    def initial_weights(self, seed: int) -> Weights: ...

    def compile(self) -> None:
        """Prepare everything that is not training, so that a clock started afterwards measures training alone."""

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        """Return the results in the order of the jobs, each as if it had been trained alone."""

    def evaluate(self, weights: Weights) -> Evaluation: ...

    def evaluate_by_device(self, weights: Weights) -> list[Evaluation | None]:
        """Evaluate on each device's own samples; None for a device without samples. Empty if there is no such data."""


@dataclass(frozen=True, slots=True)
class PrefetchPolicy:
    """Conditions for training jobs before one of their results is due.

    They count jobs and calls and never look at the clock, so that a run can be repeated.
    """

    min_jobs: int
    """Least number of jobs that wait for training."""
    min_share: float
    """Their least share of all jobs whose results have not been used."""
    max_calls: int
    """Largest number of calls in progress at a time."""
    in_order: bool = False
    """True if the learner completes calls and evaluations one after another, in the order in which they began."""


@runtime_checkable
class Remembering(Protocol):
    """A learner that keeps something of a device's job for its next one, which a checkpoint has to store."""

    def memory(self) -> Plain:
        """Return it as plain data."""

    def remember(self, memory: Plain) -> None:
        """Continue from stored data."""


Results: TypeAlias = Callable[[], list[TrainingResult]]
"""Waits for the results and returns them in the order of the jobs; to be called once."""


@runtime_checkable
class AsyncLearner(Protocol):
    """A learner that trains and evaluates while its caller does something else."""

    @property
    def prefetch(self) -> PrefetchPolicy | None:
        """The conditions for training jobs early; None if that gains nothing."""

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        """Begin `train_many` and return at once."""

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        """Begin `evaluate` and return at once; the function returned waits for the answer and is called once."""


@runtime_checkable
class Accelerated(Protocol):
    """A learner that may do all its work on an accelerator."""

    @property
    def on_accelerator(self) -> bool:
        """True if vectors stay on the accelerator, too."""

    def to_device(self, vector: HostVector) -> Vector:
        """Return a stored vector where this learner keeps its vectors."""
