"""What is done with vectors on an accelerator: placing, blending, multiplying.

Every program returns before its work is done. An order costs the host some 0.1 ms and an answer some 0.3 ms (measured
on an H200), whatever the vectors' length: so orders are few, and nobody waits for an answer who need not.

A product is computed in blocks of one fixed form, so it is the same number whatever else is multiplied with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, final

import numpy as np

from async_hfl.core.far_vector import FarVector, Vector, let_return
from async_hfl.core.weights import frozen
from async_hfl.learning.backend import Array, jax, jnp, lax
from async_hfl.learning.card_vector import CardVector, Products
from async_hfl.learning.kin import Kin

ROWS, BLOCK = 16, 64
"""Vectors multiplied with so many others at once: about as many as a call of a run trains."""
_PIECE = 4096
"""Numbers of each that are multiplied and added first; then these sums are added."""
_MOST_TERMS = 64
"""Of a blend that is only noted."""
_HEAVY = 1 << 22
"""Numbers of a vector from which unused places cost more than another program."""


@final
class Card:
    """One accelerator."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._placed: weakref.WeakValueDictionary[int, CardVector] = weakref.WeakValueDictionary()
        """By the address of the numbers that they hold on to."""
        let_return(self.place)

    def place(self, vector: Vector) -> CardVector:
        """The vector on this device; one that comes again is there already."""
        if isinstance(vector, CardVector):
            return vector
        numbers = vector.here() if isinstance(vector, FarVector) else vector
        if numbers.flags.writeable:
            numbers = frozen(numbers.copy())
        placed = self._placed.get(id(numbers))
        if placed is None:
            placed = CardVector(self, jax.device_put(numbers, self.device, may_alias=False), numbers=numbers)
            self._placed[id(numbers)] = placed
        return placed

    def blend(self, base: CardVector, others: Sequence[Vector], coefficients: Sequence[float]) -> CardVector:
        """Only noted: what is needed of it is computed together with others, when it is."""
        terms: dict[CardVector, float] = {}
        parts = zip((base, *map(self.place, others)), (1.0 - sum(coefficients), *coefficients), strict=True)
        for vector, coefficient in parts:
            for term, share in vector.terms.items():
                terms[term] = terms.get(term, 0.0) + coefficient * share
        blend = CardVector(self, None, len(base), terms=terms)
        if len(terms) > _MOST_TERMS:
            self.settle([blend])
        return blend

    def settle(self, vectors: Sequence[CardVector]) -> None:
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

    def mean_step(self, start: Vector, end: CardVector, size: int, divisor: np.float32) -> CardVector:
        return CardVector(self, _step(self.place(start).array, end.array, size, divisor))

    def products(self, one: CardVector, others: Sequence[CardVector]) -> list[float]:
        """Now: waits for all that was ordered before."""
        (found,) = self._ordered([one], list(others))
        return found.row(0)

    def introduce(self, kin: Kin, vectors: list[CardVector]) -> None:
        """Order the products of new gradients with each other and with all of their kin that live."""
        everybody = [*kin.living(), *vectors]
        for number, products in enumerate(self._ordered(vectors, everybody)):
            for row, vector in enumerate(vectors[number * ROWS : (number + 1) * ROWS]):
                vector.know(products, row)
        kin.join(vectors)

    def _ordered(self, some: list[CardVector], others: list[CardVector]) -> list[Products]:
        """A `Products` for every so many of `some`."""
        columns = {other.serial: column for column, other in enumerate(others)}
        blocks = [_block_of(others, first, BLOCK) for first in range(0, len(others), BLOCK)]
        found = []
        for first in range(0, len(some), ROWS):
            mine = _block_of(some, first, ROWS)
            row = [_block(mine, block) for block in blocks]
            whole: Array = row[0] if len(row) == 1 else _row(*row)
            whole.copy_to_host_async()
            found.append(Products(columns, whole))
        return found


def _block_of(vectors: list[CardVector], first: int, number: int) -> tuple[Array, ...]:
    members = [vector.array for vector in vectors[first : first + number]]
    return tuple(members + [members[0]] * (number - len(members)))


def _filled(number: int, size: int) -> int:
    """1, 64, 256, ..., or for large vectors 1, 2, 4, ..."""
    filled = 1
    while filled < number:
        filled = 2 * filled if size >= _HEAVY else max(64, 4 * filled)
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


@jax.jit
def _row(*blocks: Array) -> Array:
    return jnp.concatenate(blocks, axis=1)


@jax.jit
def _block(some: tuple[Array, ...], others: tuple[Array, ...]) -> Array:
    size = some[0].shape[0]
    pieces = -(-size // _PIECE)

    def cut(vectors: tuple[Array, ...]) -> Array:
        rows = jnp.pad(jnp.stack(vectors), ((0, 0), (0, pieces * _PIECE - size)))
        return rows.reshape(len(vectors), pieces, _PIECE)

    multiply = partial(jnp.einsum, precision=lax.Precision.HIGHEST)
    return multiply("akc,bkc->kab", cut(some), cut(others)).sum(axis=0)
