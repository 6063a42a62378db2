"""A floor under participation (`selection.min_participation`), whatever the policy prefers.

A device takes part for the share p of its time if it waits (1 - p) / p round latencies after each round. One that has
waited longer is due: due devices go before all others, the one that waited longest (in its own latencies) first. Where
the next does not fit what is free of the bandwidth, nothing else is started until it does: or small ones would pass it
for ever. If the bandwidth cannot give everybody the share asked for, they take turns. A newcomer has waited since the
run began, so it is tried at once.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Floats, Ints

_ROUNDING = 1e-9


def due_first(waited: Floats, latency: Floats, rate: Floats, free: float, share: float) -> tuple[Ints, int]:
    """Who goes first: places in the columns, in order; and the place of the one that all must wait for, -1 if none."""
    rounds = waited / latency
    due = np.flatnonzero(rounds * share >= 1.0 - share)
    due = due[np.argsort(-rounds[due], kind="stable")]
    taken = np.cumsum(rate[due])
    fits = int(np.searchsorted(taken, free * (1 + _ROUNDING), side="right"))
    return due[:fits], int(due[fits]) if fits < len(due) else -1
