"""The machines of a fault simulation, and what came out of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from async_hfl.core.identifiers import Address
from async_hfl.faults.memory_disk import MemoryDisk
from async_hfl.nodes.reliability.delivery import ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

CrashPoint = Literal["torn", "logged", "partly"]
"""How a node dies over its next event: before it is in the log; when it is, and nothing else; when its records are, and
some of its effects have left."""


class Host:
    """A machine with one node on it."""

    def __init__(self, address: Address, make: Callable[[int], ReliableNode]) -> None:
        """`make` is given the incarnation."""
        self.address = address
        self.up = True
        self.life = 0
        """Grows with every crash: what a former life had under way is gone."""
        self.doom: CrashPoint | None = None
        self.handled = 0
        self.stopped = False
        self.disk_lost = False
        self._make = make
        self._incarnation = 1
        self.start_anew()

    def start_anew(self) -> None:
        """With an empty disk."""
        incarnation = self._incarnation
        # A gateway that is told to begin anew counts on from its own: a drawn one must be far from all of those.
        self._incarnation += 1_000_000
        self.disk = MemoryDisk()
        self.node = DurableNode(lambda: self._make(incarnation), self.disk)


@dataclass(frozen=True, slots=True)
class Outcome:
    events: int
    crashes: int
    torn: int
    disks_lost: int
    lost: int
    outages: int
    resumed: int
    declared_lost: int
    jobs: int
    uploads: int
    acknowledged: int
    updates_lost: int
    updates_found: int
    updates_late: int
    virtual_s: float
