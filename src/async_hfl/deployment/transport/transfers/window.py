"""The send window of a transfer: large enough to fill the link, small enough to keep queues short.

gRPC, the kernel and middleboxes buffer megabytes. On a link of 20 kB/s that is minutes without any sign of progress,
and heartbeats wait behind it. So the receiver acknowledges every chunk, and the sender keeps no more bytes in flight
than the link carries in one round trip plus `_QUEUE_S`.
"""

from __future__ import annotations

from collections import deque
from math import inf

FIRST = 64 * 1024
_LEAST, _MOST = 16 * 1024, 8 * 2**20
_QUEUE_S = 0.25
_LEAST_CHUNK, _MOST_CHUNK = 8 * 1024, 512 * 1024
_RATE_DECAY = 0.9


class Window:
    def __init__(self, start: int, size: int = FIRST) -> None:
        """`start`: the offset that the transfer resumes from. `size`: the final window of the last transfer."""
        self.size = size
        self.arrived = start
        self._flight: deque[tuple[int, int, float]] = deque()
        """For each chunk in flight: its end, the bytes acknowledged when it was sent, and the time of sending."""
        self._quickest_s = inf
        self._rate = 0.0

    def room(self, sent: int) -> int:
        """Return the number of bytes that may be sent now: a whole chunk, or 0."""
        chunk = min(max(self.size // 4, _LEAST_CHUNK), _MOST_CHUNK)
        in_flight = sent - self.arrived
        return chunk if in_flight <= 0 or self.size - in_flight >= chunk else 0

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
            # The link's rate between the sending of that chunk and its acknowledgement.
            self._rate = max((upto - before) / took_s, _RATE_DECAY * self._rate)
        self._quickest_s = min(self._quickest_s, took_s)
        queued_s = took_s - self._quickest_s
        if queued_s < _QUEUE_S:
            self.size = min(self.size + fresh, _MOST)
        elif queued_s > 2 * _QUEUE_S:
            enough = int(self._rate * (self._quickest_s + _QUEUE_S))
            self.size = min(self.size, max(enough, _LEAST))
