"""The event queue, ordered by (time, sequence): events of the same time keep their order, on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappush

from async_hfl.core.serialization import Plain, from_plain, to_plain

Entry = tuple[float, int, int, object]
"""(time, sequence, node index, event)."""
SHELL = -1
"""The node index of events for the simulation itself."""


class EventQueue:
    """A heap of entries. The event loop pops them itself, which saves a method call per event."""

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.sequence = 0

    def push(self, at: float, node: int, what: object) -> int:
        self.sequence += 1
        heappush(self.heap, (at, self.sequence, node, what))
        return self.sequence

    def snapshot(self, chunk: int) -> Iterator[Plain]:
        """Yield parts of at most `chunk` entries, at least one part."""
        for start in range(0, max(len(self.heap), 1), chunk):
            entries = [[at, n, node, to_plain(what)] for at, n, node, what in self.heap[start : start + chunk]]
            yield {"sequence": self.sequence, "entries": entries}

    def restore(self, parts: list[Plain]) -> None:
        self.sequence = parts[0]["sequence"]
        self.heap = [(at, n, node, from_plain(what)) for part in parts for at, n, node, what in part["entries"]]
        heapify(self.heap)
