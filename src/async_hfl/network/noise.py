"""Log-normal noise, drawn anew for every transfer: measured Wi-Fi delays have long tails.

A factor is a function of (seed, name, index, number): which link or device, and its how-manieth draw. So it does not
depend on what else was drawn or in which order, and a checkpoint needs nothing but the counters.
"""

from __future__ import annotations

import math
from array import array
from typing import final

import numpy as np

from async_hfl.core.errors import SettingsError
from async_hfl.core.plain import Plain
from async_hfl.core.policies import Floats
from async_hfl.core.randomness import UInt64s, keyed_uniform, scramble, stream_seed

TRANSFER_SIGMA = 0.3
"""How unequal stations fare that share the air in ns-3: with it, both the mean and the last of eight transfers are
right. Real networks vary more."""
_UNIT = 2.0**-53
_TURN = 2.0 * math.pi


def check_sigma(sigma: float) -> None:
    if not (math.isfinite(sigma) and sigma >= 0.0):
        raise SettingsError(f"noise: sigma = {sigma} is not a number, 0 or more")


@final
class NoiseFactors:
    """Factors exp(sigma x - sigma^2 / 2), x standard normal: their mean is 1, so expectations stay what they were."""

    def __init__(self, seed: int, name: str, sources: int, sigma: float) -> None:
        check_sigma(sigma)
        self.sigma = sigma
        self._seed = stream_seed(seed, "noise", name)
        self._drawn = array("Q", bytes(8 * sources))
        """How many factors each source has given."""

    def next(self, source: int) -> float:
        """The next factor of a link, or of a device."""
        number = self._drawn[source]
        self._drawn[source] = number + 1
        if self.sigma == 0.0:
            return 1.0
        key = scramble(scramble(self._seed ^ source) ^ (2 * number))
        other = scramble(scramble(self._seed ^ source) ^ (2 * number + 1))
        # Box and Muller; 1 - u is never 0.
        normal = math.sqrt(-2.0 * math.log(1.0 - (key >> 11) * _UNIT)) * math.cos(_TURN * ((other >> 11) * _UNIT))
        return math.exp(self.sigma * normal - 0.5 * self.sigma * self.sigma)

    def peek(self, sources: UInt64s, numbers: UInt64s) -> Floats:
        """The factors of those sources and numbers, by broadcasting; counts nothing. For figures and expectations."""
        seeds = np.uint64(self._seed) ^ np.atleast_1d(np.asarray(sources, np.uint64))
        twice = np.uint64(2) * np.atleast_1d(np.asarray(numbers, np.uint64))
        radius = np.sqrt(-2.0 * np.log1p(-keyed_uniform(seeds, twice)))
        normal = radius * np.cos(_TURN * keyed_uniform(seeds, twice + np.uint64(1)))
        factors: Floats = np.exp(self.sigma * normal - 0.5 * self.sigma * self.sigma)
        return factors

    def snapshot(self) -> Plain:
        return np.frombuffer(self._drawn.tobytes(), np.uint64)

    def restore(self, data: Plain) -> None:
        self._drawn = array("Q", np.ascontiguousarray(data, np.uint64).tobytes())
