"""Events in order of (time, sequence): two at the same time come out in the order they went in, on every machine."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from async_hfl.core.plain import Plain, from_plain, to_plain

Entry = tuple[float, int, int, object]
"""at, sequence, node index, what happens."""


class EventQueue:
    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.sequence = 0

    def push(self, at: float, node: int, what: object) -> int:
        self.sequence += 1
        heappush(self.heap, (at, self.sequence, node, what))
        return self.sequence

    def pop(self) -> Entry:
        return heappop(self.heap)

    def __len__(self) -> int:
        return len(self.heap)

    def snapshot(self) -> Plain:
        return {"sequence": self.sequence, "heap": [[at, n, node, to_plain(what)] for at, n, node, what in self.heap]}

    def restore(self, data: Plain) -> None:
        self.sequence = data["sequence"]
        self.heap = [(at, n, node, from_plain(what)) for at, n, node, what in data["heap"]]
        heapify(self.heap)
