"""The latest gradient of each device, stored so that learning utilities are cheap to compute.

u_i = (|g_i|^2 - g_i . g) / (N - 1) needs the mean gradient g. The table therefore keeps |g_i|^2 of every row and the
sum of the counted rows: an update of a gradient of length d costs O(d), and a selection one inner product per
candidate. Against the accumulation of rounding errors, the sum is recomputed after a number of changes, and when a row
is removed that was far larger than all others. A table that is read rarely (the cloud's) computes the sum when needed.

Short gradients are rows of one matrix and are summed in double precision. Long gradients are stored as the read-only
arrays that arrived: gateway, message and cloud share one array, and nothing is copied. They are summed and multiplied
in single precision, which is faster; the error is about 1e-6 of |g_i| |g|. Where single precision would overflow or
underflow, double precision is used.

Gradients on an accelerator (`core.vectors`) are not summed. Instead, the table keeps the inner products of all pairs of
rows, which the accelerator has computed in advance; a row's product with the mean is the mean of its products.

Gradients may be compressed. All gradients of a table are whole, or all are compressed: the first compressed gradient
converts the table, which then projects the gradients it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.maths.projection import Gradient, GradientProjection
from async_hfl.core.serialization import plain
from async_hfl.core.vectors import DeviceVector, HostVector, to_host
from async_hfl.core.weights import frozen

Gradients = npt.NDArray[np.float32]
_Sum = TypeVar("_Sum", Floats, HostVector)
_NO_GRADIENT: Gradient = np.zeros(0, np.float32)
_MIN_CHANGES = 256
"""The least number of changes after which the sum is recomputed."""
_OUTWEIGHS = 1e3
"""The sum is recomputed if |g|^2 of a removed row exceeds that of all others by this factor; otherwise the rounding
error left behind would be about 1e-6 of the sum."""
_SUMMED_AT_ONCE = 64
"""Number of rows summed in single precision; these partial sums are added in double precision."""
_BLOCK = 8192
_SHORT = 257
"""Gradients with fewer numbers than this are short: double precision costs next to nothing."""
_SMALLEST, _LARGEST = 1e-15, 1e15
"""Vectors whose lengths are between these can be multiplied in single precision."""


@plain
@dataclass(slots=True)
class GradientTable:
    """The gradients of the devices of one node, by slot. Mutable, owned by that node."""

    size: int
    """Length of a gradient."""
    compressed: bool
    rows: Gradients | list[Gradient]
    """A matrix of short gradients, or a list of long ones."""
    row_of: Ints
    """By slot: its row, or -1 without a gradient."""
    squared: Floats
    """By slot: |g_i|^2."""
    counted: Bools
    """By slot: True if it is part of the mean."""
    sum: Floats | HostVector
    """Sum of the rows that count, in single precision if gradients are long. Read it through `total`."""
    keeps_sum: bool
    """True if every change updates the sum; otherwise it is computed when needed."""
    stale: bool = False
    """True if the sum must be recomputed before it is used."""
    count: int = 0
    free: list[int] = field(default_factory=list)
    changes: int = 0
    """Changes since the sum was last recomputed."""
    on_device: bool = False
    """True if rows are on an accelerator, so that products are kept in place of the sum."""
    gram: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """Inner products of all pairs of rows on an accelerator; NaN: not requested yet."""

    @staticmethod
    def empty(slots: int, size: int, *, compressed: bool = False, keep_sum: bool = True) -> GradientTable:
        rows: Gradients | list[Gradient] = np.zeros((0, size), np.float32) if size < _SHORT else []
        total = np.zeros(size) if size < _SHORT else np.zeros(size, np.float32)
        row_of, squared, counted = np.full(slots, -1, np.int64), np.zeros(slots), np.zeros(slots, bool)
        return GradientTable(size, compressed, rows, row_of, squared, counted, total, keep_sum)

    @property
    def known(self) -> Bools:
        """By slot: True if it has a gradient."""
        known: Bools = self.row_of >= 0
        return known

    def grow(self, slots: int) -> None:
        """Extend the table to this many slots."""
        extra = slots - len(self.row_of)
        if extra > 0:
            self.row_of = np.concatenate([self.row_of, np.full(extra, -1, np.int64)])
            self.squared = np.concatenate([self.squared, np.zeros(extra)])
            self.counted = np.concatenate([self.counted, np.zeros(extra, bool)])

    def gradient(self, slot: int) -> Gradient | None:
        """Return the gradient of a slot; later changes of the table do not affect it."""
        row = int(self.row_of[slot])
        if row < 0:
            return None
        return self.rows[row] if isinstance(self.rows, list) else self.rows[row].copy()

    def gradients(self, slots: Ints) -> Gradients:
        """Return one row per slot, zeros for a slot without a gradient."""
        rows = self.row_of[slots]
        found = np.zeros((len(slots), self.size), np.float32)
        if isinstance(self.rows, list):
            for place, row in enumerate(rows.tolist()):
                if row >= 0:
                    found[place] = self.rows[row]
        else:
            found[rows >= 0] = self.rows[rows[rows >= 0]]
        return found

    # Changes -----------------------------------------------------------------------------------------------------

    def offer(self, slot: int, gradient: Gradient, compressed: bool, projection: GradientProjection | None) -> None:
        """Store a gradient of either form. A whole gradient that cannot be projected yet is ignored."""
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
        """Store a gradient, unless its square shows that it contains NaN or infinite values."""
        if not isinstance(self.rows, list):
            gradient = to_host(gradient)
            squared = float(np.einsum("i,i", gradient, gradient, dtype=np.float64))
        elif isinstance(gradient, DeviceVector):
            squared = gradient.products([gradient])[0]
        else:
            squared = _product(gradient, gradient)
            if gradient.flags.writeable or gradient.base is not None:
                gradient = frozen(gradient.copy())  # so that it cannot change and does not keep a larger array alive
        if not isfinite(squared):
            return
        if isinstance(gradient, DeviceVector):
            self.on_device = True
        elif self.on_device:
            self._check_on_device()
        row, counts = int(self.row_of[slot]), bool(self.counted[slot])
        old: Gradient | None = None
        if row < 0:
            row = self._new_row()
            self.row_of[slot] = row
            self.count += counts
        elif counts:
            old = self.rows[row]
        before = float(self.squared[slot])
        self.squared[slot] = squared
        if counts:
            self._update_sum(old, before, gradient)
        self.rows[row] = gradient
        if self.on_device:
            self._reset_products(row, squared)

    def set_counted(self, slot: int, counts: bool) -> None:
        """Add a slot to the mean or remove it (its device was associated or moved away)."""
        if bool(self.counted[slot]) == counts:
            return
        self.counted[slot] = counts
        row = int(self.row_of[slot])
        if row >= 0:
            self.count += 1 if counts else -1
            if counts:
                self._update_sum(None, 0.0, self.rows[row])
            else:
                self._update_sum(self.rows[row], float(self.squared[slot]), None)

    def forget(self, slot: int) -> None:
        """Remove the gradient of a slot whose device has left."""
        counts = bool(self.counted[slot])
        self.set_counted(slot, False)
        self.counted[slot] = counts
        row = int(self.row_of[slot])
        if row >= 0:
            self.row_of[slot] = -1
            self.squared[slot] = 0.0
            self.free.append(row)
            if isinstance(self.rows, list):
                self.rows[row] = _NO_GRADIENT
            else:
                self._shrink(self.rows)

    def compress(self, size: int, projection: GradientProjection | None) -> None:
        """Convert the table to compressed gradients of this length; without a projection, its gradients are lost."""
        if self.compressed:
            return
        slots = np.flatnonzero(self.row_of >= 0) if projection is not None else np.zeros(0, np.int64)
        whole = self.gradients(slots)
        fresh = GradientTable.empty(len(self.row_of), size, compressed=True, keep_sum=self.keeps_sum)
        fresh.counted = self.counted
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))
        for slot, gradient in zip(slots, whole, strict=True):
            assert projection is not None
            self.put(int(slot), projection.project(gradient))

    # Utilities ---------------------------------------------------------------------------------------------------

    def utility(self, slots: Ints) -> Floats:
        """Return u_i of these slots; it has no meaning for a slot without a gradient."""
        squared: Floats = self.squared[slots]
        if self.count <= 1:
            return squared
        if not isinstance(self.rows, list):
            along_mean: Floats = self.gradients(slots).astype(np.float64) @ (self.total() / self.count)
        else:
            along_mean = self._products_with_sum(self.rows, self.row_of[slots]) / self.count
        return (squared - along_mean) / (self.count - 1)

    def _products_with_sum(self, rows: list[Gradient], wanted: Ints) -> Floats:
        """Return the product of each of these rows with the sum; 0 for row -1."""
        if self.on_device:
            self._check_on_device()
        if not self.on_device:
            total = self.total()
            return np.array([_product(to_host(rows[row]), total) if row >= 0 else 0.0 for row in wanted.tolist()])
        asked, members = wanted[wanted >= 0], self.row_of[self.counted & (self.row_of >= 0)]
        unknown = np.isnan(self.gram[np.ix_(asked, members)]).sum(axis=1)
        # Rows that lack most products arrived last; the accelerator has multiplied them with the others.
        for row in asked[np.argsort(-unknown, kind="stable")[: np.count_nonzero(unknown)]].tolist():
            missing = members[np.isnan(self.gram[row, members])]
            if len(missing):
                one, others = rows[row], [rows[other] for other in missing.tolist()]
                if isinstance(one, DeviceVector):
                    products = one.products(others)
                else:
                    products = [_product(one, to_host(other)) for other in others]
                self.gram[row, missing] = self.gram[missing, row] = products
        found = np.zeros(len(wanted))
        found[wanted >= 0] = self.gram[np.ix_(asked, members)].sum(axis=1)
        return found

    def total(self) -> Floats | HostVector:
        """Return the sum of the rows that count."""
        if self.stale:
            in_range = self._in_range()
            self.sum, self.changes, self.stale = self._computed_sum(in_range), 0, not in_range
        return self.sum

    def _computed_sum(self, in_range: bool) -> Floats | HostVector:
        rows = self.row_of[self.counted & (self.row_of >= 0)]
        if not isinstance(self.rows, list):
            return np.asarray(self.rows[rows].sum(axis=0, dtype=np.float64))
        members = [to_host(self.rows[row]) for row in rows.tolist()]
        if not in_range:
            return _sum(members, np.zeros(self.size))
        parts = [members[start : start + _SUMMED_AT_ONCE] for start in range(0, len(members), _SUMMED_AT_ONCE)]
        sums = [_sum(part, np.zeros(self.size, np.float32)) for part in parts]
        return sums[0] if len(sums) == 1 else _sum(sums, np.zeros(self.size)).astype(np.float32)

    # Internal state ----------------------------------------------------------------------------------------------

    def _in_range(self) -> bool:
        """True if the sum and its products can be computed in the precision of the gradients."""
        return (
            not isinstance(self.rows, list)
            or _SMALLEST < sqrt(self.count * float(self.squared[self.counted].sum())) < _LARGEST
        )

    def _update_sum(self, removed: Gradient | None, removed_squared: float, added: Gradient | None) -> None:
        """Update the sum. `counted`, `count` and `squared` have been updated already."""
        if self.stale or self.on_device:
            self.stale = True
            return
        self.changes += 1
        self.stale = (
            not self.keeps_sum
            or self.changes >= max(_MIN_CHANGES, self.count)
            or removed_squared > _OUTWEIGHS * float(self.squared[self.counted].sum())
            or not self._in_range()
        )
        if not self.stale:
            if removed is not None:
                self.sum -= np.asarray(removed)
            if added is not None:
                self.sum += np.asarray(added)

    def _check_on_device(self) -> None:
        """Change back to sums if a run with vectors on an accelerator was resumed with vectors on the host."""
        if not any(isinstance(row, DeviceVector) for row in self.rows):
            self.on_device, self.stale, self.gram = False, True, np.zeros((0, 0))

    def _reset_products(self, row: int, squared: float) -> None:
        if len(self.gram) < len(self.rows):
            have, need = len(self.gram), len(self.rows)
            grown = np.full((need + need // 2, need + need // 2), np.nan)
            grown[:have, :have] = self.gram
            self.gram = grown
        self.gram[row, :] = self.gram[:, row] = np.nan
        self.gram[row, row] = squared

    def _new_row(self) -> int:
        if not self.free:
            have = len(self.rows)
            if isinstance(self.rows, list):
                self.rows.append(_NO_GRADIENT)
                return have
            extra = max(4, have // 2)
            self.rows = np.concatenate([self.rows, np.zeros((extra, self.size), np.float32)])
            self.free = list(range(have + extra - 1, have - 1, -1))
        return self.free.pop()

    def _shrink(self, rows: Gradients) -> None:
        used = np.flatnonzero(self.row_of >= 0)
        if len(rows) <= 8 or 4 * len(used) > len(rows):
            return
        self.rows = rows[self.row_of[used]].copy()
        self.row_of[used] = np.arange(len(used))
        self.free = []


def _sum(rows: list[HostVector], total: _Sum) -> _Sum:
    for row in rows:
        total += row
    return total


def _product(one: HostVector, other: Floats | HostVector) -> float:
    """Return the inner product: blocks in the vectors' precision, summed in double precision. Blocks are so short that
    numpy's library uses a single thread, and the result does not depend on the number of threads."""
    whole = len(one) // _BLOCK * _BLOCK
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = np.vecdot(one[:whole].reshape(-1, _BLOCK), other[:whole].reshape(-1, _BLOCK))
        total = float(blocks.sum(dtype=np.float64)) + float(np.dot(one[whole:], other[whole:]))
    return total if isfinite(total) else float(np.einsum("i,i", one, other, dtype=np.float64))
