"""Learning utility u_i = eta_i + nu_i (Eq. 7): affinity with the mean gradient plus diversity from the others.

With g the mean over N devices, eta_i = g_i . g and nu_i = -1/(N-1) sum_{k != i} g_i . g_k, it simplifies to

    u_i = (|g_i|^2 - g_i . g) / (N - 1),        N = 1: |g_1|^2.

`core.gradient_table` computes u_i; this module scales utilities for a selection.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from async_hfl.core.arrays import Bools, Floats

UtilityScale = Literal["minmax", "rank"]


def scaled(utility: Floats, known: Bools, scale: UtilityScale, floor: float) -> Floats:
    """Scale the utilities of candidates to [floor, 1]. A single, equal or unknown utility becomes 1; none is NaN."""
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
    """Return ranks from 0. Ties get their mean rank, so that equal utilities do not depend on their order."""
    order = values.argsort()
    in_order = values[order]
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values))
    if (in_order[1:] == in_order[:-1]).any():  # rare, and np.unique takes ten times as long as a short sort
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - 1 - (counts - 1) / 2)[inverse]
    return ranks
