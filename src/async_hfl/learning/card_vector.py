"""A vector on an accelerator, and what is known of it without asking."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any, final

import numpy as np

from async_hfl.core.far_vector import FarVector, HereVector, Vector, here
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.backend import Array

if TYPE_CHECKING:
    from async_hfl.learning.card import Card

_serials = count()


@final
class Products:
    """Of a few vectors with many others, ordered and perhaps not there yet."""

    __slots__ = ("_columns", "_ordered", "_rows", "_values")

    def __init__(self, columns: dict[int, int], ordered: Array) -> None:
        self._columns = columns
        """By serial number of the other."""
        self._ordered: Array | None = ordered
        self._values: HereVector = np.zeros(0, np.float32)
        self._rows: dict[int, list[float]] = {}

    def row(self, row: int) -> list[float]:
        """With all others, in their order."""
        found = self._rows.get(row)
        if found is None:
            if self._ordered is not None:
                self._values, self._ordered = np.asarray(self._ordered), None
            found = self._rows[row] = self._values[row, : len(self._columns)].tolist()
        return found

    def told(self, row: int, serials: Sequence[int]) -> list[float | None]:
        """With each of these; None where it was not ordered."""
        values, column_of = self.row(row), self._columns.get
        return [None if (column := column_of(serial)) is None else values[column] for serial in serials]


@final
class CardVector(FarVector):
    __slots__ = (
        "_array",
        "_finite",
        "_length",
        "_numbers",
        "_products",
        "_row",
        "_start",
        "_step",
        "_terms",
        "card",
        "serial",
    )

    def __init__(
        self,
        card: Card,
        array: Array | None,
        length: int | None = None,
        *,
        numbers: HereVector | None = None,
        terms: dict[CardVector, float] | None = None,
    ) -> None:
        """An array, or the `terms` of what it will be when it is needed."""
        self.card = card
        self._array = array
        self._length = length
        self._terms = terms
        self.serial = next(_serials)
        self._finite: bool | None = None
        self._numbers = numbers
        self._products: Products | None = None
        self._row = 0
        self._start: weakref.ref[Any] | None = None
        self._step: tuple[np.float32, CardVector] | None = None

    def __len__(self) -> int:
        if self._length is None:
            self._length = int(self.array.shape[0])
        return self._length

    @property
    def noted(self) -> bool:
        return self._array is None

    @property
    def terms(self) -> dict[CardVector, float]:
        """It is the sum of these vectors, none of them noted only, with these coefficients."""
        return {self: 1.0} if self._terms is None else self._terms

    def settled(self, array: Array) -> None:
        self._array, self._terms = array, None

    @property
    def array(self) -> Array:
        if self._array is None:
            self.card.settle([self])
            assert self._array is not None
        return self._array

    def here(self) -> HereVector:
        if self._numbers is None:
            self._numbers = frozen(np.array(self.array))
        return self._numbers

    @property
    def finite(self) -> bool:
        if self._finite is None:
            self._finite = bool(np.isfinite(self.here()).all())
        return self._finite

    def beside(self, other: Vector) -> CardVector:
        return self.card.place(other)

    def blend(self, others: Sequence[Vector], coefficients: Sequence[float]) -> CardVector:
        return self.card.blend(self, others, coefficients)

    def mean_step(self, start: Vector, size: int, divisor: np.float32) -> CardVector:
        if self._start is not None and self._step is not None and self._start() is start and self._step[0] == divisor:
            return self._step[1]
        return self.card.mean_step(start, self, size, divisor)

    def products(self, others: Sequence[Vector]) -> list[float]:
        placed = [other if type(other) is CardVector else self.card.place(other) for other in others]
        # One of two was introduced to the other, or they came together.
        found = self._told([other.serial for other in placed])
        for place, other in enumerate(placed):
            if found[place] is None:
                (found[place],) = other._told((self.serial,))
        unknown = list(dict.fromkeys(other for other, one in zip(placed, found, strict=True) if one is None))
        asked = dict(zip(unknown, self.card.products(self, unknown), strict=True)) if unknown else {}
        whole = [asked[other] if one is None else one for other, one in zip(placed, found, strict=True)]
        return [one if isfinite(one) else self._exact(placed[place]) for place, one in enumerate(whole)]

    def _told(self, serials: Sequence[int]) -> list[float | None]:
        return [None] * len(serials) if self._products is None else self._products.told(self._row, serials)

    def _exact(self, other: CardVector) -> float:
        """In double precision, which does not overflow where single does."""
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.dot(self.here().astype(np.float64), other.here()))

    def know_finite(self, finite: bool) -> None:
        self._finite = finite

    def know(self, products: Products, row: int) -> None:
        self._products, self._row = products, row

    def know_step(self, start: Vector, divisor: np.float32, step: CardVector) -> None:
        """What `mean_step` will be asked for: computed along with the vector."""
        self._start, self._step = weakref.ref(start), (divisor, step)


def as_argument(weights: Weights, devices: int) -> Any:
    """As a program takes it: from where it lies, if that is the only device there is."""
    return weights.array if devices == 1 and isinstance(weights, CardVector) else here(weights)
