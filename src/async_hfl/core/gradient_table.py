"""The latest gradient of each device, with what makes learning utilities cheap.

u_i = (|g_i|^2 - g_i . g) / (N - 1) needs the mean g, so the sum over those that count is kept and |g_i|^2 with every
row: an update costs O(d), a selection one product of each of C rows with the mean. The sum is taken afresh now and
then, and whenever a row goes that outweighed all the others, so that rounding never builds up. Who asks seldom (the
cloud, for an association) has no sum kept: it is taken then.

Short gradients lie in one matrix, so that many devices are gathered at once, and are summed in double precision. Long
ones are kept as the read-only arrays they came as: the same array serves the gateway, the message and the cloud, and
nothing is copied. They are summed and multiplied in single precision, which moves fewer bytes; the error is
some 1e-6 of |g_i| |g|. Where single precision would overflow or vanish, double takes its place.

Gradients that lie afar (`far_vector`) are not summed as they come. Their products with each other are known sooner than
they are needed, so these are kept, and a row's product with the mean is the mean of its products.

A row is there for a device that has a gradient and goes with it.

Gradients may be compressed. A table holds all of them whole or all of them compressed: it changes over with the first
compressed one, taking along what it can project.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.device_vector import DeviceVector, HereVector, here
from async_hfl.core.maths.projection import Gradient, GradientProjection
from async_hfl.core.serialization import plain
from async_hfl.core.weights import frozen

Gradients = npt.NDArray[np.float32]
_Sum = TypeVar("_Sum", Floats, HereVector)
_NOTHING: Gradient = np.zeros(0, np.float32)
_AFRESH_AT_LEAST = 256
_OUTWEIGHS = 1e3
"""What goes weighed so many times (by |g|^2) all that stay: its rounding error would be some 1e-6 of them."""
_SUMMED_AT_ONCE = 64
"""Rows added up in single precision; more than that only by such sums, in double."""
_BLOCK = 8192
_SMALL = 257
"""Numbers a gradient, below which double precision costs next to nothing."""
_LEAST, _MOST = 1e-15, 1e15
"""Between these lie the lengths of a sum, and of a row, whose products single precision can hold."""


@plain
@dataclass(slots=True)
class GradientTable:
    """Mutable: owned by one node."""

    size: int
    """Numbers a gradient."""
    compressed: bool
    rows: Gradients | list[Gradient]
    """A matrix where gradients are short, else a list."""
    row_of: Ints
    """By slot; -1 without a gradient."""
    squared: Floats
    """By slot: |g_i|^2."""
    counted: Bools
    """By slot: does it take part in the mean?"""
    sum: Floats | HereVector
    """Of the rows that count; in single precision where gradients are long. To be had of `total`."""
    kept: bool
    """Is the sum kept up to date? Else it is taken when asked for."""
    stale: bool = False
    """The sum is to be taken afresh before it is used."""
    count: int = 0
    free: list[int] = field(default_factory=list)
    changes: int = 0
    """Since the sum was last taken afresh."""
    afar: bool = False
    """Rows lie afar: products take the place of the sum."""
    gram: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """Where they do, of each row with each; NaN: not asked for yet."""

    @staticmethod
    def empty(slots: int, size: int, *, compressed: bool = False, kept: bool = True) -> GradientTable:
        return GradientTable(
            size,
            compressed,
            _no_rows(size),
            np.full(slots, -1, np.int64),
            np.zeros(slots),
            np.zeros(slots, bool),
            _no_sum(size),
            kept,
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
        """To be sent: nobody may change it."""
        row = int(self.row_of[slot])
        if row < 0:
            return None
        return self.rows[row] if isinstance(self.rows, list) else self.rows[row].copy()

    def gradients(self, slots: Ints) -> Gradients:
        """A row for each slot; zeros where there is none."""
        rows = self.row_of[slots]
        found = np.zeros((len(slots), self.size), np.float32)
        if isinstance(self.rows, list):
            for place, row in enumerate(rows.tolist()):
                if row >= 0:
                    found[place] = here(self.rows[row])
        else:
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
        """One with a NaN or an infinity is let go: its square, needed anyway, tells."""
        if isinstance(self.rows, list):
            squared = _squared(gradient)
        else:
            gradient = here(gradient)
            squared = float(np.einsum("i,i", gradient, gradient, dtype=np.float64))
        if not isfinite(squared):
            return
        if isinstance(self.rows, list):
            self._look_where_rows_are(gradient)
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
            self._exchange(old, before, gradient)
        if isinstance(self.rows, list):
            self.rows[row] = _kept(gradient)
            if self.afar:
                self._note_square(row, squared)
        else:
            self.rows[row] = gradient

    def count_in(self, slot: int, counts: bool) -> None:
        """Let a slot enter or leave the mean (a device was associated or moved away)."""
        if bool(self.counted[slot]) == counts:
            return
        self.counted[slot] = counts
        row = int(self.row_of[slot])
        if row >= 0:
            self.count += 1 if counts else -1
            if counts:
                self._exchange(None, 0.0, self.rows[row])
            else:
                self._exchange(self.rows[row], float(self.squared[slot]), None)

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
            if isinstance(self.rows, list):
                self.rows[row] = _NOTHING
            else:
                self._shrink(self.rows)

    def compress(self, size: int, projection: GradientProjection | None) -> None:
        """From now on compressed ones, `size` numbers each; what is here is projected, or forgotten without a basis."""
        if self.compressed:
            return
        slots = np.flatnonzero(self.row_of >= 0) if projection is not None else np.zeros(0, np.int64)
        whole = self.gradients(slots)
        self.row_of[:] = -1
        self.squared[:] = 0.0
        self.size, self.compressed = size, True
        self.rows, self.sum, self.stale = _no_rows(size), _no_sum(size), False
        self.count, self.free, self.changes, self.afar, self.gram = 0, [], 0, False, np.zeros((0, 0))
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
        if not isinstance(self.rows, list):
            small: Floats = self.gradients(slots).astype(np.float64) @ (self.total() / self.count)
            return small
        if self._is_afar():
            return self._along_mean_afar(self.rows, self.row_of[slots])
        total = self.total()
        rows = [self.rows[row] if row >= 0 else None for row in self.row_of[slots].tolist()]
        return np.array([0.0 if row is None else _product(here(row), total) for row in rows]) / self.count

    def _along_mean_afar(self, rows: list[Gradient], wanted: Ints) -> Floats:
        asked, members = wanted[wanted >= 0], self.row_of[self.counted & (self.row_of >= 0)]
        these = np.ix_(asked, members)
        unknown = np.isnan(self.gram[these])
        if unknown.any():
            self._ask(rows, asked, members, unknown)
        found = np.zeros(len(wanted))
        found[wanted >= 0] = self.gram[these].sum(axis=1) / self.count
        return found

    def _ask(self, rows: list[Gradient], asked: Ints, members: Ints, unknown: Bools) -> None:
        """For the products of these rows with each other that are not known yet."""
        concerned = np.zeros(len(rows), bool)  # for a few rows several times as fast as a union
        concerned[asked] = concerned[members] = True
        those = concerned.nonzero()[0]
        newest = int(members[unknown.sum(axis=0).argmax()])
        unknown[:, members == newest] = unknown[asked == newest] = False
        one = rows[newest]
        if isinstance(one, DeviceVector) and not unknown.any():
            # As after most updates: all the others know each other.
            others = those[np.isnan(self.gram[newest, those])]
            products = one.products([rows[other] for other in others.tolist()])
            self.gram[newest, others] = self.gram[others, newest] = products
        else:
            square = np.ix_(those, those)
            among = _products_among([rows[row] for row in those.tolist()])
            self.gram[square] = np.where(np.isnan(self.gram[square]), among, self.gram[square])

    def total(self) -> Floats | HereVector:
        """The sum of the rows that count."""
        if self.stale:
            self.sum, self.changes = self._taken_afresh(), 0
            self.stale = not self._is_safe()
        return self.sum

    def _taken_afresh(self) -> Floats | HereVector:
        rows = self.row_of[self.counted & (self.row_of >= 0)]
        if not isinstance(self.rows, list):
            return np.asarray(self.rows[rows].sum(axis=0, dtype=np.float64))
        members = [here(self.rows[row]) for row in rows.tolist()]
        if not self._is_safe():
            return _sum(members, np.zeros(self.size))
        parts = [members[start : start + _SUMMED_AT_ONCE] for start in range(0, len(members), _SUMMED_AT_ONCE)]
        sums = [_sum(part, np.zeros(self.size, np.float32)) for part in parts]
        return sums[0] if len(sums) == 1 else _sum(sums, np.zeros(self.size)).astype(np.float32)

    # Housekeeping ------------------------------------------------------------------------------------------------

    def _is_safe(self) -> bool:
        """Do gradients add up and multiply in their precision? No entry of their sum exceeds the length below."""
        return (
            not isinstance(self.rows, list)
            or _LEAST < sqrt(self.count * float(self.squared[self.counted].sum())) < _MOST
        )

    def _exchange(self, gone: Gradient | None, gone_squared: float, come: Gradient | None) -> None:
        """The sum without the one and with the other; what counts, and how much, is noted already."""
        if self.stale or self.afar:
            self.stale = True
            return
        self.changes += 1
        self.stale = (
            not self.kept
            or self.changes >= max(_AFRESH_AT_LEAST, self.count)
            or gone_squared > _OUTWEIGHS * float(self.squared[self.counted].sum())
            or not self._is_safe()
        )
        if not self.stale:
            if gone is not None:
                self.sum -= here(gone)
            if come is not None:
                self.sum += here(come)

    def _look_where_rows_are(self, come: Gradient) -> None:
        self.afar = isinstance(come, DeviceVector) or self._is_afar()

    def _is_afar(self) -> bool:
        if self.afar and not any(isinstance(row, DeviceVector) for row in self.rows):
            # Stored by a run whose vectors were afar, gone on with where they are here.
            self.afar, self.stale, self.gram = False, True, np.zeros((0, 0))
        return self.afar

    def _note_square(self, row: int, squared: float) -> None:
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
                self.rows.append(_NOTHING)
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


def _no_rows(size: int) -> Gradients | list[Gradient]:
    return np.zeros((0, size), np.float32) if size < _SMALL else []


def _no_sum(size: int) -> Floats | HereVector:
    return np.zeros(size) if size < _SMALL else np.zeros(size, np.float32)


def _sum(rows: list[HereVector], total: _Sum) -> _Sum:
    for row in rows:
        total += row
    return total


def _kept(gradient: Gradient) -> Gradient:
    """As it is where nobody can change it and it holds on to nothing larger, else a copy."""
    if isinstance(gradient, DeviceVector) or (not gradient.flags.writeable and gradient.base is None):
        return gradient
    return frozen(gradient.copy())


def _squared(one: Gradient) -> float:
    return one.products([one])[0] if isinstance(one, DeviceVector) else _product(one, one)


def _products_among(vectors: list[Gradient]) -> Floats:
    for vector in vectors:
        if isinstance(vector, DeviceVector):
            return vector.products_among(vectors)
    return np.array([[_product(here(one), here(other)) for other in vectors] for one in vectors])


def _product(one: HereVector, other: Floats | HereVector) -> float:
    """Inner product: block by block in the precision they have, the blocks summed in double. Blocks are too short for
    the library to share out among threads, so the result does not depend on how many there are."""
    whole = len(one) // _BLOCK * _BLOCK
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = np.vecdot(one[:whole].reshape(-1, _BLOCK), other[:whole].reshape(-1, _BLOCK))
        total = float(blocks.sum(dtype=np.float64)) + float(np.dot(one[whole:], other[whole:]))
    return total if isfinite(total) else float(np.einsum("i,i", one, other, dtype=np.float64))
