"""How a group of jobs runs on a device: what the engine asks of a plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from async_hfl.core.device_vector import Vector
from async_hfl.core.learner import PrefetchPolicy
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.engine.backend import Array
from async_hfl.learning.engine.batches import BatchOrders
from async_hfl.learning.engine.compilation import Program
from async_hfl.learning.engine.device_data import Resident
from async_hfl.learning.engine.trainer import Request

QUEUED_GROUPS = 4
"""Groups handed to each device ahead of their results: none waits for work, a huge call takes bounded memory."""


@dataclass(frozen=True, slots=True)
class Group:
    device: int
    members: tuple[int, ...]
    """Numbers of the call's jobs."""
    places: int
    """What the program is made for; those beyond the members' hold nothing that counts."""
    steps: int
    """Per epoch, for which there is room in the orders."""
    shared: bool = False
    """All start from the same weights, which then travel once."""
    room: int = 0
    """The most samples that a job of these learners has, where that decides the program."""


class Traced(NamedTuple):
    """A program before it is compiled."""

    key: Hashable
    """Equal keys, equal programs."""
    function: Program
    arguments: tuple[Any, ...]
    """Shaped like those that it will be given."""


class Collected(NamedTuple):
    """Of one job."""

    weights: Weights
    loss: float
    """Sum over the samples of the last epoch, and ..."""
    squared_loss: float
    """... of the squares."""
    gradient: Vector | None


class Plan(Protocol):
    name: str
    places: int
    """Most jobs in a group."""
    ahead: PrefetchPolicy
    """When a call that nobody waits for yet is worth while."""

    def expected(self, room: int, jobs: int) -> list[Group]:
        """Groups, without members, whose programs the calls of a learner will need that has at most so many jobs at
        once, of so many samples."""
        ...

    def groups(self, requests: Sequence[Request]) -> Iterator[Group]:
        """In the order of dispatch."""
        ...

    def programs(self, group: Group) -> dict[str, Traced]:
        """What `run` calls, by the names it has for them."""
        ...

    def run(
        self,
        programs: Mapping[str, Program],
        group: Group,
        members: Sequence[Request],
        data: Resident,
        coefficients: npt.NDArray[np.float32],
        orders: BatchOrders,
        sizes: npt.NDArray[np.int32],
    ) -> Any:
        """Started, not done."""
        ...

    def collect(self, group: Group, outcome: Any) -> Iterator[Collected]:
        """Waits for what `run` gave; member by member."""
        ...


def collected_rows(outcome: tuple[Array, ...]) -> Iterator[Collected]:
    """Views of a group's arrays: whoever keeps one for long had better copy it."""
    weights, sums, *gradients = (np.asarray(part) for part in outcome)
    for place, (loss, squared_loss) in enumerate(sums.tolist()):
        yield Collected(frozen(weights[place]), loss, squared_loss, frozen(gradients[0][place]) if gradients else None)
