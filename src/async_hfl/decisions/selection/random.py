"""Selection of devices in random order, as many as the bandwidth carries: the baseline that knows nothing.

The order is that of a hash of (seed, device), so it needs no generator and no state, and leaving a device out never
reshuffles the others. This is the hot path of a simulation: most calls find room for nobody or for one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.core.randomness import scramble, scramble_many

_NOBODY = Selection(())
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class RandomSelection:
    """Each device in a fresh random order, unless it no longer fits."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    def choose(self, problem: SelectionProblem) -> Selection:
        capacity = problem.capacity
        able = (problem.data_rate <= capacity).nonzero()[0]
        if len(able) == 0 or not capacity > 0.0:
            return _NOBODY
        devices = problem.candidates[able]
        keys = scramble_many(devices.view(np.uint64) ^ np.uint64(scramble(problem.seed)))
        order = keys.argsort(kind="stable")
        names, rates = devices[order].tolist(), problem.data_rate[able[order]].tolist()
        return Selection(_first_that_fit(names, rates, capacity))


def _first_that_fit(devices: list[int], rates: list[float], capacity: float) -> tuple[int, ...]:
    chosen: list[int] = []
    taken: list[float] = []
    used, lightest = 0.0, min(rates)
    surely_fits, surely_not = capacity * (1.0 - _ROUNDING), capacity * (1.0 + _ROUNDING)
    for device, rate in zip(devices, rates, strict=True):
        total = used + rate
        # Where rounding decides, the rates are added up exactly; so the order of addition never matters.
        if total > surely_fits and (total > surely_not or math.fsum((*taken, rate)) > capacity):
            continue
        chosen.append(device)
        taken.append(rate)
        used = total
        if used + lightest > surely_not:
            break
    return tuple(chosen)
