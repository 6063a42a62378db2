"""Where to put gateways so that most sites are served: greedy maximum coverage.

Whoever plans a network knows where its sites are and what a hub could reach, so the next gateway is always the one
that adds most sites not reached so far. Greedy is within 1 - 1/e of the best choice (Nemhauser, Wolsey and Fisher
1978), which is hard to find; and it gives an order, so that the first six of seven gateways are those of six.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.policies import Ints

Booleans = npt.NDArray[np.bool_]


def greedy_cover(reaches: Booleans, count: int, reached: Booleans | None = None) -> Ints:
    """Rows of `reaches` (hubs x sites), in the order chosen. `reached` marks sites that are served already.

    Equal gains go to the hub that reaches more sites in all, then to the lower row. Once every site that can be reached
    is, the rest follow by how many they reach.
    """
    hubs, sites = reaches.shape
    if not 0 <= count <= hubs:
        raise InvariantViolation(f"{count} of {hubs} hubs")
    total = reaches.sum(axis=1)
    left = np.ones(sites, np.bool_) if reached is None else ~reached
    free = np.ones(hubs, np.bool_)
    chosen = np.empty(count, np.int64)
    for number in range(count):
        gain = np.where(free, reaches[:, left].sum(axis=1), -1)
        best = np.lexsort((np.arange(hubs), -total, -gain))[0]
        chosen[number] = best
        free[best] = False
        left = left & ~reaches[best]
    return chosen
