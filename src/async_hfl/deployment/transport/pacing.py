"""B_j: a token bucket on payload bytes, one for each direction of a gateway."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from math import inf

from async_hfl.core.errors import SettingsError

_CHUNK_S = 0.25
_LEAST_CHUNK = 4096


class Bucket:
    """Whoever moves bytes takes tokens first, in the order of asking. It holds a second's worth at most, so that a
    pause is not paid twice and a burst stays a burst."""

    def __init__(self, bytes_per_s: float = inf) -> None:
        self._line = asyncio.Lock()
        self._tokens = 0.0
        self._filled_at: float | None = None
        self.rate = bytes_per_s

    @property
    def rate(self) -> float:
        """Bytes a second; infinite: no limit. May be set while bytes move."""
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
        """A chunk that does not make others wait for long."""
        return sys.maxsize if self._rate == inf else max(int(self._rate * _CHUNK_S), _LEAST_CHUNK)

    async def take(self, count: int) -> None:
        """Wait until so many bytes may move."""
        if self._rate == inf:
            return
        async with self._line:
            self.debit(count)
            while self._rate < inf and self._tokens < 0:
                # Woken at least every second, so that a new rate is felt soon.
                await asyncio.sleep(min(-self._tokens / self._rate, 1.0))
                self._fill()

    def debit(self, count: int) -> None:
        """Bytes that have moved already (small ones do not wait): those who come after pay for them."""
        if self._rate < inf:
            self._fill()
            self._tokens -= count

    def _fill(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._filled_at is not None:
            self._tokens = min(self._tokens + (now - self._filled_at) * self._rate, self._rate)
        self._filled_at = now


@dataclass(frozen=True, slots=True)
class Pacing:
    """B_j at a gateway's server."""

    down: Bucket = field(default_factory=Bucket)
    """From this server to those who dialled it."""
    up: Bucket = field(default_factory=Bucket)
