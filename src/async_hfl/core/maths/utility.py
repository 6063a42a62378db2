"""Learning utility u_i = eta_i + nu_i (Eq. 7): affinity with the mean gradient plus diversity from the others.

With g the plain mean over N devices, eta_i = g_i . g and nu_i = -1/(N-1) sum_{k != i} g_i . g_k, it collapses to

    u_i = (|g_i|^2 - g_i . g) / (N - 1),        N = 1: |g_1|^2,

which is what `gradient_table` keeps sums for. Here: the scaling for a selection.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Floats

UtilityScale = Literal["minmax", "rank"]


def scaled(utility: Floats, known: npt.NDArray[np.bool_], scale: UtilityScale, floor: float) -> Floats:
    """Utilities of candidates on [floor, 1]; equal, single or unknown ones get 1. Never NaN."""
    result = np.ones(len(utility))
    rows = np.flatnonzero(known)
    if len(rows) < 2:
        return result
    values = utility[rows]
    low, high = values.min(), values.max()
    if not high > low:
        return result
    position = (values - low) / (high - low) if scale == "minmax" else _ranks(values) / (len(values) - 1)
    result[rows] = floor + (1.0 - floor) * position
    return result


def _ranks(values: Floats) -> Floats:
    """From 0; ties share their mean rank, so that equal utilities never differ by their order."""
    order = values.argsort()
    in_order = values[order]
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values))
    if (in_order[1:] == in_order[:-1]).any():  # seldom, and np.unique takes ten times as long as a sort of so few
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - 1 - (counts - 1) / 2)[inverse]
    return ranks
