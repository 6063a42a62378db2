"""What the engine takes and what may be chosen of it. Importing this does not import JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import PrefetchPolicy, Results, TrainingResult
from async_hfl.core.weights import Weights
from async_hfl.learning.engine.batches import RowNumbers
from async_hfl.learning.engine.on_device.kin import Kin

Precision: TypeAlias = Literal["float32", "tf32", "bf16"]
"""Of matrix products on accelerators, sums float32 in all of them; bf16: of all that lies between the layers, too."""
PlanName: TypeAlias = Literal["loop", "stack"]
AheadChoice: TypeAlias = Literal["auto", "on", "off"]
VectorsChoice: TypeAlias = Literal["auto", "card", "host"]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A training job as the engine takes it."""

    weights: Weights
    rows: RowNumbers
    """Of the training set."""
    seed: int
    coefficients: npt.NDArray[np.float32]
    room: int
    """The most samples any job of the same learner has: decides the program, so that no other job does."""
    kin: Kin | None = None
    """Whose gradients the job's will be multiplied with, where vectors stay on an accelerator; None: nobody's."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What a user may choose of how jobs are trained; what is trained does not depend on it, but for rounding."""

    memory: int = 8 << 30
    """Bytes that a group may take on a device: fixed, never what happens to be free, so that runs repeat."""
    precision: Precision = "float32"
    plan: PlanName | None = None
    """None: loop on CPU, stack on accelerators."""
    vectors: VectorsChoice = "host"
    """Where models and gradients lie between jobs; auto is the learner's to decide (`task_learner.settled`)."""
    ahead: AheadChoice = "auto"
    """May training begin before a result is due? auto: on CPU, where it does not touch any result, and where vectors
    stay on an accelerator, where it is a matter of rounding."""


class Trainer(Protocol):
    """What a learner needs of an engine; several runs may share one."""

    def compile(self, room: int, jobs: int) -> None:
        """Be ready for jobs of at most `room` samples, of which at most `jobs` come at once."""
        ...

    def train(self, requests: Sequence[Request]) -> list[TrainingResult]: ...

    @property
    def ahead(self) -> PrefetchPolicy | None:
        """When `begin` is worth while; None: never."""
        ...

    def begin(self, requests: Sequence[Request]) -> Results:
        """As `train`, but it returns while the devices work."""
        ...
