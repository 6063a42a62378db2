"""Random outages: alternating up and down times of devices, links and gateways.

A draw is a function of (seed, source, number), as the noise of transfers is. It depends on no other draw, and a
checkpoint needs only the number, which is stored in the next scheduled change. A run starts in the steady state: a
source is down with probability down / (up + down), and the remainder of its first interval is drawn accordingly, so
that the share of sources that are down is the same from the first second on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import scramble

Distribution = Literal["exponential", "log-normal"]
FIRST_DRAW = 4
"""The draws before this one decide the initial state of a source."""
_UNIT = 2.0**-53
_TURN = 2.0 * math.pi


@dataclass(frozen=True, slots=True)
class OnOff:
    """Mean seconds up and down, and their distribution."""

    up_s: float
    down_s: float
    distribution: Distribution = "exponential"
    sigma: float = 1.0
    """Standard deviation of the logarithm, for the log-normal distribution."""

    def __post_init__(self) -> None:
        for name in ("up_s", "down_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SettingsError(f"outages: {name} = {value} is not a positive number of seconds")
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise SettingsError(f"outages: spread = {self.sigma} is not a number, 0 or more")

    def first(self, seed: int, source: int) -> tuple[bool, float]:
        """Return (True if the source is up at the start, seconds until that changes)."""
        up = _uniform(seed, source, 0) >= self.down_s / (self.up_s + self.down_s)
        mean = self.up_s if up else self.down_s
        if self.distribution == "exponential":
            return up, self._drawn(mean, seed, source, 1)  # memoryless: the remainder is distributed like the whole
        # A random moment falls into a long interval more often, in proportion to its length, which shifts the
        # logarithm.
        whole = math.exp(self.sigma * self.sigma) * self._drawn(mean, seed, source, 1)
        return up, whole * _uniform(seed, source, 3)

    def seconds(self, up: bool, seed: int, source: int, number: int) -> float:
        """Return the length of the interval with this number (from FIRST_DRAW on)."""
        return self._drawn(self.up_s if up else self.down_s, seed, source, number)

    def _drawn(self, mean: float, seed: int, source: int, number: int) -> float:
        one = _uniform(seed, source, number)
        if self.distribution == "exponential":
            return -mean * math.log1p(-one)
        radius = math.sqrt(-2.0 * math.log1p(-one))
        normal = radius * math.cos(_TURN * _uniform(seed, source, -1 - number))
        return mean * math.exp(self.sigma * normal - 0.5 * self.sigma * self.sigma)


def _uniform(seed: int, source: int, number: int) -> float:
    """Return a uniform number in [0, 1)."""
    return (scramble(scramble(seed ^ source) ^ (number & 0xFFFFFFFFFFFFFFFF)) >> 11) * _UNIT
