"""The machines of a fault simulation: each runs one node, and has a disk that survives most crashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from async_hfl.core.identifiers import Address
from async_hfl.core.serialization import Plain
from async_hfl.nodes.reliability.delivery import ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

CrashPoint = Literal["before_commit", "after_commit", "between_effects"]
"""The moment at which a node crashes while it handles an event. before_commit: the event is not in the log.
after_commit: the event is in the log, but its records are not written and no effect is performed. between_effects: its
records are written, and some of its effects are performed."""


@dataclass(slots=True)
class MemoryDisk:
    """A disk in memory: what was committed survives a crash, what was not is discarded. Values are plain data, so
    that nothing is shared between a node and its successor."""

    snapshot: Plain = None
    log: list[Plain] = field(default_factory=list)
    records: int = 0
    _log: list[Plain] = field(default_factory=list)
    _records: int | None = None

    def append(self, event: Plain) -> None:
        self._log.append(event)

    def retract(self) -> None:
        self._log.pop()

    def wrote(self, records: int) -> None:
        self._records = records

    def commit(self) -> None:
        self.log += self._log
        if self._records is not None:
            self.records = self._records
        self.discard_uncommitted()

    def discard_uncommitted(self) -> None:
        self._log, self._records = [], None

    def replace(self, snapshot: Plain) -> None:
        self.discard_uncommitted()  # the snapshot contains it
        self.snapshot, self.log, self.records = snapshot, [], 0

    def read(self) -> tuple[Plain, list[Plain], int]:
        self.discard_uncommitted()
        return self.snapshot, list(self.log), self.records


class Host:
    def __init__(self, address: Address, make: Callable[[int], ReliableNode]) -> None:
        """`make` returns a new node, given its incarnation."""
        self.address = address
        self.up = True
        self.process = 0
        """Number of the process that runs the node. It grows with each crash; timers and computations of an earlier
        process are void."""
        self.crash_point: CrashPoint | None = None
        """The point at which the node crashes while it handles its next event; None: it does not crash."""
        self.handled = 0
        self.stopped = False
        self.disk_lost = False
        self._make = make
        self._incarnation = 1
        self.install()

    def install(self) -> None:
        """Begin with an empty disk and a new incarnation."""
        incarnation = self._incarnation
        # A fenced gateway increments its incarnation itself: a new one must be far from all of those.
        self._incarnation += 1_000_000
        self.disk = MemoryDisk()
        self.node = DurableNode(lambda: self._make(incarnation), self.disk)
