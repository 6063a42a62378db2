"""A vector on an accelerator, and what is known of it without asking."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.device_vector import DeviceVector, HereVector, Vector, here
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.engine.backend import Array
from async_hfl.learning.engine.on_device.shelf import Place, products_among

if TYPE_CHECKING:
    from async_hfl.learning.engine.on_device.device_ops import DeviceOps


@final
class JaxVector(DeviceVector):
    __slots__ = (
        "_array",
        "_finite",
        "_length",
        "_numbers",
        "_start",
        "_step",
        "_terms",
        "card",
        "place",
    )

    def __init__(
        self,
        card: DeviceOps,
        array: Array | None,
        length: int | None = None,
        *,
        numbers: HereVector | None = None,
        terms: dict[JaxVector, float] | None = None,
    ) -> None:
        """An array, or the `terms` of what it will be when it is needed."""
        self.card = card
        self._array = array
        self._length = length
        self._terms = terms
        self.place: Place | None = None
        """On a shelf: the array lies there."""
        self._finite: bool | None = None
        self._numbers = numbers
        self._start: weakref.ref[Any] | None = None
        self._step: tuple[np.float32, JaxVector] | None = None

    def __len__(self) -> int:
        if self._length is None:
            self._length = int(self.array.shape[0])
        return self._length

    @property
    def noted(self) -> bool:
        return self._terms is not None

    @property
    def terms(self) -> dict[JaxVector, float]:
        """It is the sum of these vectors, none of them noted only, with these coefficients."""
        return {self: 1.0} if self._terms is None else self._terms

    def settled(self, array: Array) -> None:
        self._array, self._terms = array, None

    def lie(self, place: Place) -> None:
        """On a shelf from now on."""
        self._length = len(self)
        self.place, self._array = place, None

    @property
    def array(self) -> Array:
        if self.noted:
            self.card.settle([self])
        array, place = self._array, self.place
        if array is None:
            assert place is not None
            return place.shelf.array(place)
        return array

    def here(self) -> HereVector:
        if self._numbers is None:
            self._numbers = frozen(np.array(self.array))
        return self._numbers

    @property
    def finite(self) -> bool:
        if self._finite is None:
            self._finite = bool(np.isfinite(self.here()).all())
        return self._finite

    def beside(self, other: Vector) -> JaxVector:
        return self.card.place(other)

    def blend(self, others: Sequence[Vector], coefficients: Sequence[float]) -> JaxVector:
        return self.card.blend(self, others, coefficients)

    def mean_step(self, start: Vector, size: int, divisor: np.float32) -> JaxVector:
        if self._start is not None and self._step is not None and self._start() is start and self._step[0] == divisor:
            return self._step[1]
        return self.card.mean_step(start, self, size, divisor)

    def products(self, others: Sequence[Vector]) -> list[float]:
        if not others:
            return []
        placed = [self, *map(self.card.place, others)]
        mine, *places = self.card.places_of(placed)
        found: list[float] = mine.products(places).tolist()
        return [one if isfinite(one) else self._exact(other) for one, other in zip(found, placed[1:], strict=True)]

    def products_among(self, vectors: Sequence[Vector]) -> npt.NDArray[np.float64]:
        placed = [self.card.place(vector) for vector in vectors]
        found = products_among(self.card.places_of(placed)).astype(np.float64)
        for row, column in np.argwhere(~np.isfinite(found)).tolist():
            found[row, column] = placed[row]._exact(placed[column])
        return found

    def _exact(self, other: JaxVector) -> float:
        """In double precision, which does not overflow where single does."""
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.dot(self.here().astype(np.float64), other.here()))

    def know_finite(self, finite: bool) -> None:
        self._finite = finite

    def know_step(self, start: Vector, divisor: np.float32, step: JaxVector) -> None:
        """What `mean_step` will be asked for: computed along with the vector."""
        self._start, self._step = weakref.ref(start), (divisor, step)


def as_argument(weights: Weights, devices: int) -> Any:
    """As a program takes it: from where it lies, if that is the only device there is."""
    return weights.array if devices == 1 and isinstance(weights, JaxVector) else here(weights)
