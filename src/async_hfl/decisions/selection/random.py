"""Selection in random order, as many devices as the bandwidth allows: the uninformed baseline.

The order is a Fisher-Yates shuffle driven by a hash of (seed, position), drawn only as far as needed; it needs no
generator and no state. This is the hot path of a simulation: most calls have room for one device or none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.core.randomness import scramble

_NO_DEVICE = Selection(())
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class RandomSelection:
    """Takes devices in a fresh random order and skips those that do not fit."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    def choose(self, problem: SelectionProblem) -> Selection:
        capacity = problem.capacity
        able = (problem.data_rate <= capacity).nonzero()[0]
        if len(able) == 0 or not capacity > 0.0:
            return _NO_DEVICE
        return Selection(
            _fill(problem.candidates[able].tolist(), problem.data_rate[able].tolist(), capacity, problem.seed)
        )


def _fill(devices: list[int], rates: list[float], capacity: float, seed: int) -> tuple[int, ...]:
    """Draw without replacement until even the smallest rate does not fit, skipping devices that do not fit."""
    chosen: list[int] = []
    taken: list[float] = []
    used, lightest = 0.0, min(rates)
    surely_fits, surely_not = capacity * (1.0 - _ROUNDING), capacity * (1.0 + _ROUNDING)
    base = scramble(seed)
    for left in range(len(devices), 0, -1):
        place = scramble(base ^ left) % left
        last = left - 1
        device, rate = devices[place], rates[place]
        devices[place], rates[place] = devices[last], rates[last]
        total = used + rate
        # Borderline cases are decided by an exact sum, so that the order of addition never matters.
        if total > surely_fits and (total > surely_not or math.fsum((*taken, rate)) > capacity):
            continue
        chosen.append(device)
        taken.append(rate)
        used = total
        if used + lightest > surely_not:
            break
    return tuple(chosen)
