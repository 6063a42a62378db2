"""The engine's input, options and interface. Importing this module does not import JAX."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import PrefetchPolicy, ResultEncoding, Results
from async_hfl.core.vectors import DeviceVector
from async_hfl.core.weights import Weights
from async_hfl.learning.engine.batches import RowNumbers

Precision: TypeAlias = Literal["float32", "tf32", "bf16"]
"""Precision of matrix products on accelerators; their sums are always float32. bf16 also applies between layers."""
PlanName: TypeAlias = Literal["sequential", "vmap"]
PrefetchChoice: TypeAlias = Literal["auto", "on", "off"]
VectorsChoice: TypeAlias = Literal["auto", "device", "host"]
TorchDevice: TypeAlias = Literal["auto", "cpu", "cuda"]


@final
class LiveGradients:
    """The gradients of one learner that are still referenced, where vectors stay on an accelerator.

    The engine multiplies the gradients of new jobs with all of them. Learners that share an engine have one each.
    """

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        """Multiplied by a job's steps, the divisor that turns its change of the weights into a mean gradient."""
        self._references: list[weakref.ref[DeviceVector]] = []

    def vectors(self) -> list[DeviceVector]:
        """Return the gradients that are still referenced, in the order in which they were added."""
        found = [vector for reference in self._references if (vector := reference()) is not None]
        self._references = [weakref.ref(vector) for vector in found]
        return found

    def add(self, vectors: Sequence[DeviceVector]) -> None:
        self._references += [weakref.ref(vector) for vector in vectors]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A training job as the engine takes it."""

    weights: Weights
    rows: RowNumbers
    """Rows of the training set."""
    seed: int
    coefficients: npt.NDArray[np.float32]
    max_samples: int
    """The most samples of any job of the same learner. It determines the program; other jobs do not."""
    live: LiveGradients | None = None
    """The gradients with which the job's gradient is multiplied; None if no products are needed."""
    encoding: ResultEncoding | None = None


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The user's choices of how jobs are trained. They change results by rounding at most."""

    memory: int = 8 << 30
    """Bytes that a group may take on a device. A fixed number, not the free memory, so that runs can be repeated."""
    precision: Precision = "float32"
    plan: PlanName | None = None
    """None: sequential on a CPU, vmap on accelerators."""
    vectors: VectorsChoice = "host"
    """Location of models and gradients between jobs. `task_learner.decide_vectors` decides for auto."""
    prefetch: PrefetchChoice = "auto"
    """Training of jobs before their results are due. auto: on a CPU, where no result changes, and if vectors stay on an
    accelerator, where results change by rounding."""
    torch_device: TorchDevice = "cpu"
    """The device that trains a task in PyTorch, which has no engine."""


class Trainer(Protocol):
    """The part of an engine that a learner needs; several runs may share one engine."""

    def compile(self, max_samples: int, jobs: int) -> None:
        """Prepare for jobs of at most `max_samples` samples, of which at most `jobs` come at once."""
        ...

    @property
    def prefetch(self) -> PrefetchPolicy | None:
        """The conditions under which `begin` should be called early; None: never."""
        ...

    def begin(self, requests: Sequence[Request]) -> Results:
        """Start training and return while the devices work."""
        ...
