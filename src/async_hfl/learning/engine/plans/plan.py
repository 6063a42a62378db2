"""The base class of plans: the ways in which a group of jobs runs on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import PrefetchPolicy
from async_hfl.core.vectors import Vector
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.engine.batches import BatchOrders
from async_hfl.learning.engine.compilation import Program
from async_hfl.learning.engine.device_data import DeviceSamples
from async_hfl.learning.engine.local_training import LocalTraining
from async_hfl.learning.engine.recipe import StaticHyperparameters
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model

QUEUED_GROUPS = 4
"""Groups enqueued on each device before their results are read: no device is idle, and memory stays bounded."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs of a call that run together on one device."""

    device: int
    members: tuple[int, ...]
    """Numbers of the call's jobs."""
    places: int
    """Jobs for which the program is compiled. Places without a member are padding."""
    steps: int
    """Steps per epoch for which the orders have room."""
    same_start: bool = False
    """True if all members start from the same weights, which are then transferred once."""
    max_samples: int = 0
    """The most samples of a job of these learners, where that determines the program."""


class Traced(NamedTuple):
    """A program before it is compiled."""

    key: Hashable
    """Equal keys mean equal programs."""
    function: Program
    arguments: tuple[Any, ...]
    """Arguments of the right shapes."""


class PlanSetup(NamedTuple):
    """The model and data of an engine, its devices and options."""

    model: Model
    objective: Objective
    static: StaticHyperparameters
    data: DeviceSamples
    """The training set on the first device."""
    window: int
    devices: Sequence[Any]
    options: EngineOptions


class GroupInput(NamedTuple):
    """Everything that a plan needs to run a group."""

    group: Group
    programs: Mapping[str, Program]
    members: Sequence[Request]
    data: DeviceSamples
    coefficients: npt.NDArray[np.float32]
    """By place."""
    orders: BatchOrders
    sizes: npt.NDArray[np.int32]
    """Number of samples by place; 0 for padding."""


class JobOutput(NamedTuple):
    """The result of one job."""

    weights: Weights
    loss: float
    """Sum of the losses over the samples of the last epoch."""
    squared_loss: float
    """Sum of the squared losses."""
    gradient: Vector | None


class Plan(ABC):
    """A way to run groups of jobs on the devices of this process."""

    name: ClassVar[str]
    places: int
    """The most jobs in a group."""
    prefetch: PrefetchPolicy
    """The conditions under which training before a result is due is worthwhile."""

    def __init__(self, setup: PlanSetup) -> None:
        self._model = setup.model
        self._static = setup.static
        self._data = setup.data
        self._devices = setup.devices
        self._train = LocalTraining(setup.model, setup.objective, setup.static, setup.window)

    @abstractmethod
    def expected(self, max_samples: int, jobs: int) -> list[Group]:
        """Return groups, without members, whose programs a learner with at most this many jobs at once will need."""

    @abstractmethod
    def groups(self, requests: Sequence[Request]) -> Iterator[Group]:
        """Divide a call into groups, in the order in which they are started."""

    @abstractmethod
    def programs(self, group: Group) -> dict[str, Traced]:
        """Return the programs that `run` calls, by name."""

    @abstractmethod
    def run(self, inputs: GroupInput) -> Any:
        """Start a group and return what `collect` takes, without waiting."""

    def collect(self, output: Any) -> Iterator[JobOutput]:
        """Wait for a group and yield the result of each place. Vectors are views of the group's arrays."""
        weights, sums, *gradients = (np.asarray(part) for part in output)
        for place, (loss, squared_loss) in enumerate(sums.tolist()):
            gradient = frozen(gradients[0][place]) if gradients else None
            yield JobOutput(frozen(weights[place]), loss, squared_loss, gradient)
