"""How much of a transfer may be under way: enough to fill the link, little enough that it is gone in a moment.

gRPC, the kernel and the boxes between take megabytes off a sender's hands. On a link of 20 kB/s that is minutes in
which nobody knows whether anything moves, and heartbeats wait behind it. So the receiver says what has arrived, and the
sender keeps about `_QUEUE_S` of what the link carries under way beyond what the round trip itself needs.
"""

from __future__ import annotations

from collections import deque
from math import inf

FIRST = 64 * 1024
_LEAST, _MOST = 16 * 1024, 8 * 2**20
_QUEUE_S = 0.25
_LEAST_CHUNK, _MOST_CHUNK = 8 * 1024, 512 * 1024
_FORGET = 0.9


class Window:
    def __init__(self, start: int, size: int = FIRST) -> None:
        """`start`: the offset that the transfer goes on from; `size`: what the last one to that peer ended with."""
        self.size = size
        self.arrived = start
        self._flight: deque[tuple[int, int, float]] = deque()
        """Of each chunk under way: where it ends, what had arrived when it was sent, and when that was."""
        self._quickest_s = inf
        self._rate = 0.0

    def room(self, sent: int) -> int:
        """How many bytes may go now, after so many. No crumbs: a chunk waits until there is room for all of it."""
        chunk = min(max(self.size // 4, _LEAST_CHUNK), _MOST_CHUNK)
        under_way = sent - self.arrived
        return chunk if under_way <= 0 or self.size - under_way >= chunk else 0

    def sent(self, upto: int, now: float) -> None:
        self._flight.append((upto, self.arrived, now))

    def acknowledged(self, upto: int, now: float) -> None:
        fresh = upto - self.arrived
        if fresh <= 0:
            return
        before, sent_at = self.arrived, now
        while self._flight and self._flight[0][0] <= upto:
            _, before, sent_at = self._flight.popleft()
        self.arrived = upto
        took_s = now - sent_at
        if took_s > 0:
            # What the link carried from the sending of that chunk to the word of its arrival.
            self._rate = max((upto - before) / took_s, _FORGET * self._rate)
        self._quickest_s = min(self._quickest_s, took_s)
        queued_s = took_s - self._quickest_s
        if queued_s < _QUEUE_S:
            self.size = min(self.size + fresh, _MOST)
        elif queued_s > 2 * _QUEUE_S:
            enough = int(self._rate * (self._quickest_s + _QUEUE_S))
            self.size = min(self.size, max(enough, _LEAST))
