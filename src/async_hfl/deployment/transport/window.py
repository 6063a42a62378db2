"""How much of a transfer may be under way: enough to fill the link, little enough that it is gone in a moment.

gRPC, the kernel and the boxes between take megabytes off a sender's hands. On a link of 20 kB/s that is minutes in
which nobody knows whether anything moves, and heartbeats wait behind it. So the receiver says what has arrived, and the
sender keeps about `_QUEUE_S` of the link's rate under way beyond what the round trip itself needs.
"""

from __future__ import annotations

from collections import deque
from math import inf

FIRST = 64 * 1024
_LEAST, _MOST = 16 * 1024, 8 * 2**20
_QUEUE_S = 0.25
_LEAST_CHUNK, _MOST_CHUNK = 8 * 1024, 512 * 1024


class Window:
    def __init__(self, start: int, size: int = FIRST) -> None:
        """`start`: the offset that the transfer goes on from; `size`: what the last one to that peer ended with."""
        self.size = size
        self.arrived = start
        self._flight: deque[tuple[int, float]] = deque()
        self._quickest_s = inf
        self._shrunk_until = start

    def room(self, sent: int) -> int:
        """How many bytes may go now, after so many."""
        return min(self.size - (sent - self.arrived), max(self.size // 4, _LEAST_CHUNK), _MOST_CHUNK)

    def sent(self, upto: int, now: float) -> None:
        self._flight.append((upto, now))

    def acknowledged(self, upto: int, now: float) -> None:
        fresh = upto - self.arrived
        took_s = 0.0
        while self._flight and self._flight[0][0] <= upto:
            took_s = now - self._flight.popleft()[1]
        if fresh <= 0:
            return
        self.arrived = upto
        self._quickest_s = min(self._quickest_s, took_s)
        queued_s = took_s - self._quickest_s
        if queued_s < _QUEUE_S:
            self.size = min(self.size + fresh, _MOST)
        elif queued_s > 2 * _QUEUE_S and upto > self._shrunk_until:
            # Once for all that is under way: it was sent before anybody knew.
            self._shrunk_until = self._flight[-1][0] if self._flight else upto
            self.size = max(self.size // 2, _LEAST)
