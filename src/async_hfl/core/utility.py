"""Learning utility u_i = eta_i + nu_i (Eq. 7): affinity with the mean gradient plus diversity from the others.

With g the plain mean over N devices, eta_i = g_i . g and nu_i = -1/(N-1) sum_{k != i} g_i . g_k, it collapses to

    u_i = (|g_i|^2 - g_i . g) / (N - 1),        N = 1: |g_1|^2,

so one event costs O(d) (a running sum) and one selection C x d for C candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from async_hfl.core.plain import plain
from async_hfl.core.policies import Floats

UtilityScale = Literal["minmax", "rank"]
Gradients = npt.NDArray[np.float32]


def learning_utility(gradients: Gradients, gradient_sum: Floats, count: int) -> Floats:
    """u_i for each row, against the sum of all `count` gradients concerned."""
    rows = gradients.astype(np.float64)
    squared: Floats = np.einsum("ij,ij->i", rows, rows)
    if count <= 1:
        return squared
    utility: Floats = (squared - rows @ (gradient_sum / count)) / (count - 1)
    return utility


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
    if scale == "minmax":
        position = (values - low) / (high - low)
    else:
        # Ties share their mean rank, so that equal utilities never differ by their order.
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        last = np.cumsum(counts) - 1
        position = (last - (counts - 1) / 2)[inverse] / (len(values) - 1)
    result[rows] = floor + (1.0 - floor) * position
    return result


@plain
@dataclass(slots=True)
class GradientTable:
    """Latest gradient per slot with the running sum over the slots that count (mutable: owned by one node)."""

    rows: Gradients
    known: npt.NDArray[np.bool_]
    counted: npt.NDArray[np.bool_]
    total: Floats
    count: int = 0

    @staticmethod
    def empty(slots: int, size: int) -> GradientTable:
        return GradientTable(
            np.zeros((slots, size), np.float32), np.zeros(slots, bool), np.zeros(slots, bool), np.zeros(size)
        )

    def grow(self, slots: int) -> None:
        """Make room for `slots` rows."""
        extra = slots - len(self.known)
        if extra > 0:
            self.rows = np.concatenate([self.rows, np.zeros((extra, self.rows.shape[1]), np.float32)])
            self.known = np.concatenate([self.known, np.zeros(extra, bool)])
            self.counted = np.concatenate([self.counted, np.zeros(extra, bool)])

    def put(self, slot: int, gradient: Gradients) -> None:
        if self.counted[slot]:
            if self.known[slot]:
                self.total -= self.rows[slot]
            else:
                self.count += 1
            self.total += gradient
        self.rows[slot] = gradient
        self.known[slot] = True

    def count_in(self, slot: int, counts: bool) -> None:
        """Let a slot enter or leave the mean (a device was associated or moved away)."""
        if bool(self.counted[slot]) == counts:
            return
        self.counted[slot] = counts
        if self.known[slot]:
            sign = 1 if counts else -1
            self.total += sign * self.rows[slot].astype(np.float64)
            self.count += sign

    def utility(self, slots: npt.NDArray[np.int64]) -> Floats:
        """u_i of these slots (meaningless where not known)."""
        return learning_utility(self.rows[slots], self.total, self.count)
