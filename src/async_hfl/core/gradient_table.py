"""The latest gradient of each device, with what makes learning utilities cheap.

u_i = (|g_i|^2 - g_i . g) / (N - 1) needs the mean g, so the sum over those that count is kept (in double precision) and
|g_i|^2 with every row: an update costs O(d), a selection one product of each of C rows with the mean, in place and,
where gradients are long, in single precision.
The sum is taken afresh now and then, and whenever a row goes that outweighed all the others, so that rounding never
builds up. A row is there for a device that has a gradient and goes with it.

Gradients may be compressed. A table holds all of them whole or all of them compressed: it changes over with the first
compressed one, taking along what it can project.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

import numpy as np
import numpy.typing as npt

from async_hfl.core.plain import plain
from async_hfl.core.policies import Bools, Floats, Ints
from async_hfl.core.projection import Gradient, GradientProjection

Gradients = npt.NDArray[np.float32]
_AFRESH_AT_LEAST = 256
_OUTWEIGHS = 1e8
_BLOCK = 8192
_SMALL = 257
"""Numbers a gradient, below which double precision costs next to nothing."""


@plain
@dataclass(slots=True)
class GradientTable:
    """Mutable: owned by one node."""

    size: int
    """Numbers a gradient."""
    compressed: bool
    rows: Gradients
    row_of: Ints
    """By slot; -1 without a gradient."""
    squared: Floats
    """By slot: |g_i|^2."""
    counted: Bools
    """By slot: does it take part in the mean?"""
    total: Floats
    count: int = 0
    free: list[int] = field(default_factory=list)
    changes: int = 0
    """Since the sum was last taken afresh."""

    @staticmethod
    def empty(slots: int, size: int, *, compressed: bool = False) -> GradientTable:
        return GradientTable(
            size,
            compressed,
            np.zeros((0, size), np.float32),
            np.full(slots, -1, np.int64),
            np.zeros(slots),
            np.zeros(slots, bool),
            np.zeros(size),
        )

    @property
    def known(self) -> Bools:
        """By slot: is there a gradient?"""
        known: Bools = self.row_of >= 0
        return known

    def grow(self, slots: int) -> None:
        """Make room for that many slots."""
        extra = slots - len(self.row_of)
        if extra > 0:
            self.row_of = np.concatenate([self.row_of, np.full(extra, -1, np.int64)])
            self.squared = np.concatenate([self.squared, np.zeros(extra)])
            self.counted = np.concatenate([self.counted, np.zeros(extra, bool)])

    def gradient(self, slot: int) -> Gradient | None:
        """A copy, to be sent."""
        row = int(self.row_of[slot])
        return None if row < 0 else self.rows[row].copy()

    def gradients(self, slots: Ints) -> Gradients:
        """A row for each slot; zeros where there is none."""
        rows = self.row_of[slots]
        found = np.zeros((len(slots), self.size), np.float32)
        found[rows >= 0] = self.rows[rows[rows >= 0]]
        return found

    # Changes -----------------------------------------------------------------------------------------------------

    def offer(self, slot: int, gradient: Gradient, compressed: bool, projection: GradientProjection | None) -> None:
        """Take a gradient in, whichever form it has; a whole one that cannot be projected yet is let go."""
        if compressed and not self.compressed:
            self.compress(len(gradient), projection)
        if compressed == self.compressed:
            self.put(slot, gradient)
        elif projection is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                projected = projection.project(gradient)
            if np.isfinite(projected).all():
                self.put(slot, projected)

    def put(self, slot: int, gradient: Gradient) -> None:
        row, counts = int(self.row_of[slot]), bool(self.counted[slot])
        if row < 0:
            row = self._new_row()
            self.row_of[slot] = row
            self.count += counts
        elif counts:
            self.total -= self.rows[row]
        before = float(self.squared[slot])
        wide = gradient.astype(np.float64)
        self.rows[row] = gradient
        # No threads for a single product: starting them costs more, and the sum would depend on how many there are.
        self.squared[slot] = np.einsum("i,i", wide, wide)
        if counts:
            self.total += wide
            self._changed(before)

    def count_in(self, slot: int, counts: bool) -> None:
        """Let a slot enter or leave the mean (a device was associated or moved away)."""
        if bool(self.counted[slot]) == counts:
            return
        self.counted[slot] = counts
        row = int(self.row_of[slot])
        if row >= 0:
            sign = 1 if counts else -1
            self.total += sign * self.rows[row].astype(np.float64)
            self.count += sign
            self._changed(0.0 if counts else float(self.squared[slot]))

    def forget(self, slot: int) -> None:
        """Its device left: free the row."""
        counts = bool(self.counted[slot])
        self.count_in(slot, False)
        self.counted[slot] = counts
        row = int(self.row_of[slot])
        if row >= 0:
            self.row_of[slot] = -1
            self.squared[slot] = 0.0
            self.free.append(row)
            self._shrink()

    def compress(self, size: int, projection: GradientProjection | None) -> None:
        """From now on compressed ones, `size` numbers each; what is here is projected, or forgotten without a basis."""
        if self.compressed:
            return
        slots = np.flatnonzero(self.row_of >= 0) if projection is not None else np.zeros(0, np.int64)
        whole = self.rows[self.row_of[slots]]
        self.row_of[:] = -1
        self.squared[:] = 0.0
        self.size, self.compressed = size, True
        self.rows, self.total = np.zeros((0, size), np.float32), np.zeros(size)
        self.count, self.free, self.changes = 0, [], 0
        for slot, gradient in zip(slots, whole, strict=True):
            assert projection is not None
            self.put(int(slot), projection.project(gradient))

    # Utilities ---------------------------------------------------------------------------------------------------

    def utility(self, slots: Ints) -> Floats:
        """u_i of these slots (meaningless where there is no gradient)."""
        squared: Floats = self.squared[slots]
        if self.count <= 1:
            return squared
        return (squared - self._along_mean(slots)) / (self.count - 1)

    def _along_mean(self, slots: Ints) -> Floats:
        """g_i . g of these slots."""
        if self.size < _SMALL:
            small: Floats = self.gradients(slots).astype(np.float64) @ (self.total / self.count)
            return small
        largest = max(float(self.total.max()), -float(self.total.min()))
        products = np.zeros(len(slots))
        if largest == 0.0:
            return products
        direction = (self.total / largest).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for place, row in enumerate(self.row_of[slots].tolist()):
                if row >= 0:
                    products[place] = _product(self.rows[row], direction)
        return products * (largest / self.count)

    # Housekeeping ------------------------------------------------------------------------------------------------

    def _changed(self, gone: float) -> None:
        """The sum changed; `gone` is |g|^2 of what was taken out of it."""
        self.changes += 1
        if self.changes >= max(_AFRESH_AT_LEAST, 4 * self.count) or (
            gone > 0 and gone > _OUTWEIGHS * float(self.squared[self.counted].sum())
        ):
            self.changes = 0
            rows = self.row_of[self.counted & (self.row_of >= 0)]
            self.total = np.zeros(self.size)
            for row in rows:
                self.total += self.rows[row]

    def _new_row(self) -> int:
        if not self.free:
            have = len(self.rows)
            extra = max(4, have // 2)
            self.rows = np.concatenate([self.rows, np.zeros((extra, self.size), np.float32)])
            self.free = list(range(have + extra - 1, have - 1, -1))
        return self.free.pop()

    def _shrink(self) -> None:
        used = np.flatnonzero(self.row_of >= 0)
        if len(self.rows) <= 8 or 4 * len(used) > len(self.rows):
            return
        self.rows = self.rows[self.row_of[used]].copy()
        self.row_of[used] = np.arange(len(used))
        self.free = []


def _product(row: Gradient, direction: Gradient) -> float:
    """row . direction without a copy: block by block in single precision, summed in double. Blocks are too short for
    the library to share out among threads, so the result does not depend on how many there are."""
    total = 0.0
    for start in range(0, len(row), _BLOCK):
        total += float(np.dot(row[start : start + _BLOCK], direction[start : start + _BLOCK]))
    return total if isfinite(total) else float(np.einsum("i,i", row.astype(np.float64), direction))
