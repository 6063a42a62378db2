"""Things that go down and come back by chance: alternating up and down times, drawn anew each time.

A draw is a function of (seed, source, number), as the noise of transfers is: it depends on nothing else that was drawn,
and a checkpoint needs only the number, which travels with the change that is to come.

A run begins in the middle of things: a source is down with the chance down / (up + down), and what is left of its first
time is drawn accordingly, so that the share that is down is the same from the first second on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import scramble

Distribution = Literal["exponential", "log-normal"]
FIRST_DRAW = 4
"""The draws before it decide how a source begins."""
_UNIT = 2.0**-53
_TURN = 2.0 * math.pi


@dataclass(frozen=True, slots=True)
class OnOff:
    """Mean seconds up and down, and how they spread."""

    up_s: float
    down_s: float
    distribution: Distribution = "exponential"
    sigma: float = 1.0
    """log-normal: standard deviation of the logarithm."""

    def __post_init__(self) -> None:
        for name in ("up_s", "down_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SettingsError(f"outages: {name} = {value} is not a positive number of seconds")
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise SettingsError(f"outages: spread = {self.sigma} is not a number, 0 or more")

    @property
    def share_down(self) -> float:
        return self.down_s / (self.up_s + self.down_s)

    def first(self, seed: int, source: int) -> tuple[bool, float]:
        """(is it up at the start, seconds until that changes)."""
        up = _uniform(seed, source, 0) >= self.share_down
        mean = self.up_s if up else self.down_s
        if self.distribution == "exponential":
            return up, self._drawn(mean, seed, source, 1)  # has no memory: what is left is like the whole
        # One is more likely to fall into a long time than into a short one: by its length, which shifts the logarithm.
        whole = math.exp(self.sigma * self.sigma) * self._drawn(mean, seed, source, 1)
        return up, whole * _uniform(seed, source, 3)

    def seconds(self, up: bool, seed: int, source: int, number: int) -> float:
        """How long it stays so, by the draw of that number (from FIRST_DRAW on)."""
        return self._drawn(self.up_s if up else self.down_s, seed, source, number)

    def _drawn(self, mean: float, seed: int, source: int, number: int) -> float:
        one = _uniform(seed, source, number)
        if self.distribution == "exponential":
            return -mean * math.log1p(-one)
        radius = math.sqrt(-2.0 * math.log1p(-one))
        normal = radius * math.cos(_TURN * _uniform(seed, source, -1 - number))
        return mean * math.exp(self.sigma * normal - 0.5 * self.sigma * self.sigma)


def _uniform(seed: int, source: int, number: int) -> float:
    """In [0, 1)."""
    return (scramble(scramble(seed ^ source) ^ (number & 0xFFFFFFFFFFFFFFFF)) >> 11) * _UNIT
