"""Log-normal noise, drawn for every transfer: measured Wi-Fi delays have long tails.

A factor is a function of (seed, name, source, number), where the source is a link or a device and the number counts its
draws. It does not depend on other draws or their order, and a checkpoint needs only the counters.
"""

from __future__ import annotations

import math
from array import array
from typing import final

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import UInt64s, scramble, scramble_many, stream_seed
from async_hfl.core.serialization import Plain

TRANSFER_SIGMA = 0.3
"""Spread with which the mean time and the last end of eight concurrent transfers agree with ns-3. Real networks vary
more."""
_HALF = 2.0**-32
_LOW = (1 << 32) - 1
_TURN = 2.0 * math.pi


@final
class NoiseFactors:
    """Factors exp(sigma x - sigma^2 / 2) with x standard normal. Their mean is 1, so expected delays do not change."""

    def __init__(self, seed: int, name: str, sources: int, sigma: float) -> None:
        if not (math.isfinite(sigma) and sigma >= 0.0):
            raise SettingsError(f"noise: sigma = {sigma} is not a number, 0 or more")
        self.sigma = sigma
        self._seed = stream_seed(seed, "noise", name)
        self._drawn = array("I", bytes(4 * sources))
        """Number of factors that each source has drawn."""

    def next(self, source: int) -> float:
        """Draw the next factor of a link or a device."""
        sigma = self.sigma
        if sigma == 0.0:
            return 1.0
        number = self._drawn[source]
        self._drawn[source] = number + 1
        bits = scramble(scramble(self._seed ^ source) ^ number)
        # Box-Muller; each half of the bits gives one of its two numbers, and the first is never 0.
        radius = math.sqrt(-2.0 * math.log(((bits >> 32) + 0.5) * _HALF))
        return math.exp(sigma * (radius * math.cos(_TURN * ((bits & _LOW) * _HALF))) - 0.5 * sigma * sigma)

    def peek(self, sources: UInt64s, numbers: UInt64s) -> Floats:
        """Return the factors of the given sources and numbers, broadcast, without advancing any counter."""
        seeds = np.uint64(self._seed) ^ np.atleast_1d(np.asarray(sources, np.uint64))
        bits = scramble_many(scramble_many(seeds) ^ np.atleast_1d(np.asarray(numbers, np.uint64)))
        radius = np.sqrt(-2.0 * np.log(((bits >> np.uint64(32)).astype(np.float64) + 0.5) * _HALF))
        normal = radius * np.cos(_TURN * ((bits & np.uint64(_LOW)).astype(np.float64) * _HALF))
        factors: Floats = np.exp(self.sigma * normal - 0.5 * self.sigma * self.sigma)
        return factors

    def snapshot(self) -> Plain:
        return np.frombuffer(self._drawn.tobytes(), np.uint32)

    def restore(self, data: Plain) -> None:
        self._drawn = array("I", np.ascontiguousarray(data, np.uint32).tobytes())
