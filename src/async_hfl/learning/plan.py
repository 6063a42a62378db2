"""How a group of jobs runs on a device: what the engine asks of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import Ahead
from async_hfl.core.weights import Weights
from async_hfl.learning.backend import Array
from async_hfl.learning.compilation import Program
from async_hfl.learning.resident import Resident
from async_hfl.learning.trainer import Request

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
    """Per epoch, likewise."""
    shared: bool = False
    """All start from the same weights, which then travel and lie on the device once."""


class Plan(Protocol):
    name: str
    places: int
    """Most jobs in a group."""
    ahead: Ahead
    """When a call that nobody waits for yet is worth while."""

    def expected(self, room: int, jobs: int) -> list[Group]:
        """Groups, without members, whose programs the calls of a learner will need that has at most so many jobs at
        once, of so many samples."""
        ...

    def groups(self, requests: Sequence[Request]) -> Iterator[Group]:
        """In the order of dispatch."""
        ...

    def program(self, group: Group) -> Program:
        """(data, coefficients, starts, orders, sizes) -> weights, loss sums, and gradients where asked for."""
        ...

    def like_starts(self, group: Group) -> Any:
        """The form in which start weights reach the program."""
        ...

    def starts(self, group: Group, weights: Sequence[Weights]) -> Any: ...

    def run(
        self,
        program: Program,
        group: Group,
        data: Resident,
        coefficients: npt.NDArray[np.float32],
        starts: Any,
        orders: npt.NDArray[np.int32],
        sizes: npt.NDArray[np.int32],
    ) -> tuple[Array, ...]:
        """Started, not done; arrays that `np.asarray` will wait for."""
        ...
