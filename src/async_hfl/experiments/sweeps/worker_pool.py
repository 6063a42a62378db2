"""Who does the work of a sweep: members are given runs and tell what becomes of them. Processes, or Ray's actors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from queue import Queue
from typing import Any, Protocol

from async_hfl.experiments.sweeps.work import Assignment


@dataclass(frozen=True, slots=True)
class Message:
    """From a member: the news of a run (as `work.News` is written), {"idle": true}, or {"died": reason}."""

    member: int
    data: dict[str, Any]


Inbox = Queue[Message]


@dataclass(frozen=True, slots=True)
class Shape:
    """How many members, and how many runs each has going on at once, sharing its engine."""

    members: int
    width: int


class Member(Protocol):
    def give(self, assignments: Sequence[Assignment], width: int) -> None: ...
    def pause(self) -> None:
        """Checkpoint what is going on, soon."""

    def stop(self) -> None:
        """Go, whatever is going on."""


class WorkerPool(Protocol):
    def shape(self, runs: int) -> Shape:
        """For so many runs."""

    def hire(self, number: int, shape: Shape, inbox: Inbox) -> Member:
        """The member's messages go to the inbox under this number."""

    def close(self) -> None: ...
