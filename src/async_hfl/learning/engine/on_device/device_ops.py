"""What is done with vectors on an accelerator: placing, blending, multiplying.

Every program returns before its work is done. An order costs the host some 0.1 ms and an answer some 0.3 ms (measured
on an H200), whatever the vectors' length: so orders are few, and nobody waits for an answer who need not.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, final

import numpy as np

from async_hfl.core.device_vector import DeviceVector, Vector, let_return
from async_hfl.core.weights import frozen
from async_hfl.learning.engine.backend import Array, jax, jnp, lax
from async_hfl.learning.engine.on_device.device_vector import JaxVector
from async_hfl.learning.engine.on_device.kin import Kin
from async_hfl.learning.engine.on_device.shelf import Place, Shelf

_MOST_TERMS = 64
"""Of a blend that is only noted."""
_HEAVY = 1 << 22
"""Numbers of a vector from which unused places cost more than another program."""


@final
class DeviceOps:
    """One accelerator."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._placed: weakref.WeakValueDictionary[int, JaxVector] = weakref.WeakValueDictionary()
        """By the address of the numbers that they hold on to."""
        self._guests: dict[int, Shelf] = {}
        """By length: for those without kin, as they come back from a checkpoint."""
        let_return(self.place)

    def place(self, vector: Vector) -> JaxVector:
        """The vector on this device; one that comes again is there already."""
        if isinstance(vector, JaxVector):
            return vector
        numbers = vector.here() if isinstance(vector, DeviceVector) else vector
        if numbers.flags.writeable:
            numbers = frozen(numbers.copy())
        placed = self._placed.get(id(numbers))
        if placed is None:
            placed = JaxVector(self, jax.device_put(numbers, self.device, may_alias=False), numbers=numbers)
            self._placed[id(numbers)] = placed
        return placed

    def blend(self, base: JaxVector, others: Sequence[Vector], coefficients: Sequence[float]) -> JaxVector:
        """Only noted: what is needed of it is computed together with others, when it is."""
        terms: dict[JaxVector, float] = {}
        parts = zip((base, *map(self.place, others)), (1.0 - sum(coefficients), *coefficients), strict=True)
        for vector, coefficient in parts:
            for term, share in vector.terms.items():
                terms[term] = terms.get(term, 0.0) + coefficient * share
        blend = JaxVector(self, None, len(base), terms=terms)
        if len(terms) > _MOST_TERMS:
            self.settle([blend])
        return blend

    def settle(self, vectors: Sequence[JaxVector]) -> None:
        """Order those that were only noted."""
        noted = list(dict.fromkeys(vector for vector in vectors if vector.noted))
        if not noted:
            return
        terms = {term: place for place, term in enumerate(dict.fromkeys(t for one in noted for t in one.terms))}
        arrays = [term.array for term in terms]
        # Few sizes, so that few programs are compiled; what fills them counts nothing.
        coefficients = np.zeros((_filled(len(noted), len(noted[0])), _filled(len(terms), len(noted[0]))), np.float32)
        for row, vector in enumerate(noted):
            for term, share in vector.terms.items():
                coefficients[row, terms[term]] = share
        rows = _combine(coefficients, *arrays, *[arrays[0]] * (coefficients.shape[1] - len(arrays)))
        for vector, row in zip(noted, rows, strict=False):
            vector.settled(row)

    def mean_step(self, start: Vector, end: JaxVector, size: int, divisor: np.float32) -> JaxVector:
        return JaxVector(self, _step(self.place(start).array, end.array, size, divisor))

    def introduce(self, kin: Kin, vectors: Sequence[JaxVector]) -> None:
        """Order the products of new gradients with each other and with all of their kin that live."""
        if kin.shelf is None:
            kin.shelf = Shelf(len(vectors[0]), self.device)
        kin.shelf.admit(vectors)

    def places_of(self, vectors: Sequence[JaxVector]) -> list[Place]:
        """On one shelf."""
        shelf = None if vectors[0].place is None else vectors[0].place.shelf
        if any(vector.place is None or vector.place.shelf is not shelf for vector in vectors):
            self.bring_together(vectors)
        return [vector.place for vector in vectors if vector.place is not None]

    def bring_together(self, vectors: Sequence[JaxVector]) -> None:
        """Let vectors lie on one shelf, that of the kin of one of them if any has some. Their products come after all
        that was ordered before."""
        guests = self._guests.setdefault(len(vectors[0]), Shelf(len(vectors[0]), self.device))
        shelves = [vector.place.shelf for vector in vectors if vector.place is not None]
        shelf = next((shelf for shelf in shelves if shelf is not guests), guests)
        shelf.admit([one for one in dict.fromkeys(vectors) if one.place is None or one.place.shelf is not shelf])
        for left in dict.fromkeys(shelves):
            left.tidy()


def _filled(number: int, size: int) -> int:
    """1, 16, 64, ..., or for large vectors 1, 2, 4, ..."""
    filled = 1
    while filled < number:
        filled = 2 * filled if size >= _HEAVY else max(16, 4 * filled)
    return filled


@jax.jit
def _combine(coefficients: Array, *terms: Array) -> tuple[Array, ...]:
    """All at once; a term that is not finite spoils those that it is part of, and no other."""
    stacked = jnp.stack(terms)
    finite = jnp.isfinite(stacked).all(axis=1)
    rows = jnp.dot(coefficients, jnp.where(finite[:, None], stacked, 0.0), precision=lax.Precision.HIGHEST)
    spoilt = ((coefficients != 0) & ~finite[None, :]).any(axis=1)
    rows = jnp.where(spoilt[:, None], jnp.nan, rows)
    return tuple(rows[row] for row in range(len(coefficients)))


@partial(jax.jit, static_argnums=2)
def _step(start: Array, end: Array, size: int, divisor: np.float32) -> Array:
    return (start[:size] - end[:size]) / divisor
