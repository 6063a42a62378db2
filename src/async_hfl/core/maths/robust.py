"""Robust statistics of changes: clipping, the trimmed mean and the median, coordinate by coordinate.

    clip(d, c)        d min(1, c / |d|)
    median(D)         in each coordinate, the middle value, or the mean of the two middle ones
    trimmed(D, k)     in each coordinate, the mean without the k largest and the k smallest values

With n vectors of which f may be anything, the median lies within the range of the others in every coordinate if
2 f < n, and the trimmed mean if f <= k (Yin et al., ICML 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt

import numpy as np

from async_hfl.core.vectors import HostVector
from async_hfl.core.weights import frozen


def norm(vector: HostVector) -> float:
    """Return the Euclidean norm, computed in double precision."""
    wide = np.asarray(vector, np.float64)
    return sqrt(float(np.dot(wide, wide)))


def clip_factor(size: float, most: float) -> float:
    """Return min(1, most / size)."""
    return 1.0 if size <= most else most / size


def moved_by(sent: HostVector, new: HostVector, factor: float) -> HostVector:
    """Return sent + factor (new - sent)."""
    if factor == 1.0:
        return new
    start = np.asarray(sent, np.float64)
    return frozen((start + factor * (np.asarray(new, np.float64) - start)).astype(np.float32))


def lower_median(values: Sequence[float]) -> float:
    """Return the middle value, of an even number the lower one of the two."""
    return sorted(values)[(len(values) - 1) // 2]


def cut_at_each_end(count: int, share: float) -> int:
    """Return how many of so many values a trimmed mean leaves out at each end: the share, rounded up, but not all."""
    # Without the small number, 0.1 of 30 would be rounded up to 4.
    return min(max(0, ceil(share * count - 1e-9)), (count - 1) // 2)


def trimmed_mean(vectors: Sequence[HostVector], cut: int) -> HostVector:
    """Return the mean of each coordinate without its `cut` largest and smallest values."""
    rows = np.stack(vectors)
    rows.sort(axis=0)  # four times as fast as a partition of so few rows
    rows = rows[cut : len(rows) - cut]
    return frozen(np.asarray(rows.mean(axis=0, dtype=np.float64), np.float32))


def median(vectors: Sequence[HostVector]) -> HostVector:
    """Return the median of each coordinate: the trimmed mean that leaves only one or two values."""
    return trimmed_mean(vectors, (len(vectors) - 1) // 2)
