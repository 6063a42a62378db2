"""Enforcement of a gateway's bandwidth limit B_j: a token bucket of payload bytes for each direction."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf
from weakref import WeakValueDictionary

from async_hfl.core.errors import SettingsError

_CHUNK_S = 0.25
_LEAST_CHUNK = 4096


class Bucket:
    """A token bucket. It holds at most one second's tokens, which bounds bursts. Peers take turns: each has one place
    in the queue, however many transfers it has."""

    def __init__(self, bytes_per_s: float = inf) -> None:
        self._queue = asyncio.Lock()
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._tokens = 0.0
        self._filled_at: float | None = None
        self.rate = bytes_per_s

    @property
    def rate(self) -> float:
        """Bytes per second, infinite without a limit. May be changed during transfers."""
        return self._rate

    @rate.setter
    def rate(self, bytes_per_s: float) -> None:
        if not bytes_per_s > 0:
            raise SettingsError(f"gateway.bandwidth: {bytes_per_s} bytes/s; it must be above 0, or `unlimited`")
        self._rate = bytes_per_s
        self._tokens = 0.0 if bytes_per_s == inf else bytes_per_s
        self._filled_at = None

    @property
    def most_at_once(self) -> int:
        """Size of the largest chunk that does not delay others for long."""
        return sys.maxsize if self._rate == inf else max(int(self._rate * _CHUNK_S), _LEAST_CHUNK)

    async def take(self, count: int, peer: Hashable = None) -> None:
        """Wait until `count` bytes may be sent."""
        if self._rate == inf:
            return
        turn = self._turns.setdefault(peer, asyncio.Lock())
        async with turn, self._queue:
            self.debit(count)
            while self._rate < inf and self._tokens < 0:
                # Wake up at least every second, so that a new rate takes effect soon.
                await asyncio.sleep(min(-self._tokens / self._rate, 1.0))
                self.debit(0)

    async def settle(self, peer: Hashable) -> None:
        """Wait if small packets were charged for that exceed what is allowed by far."""
        if self._rate < inf and self._tokens < -self._rate:
            await self.take(0, peer)

    def debit(self, count: int) -> None:
        """Charge for bytes without waiting, for small packets; later senders wait instead."""
        if self._rate == inf:
            return
        now = asyncio.get_running_loop().time()
        if self._filled_at is not None:
            self._tokens = min(self._tokens + (now - self._filled_at) * self._rate, self._rate)
        self._filled_at = now
        self._tokens -= count


@dataclass(frozen=True, slots=True)
class Pacing:
    """The buckets of a server: down to its peers, and up from them."""

    down: Bucket = field(default_factory=Bucket)
    up: Bucket = field(default_factory=Bucket)
