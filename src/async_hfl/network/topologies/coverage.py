"""Where to put gateways so that sites are served best: greedy maximum coverage.

Whoever plans a network knows where its sites are and how well each hub would serve them, so the next gateway is always
the one that adds most. A site counts by the best of its gateways: half for being reached at all, the other half in
proportion to the rate. Counted by reach alone, once most sites are reached every further gateway would go to a lonely
site at the edge. Greedy is within 1 - 1/e of the best choice (Nemhauser, Wolsey and Fisher 1978), which is hard to
find; and it gives an order, so that the first six of seven gateways are those of six.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import InvariantViolation

REACHED = 0.5
"""What being reached is worth; the rest is for the rate."""
_EQUAL = 1e-9
"""Gains that differ by less are equal: sums of the same numbers in another order."""


def service(rate: Floats, least_rate: float) -> Floats:
    """How well a site is served over links of these rates: 0 below the least, 1 at the highest of them all."""
    highest = float(rate.max(initial=0.0))
    if highest < least_rate:
        return np.zeros_like(rate)
    worth: Floats = np.where(rate >= least_rate, REACHED + (1.0 - REACHED) * rate / highest, 0.0)
    return worth


def greedy_cover(worth: Floats, count: int, served: Floats | None = None) -> Ints:
    """Rows of `worth` (hubs x sites), in the order chosen. `served` is how well sites are served already.

    Equal gains go to the hub that would serve all sites better by itself, then to the lower row.
    """
    hubs, sites = worth.shape
    if not 0 <= count <= hubs:
        raise InvariantViolation(f"{count} of {hubs} hubs")
    alone = worth.sum(axis=1)
    best = np.zeros(sites) if served is None else served
    free = np.ones(hubs, np.bool_)
    chosen = np.empty(count, np.int64)
    for number in range(count):
        gain = np.where(free, np.maximum(worth - best, 0.0).sum(axis=1), -1.0)
        leading = np.flatnonzero(gain >= gain.max() - _EQUAL)
        row = leading[np.lexsort((leading, -alone[leading]))[0]]
        chosen[number] = row
        free[row] = False
        best = np.maximum(best, worth[row])
    return chosen
