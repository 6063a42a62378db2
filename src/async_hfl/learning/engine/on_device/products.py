"""Inner products of vectors on an accelerator: the programs that compute them, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import final

import numpy as np

from async_hfl.core.vectors import HostVector
from async_hfl.learning.engine.backend import Array, jax, jnp, lax

_PIECE = 4096
"""Length of the pieces in which vectors are multiplied; the products of all pieces are then added up."""


@final
class Products:
    """The products of a few vectors with many others; enqueued, and perhaps not computed yet."""

    __slots__ = ("_columns", "_enqueued", "_rows", "_values")

    def __init__(self, columns: dict[int, int], enqueued: Array) -> None:
        self._columns = columns
        """By serial number of the other vector."""
        self._enqueued: Array | None = enqueued
        self._values: HostVector = np.zeros(0, np.float32)
        self._rows: dict[int, list[float]] = {}

    def row(self, row: int) -> list[float]:
        """Return the products of one vector with all others, in their order."""
        found = self._rows.get(row)
        if found is None:
            if self._enqueued is not None:
                self._values, self._enqueued = np.asarray(self._enqueued), None
            found = self._rows[row] = self._values[row, : len(self._columns)].tolist()
        return found

    def lookup_all(self, row: int, serials: Sequence[int]) -> list[float | None]:
        """Return the products of one vector with these; None for a vector that is not among the others."""
        values, column_of = self.row(row), self._columns.get
        return [None if (column := column_of(serial)) is None else values[column] for serial in serials]

    def lookup(self, row: int, serial: int) -> float | None:
        """Return one product. Nothing is waited for if it is not known."""
        column = self._columns.get(serial)
        if column is None:
            return None
        return (self._rows.get(row) or self.row(row))[column]


@jax.jit
def concatenate(*parts: Array) -> Array:
    return jnp.concatenate(parts, axis=1)


@jax.jit
def multiply_blocks(some: tuple[Array, ...], others: tuple[Array, ...]) -> Array:
    size = some[0].shape[0]
    pieces = -(-size // _PIECE)

    def cut(vectors: tuple[Array, ...]) -> Array:
        rows = jnp.pad(jnp.stack(vectors), ((0, 0), (0, pieces * _PIECE - size)))
        return rows.reshape(len(vectors), pieces, _PIECE)

    multiply = partial(jnp.einsum, precision=lax.Precision.HIGHEST)
    return multiply("akc,bkc->kab", cut(some), cut(others)).sum(axis=0)
