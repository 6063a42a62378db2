"""Selection in a given order until the gateway's bandwidth is full, skipping devices that do not fit.

Policies that rank devices share it. A *place* is a device's index among the candidates. Borderline cases are decided by
an exact sum, so that the result does not depend on the order of addition.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.policies import Selection, SelectionProblem
from async_hfl.core.randomness import keyed_uniform

_ROUNDING = 1e-9


class FreeBandwidth:
    """The bandwidth that is left, for a limited number of devices (mutable, local to one call)."""

    __slots__ = ("_surely_fits", "_surely_not", "capacity", "most", "taken", "used")

    def __init__(self, capacity: float, most: int | None = None) -> None:
        self.capacity = capacity
        self.most = sys.maxsize if most is None else most
        self.taken: list[float] = []
        self.used = 0.0
        self._surely_fits, self._surely_not = capacity * (1.0 - _ROUNDING), capacity * (1.0 + _ROUNDING)

    def fits(self, rate: float) -> bool:
        """Return True if a device with this rate fits."""
        total = self.used + rate
        if not self.capacity > 0.0 or len(self.taken) >= self.most or total > self._surely_not:
            return False
        return total <= self._surely_fits or math.fsum((*self.taken, rate)) <= self.capacity

    def take(self, rate: float) -> bool:
        """Take this rate if it fits; return True if it does."""
        if not self.fits(rate):
            return False
        self.taken.append(rate)
        self.used += rate
        return True

    def full_for(self, lightest: float) -> bool:
        """Return True if not even the smallest rate fits."""
        full = len(self.taken) >= self.most or not self.capacity > 0.0
        return full or self.used + lightest > self._surely_not

    def copy(self) -> FreeBandwidth:
        other = FreeBandwidth(self.capacity, self.most)
        other.taken, other.used = self.taken.copy(), self.used
        return other


def fill(rates: Floats, order: Iterable[int], room: FreeBandwidth) -> list[int]:
    """Take devices in this order until none fits; return their places."""
    if len(rates) == 0:
        return []
    lightest, rate_of = float(rates.min()), rates.tolist()
    chosen: list[int] = []
    for place in order:
        if room.full_for(lightest):
            break
        if room.take(rate_of[place]):
            chosen.append(place)
    return chosen


def devices(problem: SelectionProblem, places: Iterable[int]) -> tuple[int, ...]:
    """Return the device numbers at these places of the candidates."""
    candidates = problem.candidates
    return tuple(int(candidates[place]) for place in places)


def select_in_order(problem: SelectionProblem, order: Iterable[int]) -> Selection:
    """Select devices in this order, as many as the bandwidth allows."""
    return Selection(devices(problem, fill(problem.data_rate, order, FreeBandwidth(problem.capacity, problem.most))))


def uniform_draws(problem: SelectionProblem, purpose: int) -> Floats:
    """Return a number in (0, 1] for each candidate by (seed, purpose, device), independent of the other candidates."""
    key = np.array([(problem.seed ^ (purpose * 0x9E3779B97F4A7C15)) & 0xFFFFFFFFFFFFFFFF], np.uint64)
    return 1.0 - keyed_uniform(key, problem.candidates.astype(np.uint64))


def ranked(problem: SelectionProblem, score: Floats) -> list[int]:
    """Return the places by decreasing score, ties in random order."""
    order: list[int] = np.lexsort((uniform_draws(problem, 0), -score)).tolist()
    return order


def weighted_order(weights: Floats, draws: Floats) -> list[int]:
    """Return a random order, drawn without replacement in proportion to the weights; zero weights come last.

    Efraimidis & Spirakis 2006: sort by -log(draw) / weight."""
    with np.errstate(divide="ignore"):
        finish = -np.log(draws) / np.maximum(weights, 0.0)
    order: list[int] = np.lexsort((draws, finish)).tolist()
    return order
