"""Vectors in the memory of one accelerator, and the operations on them: transfer, blend, inner product.

Every JAX program returns before its work is done. Enqueueing a program costs the host about 0.1 ms and waiting for a
result about 0.3 ms (measured on an H200), whatever the length of the vectors, and a result that is requested late waits
for all work enqueued before. Hence:

* A blend is lazy: its terms are stored, and several blends are computed by one program when one is needed.
* The products of new gradients with all live ones (`trainer.LiveGradients`) are enqueued together with the training
  jobs, and arrive with the results.
* A product is computed in blocks of one fixed form. It is therefore the same number whatever else is multiplied.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from math import isfinite
from typing import Any, final

import numpy as np

from async_hfl.core.compression.encodings import EncodingKind, encoded_bytes
from async_hfl.core.errors import InternalError
from async_hfl.core.vectors import DeviceVector, HostVector, Vector, to_host
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.engine.backend import Array, jax, jnp, lax
from async_hfl.learning.engine.on_device.device_codec import Flags, JaxEncoded, encode, key_argument
from async_hfl.learning.engine.trainer import LiveGradients

ROWS, BLOCK = 16, 64
"""Shape of a block of products: up to ROWS new vectors, about the jobs of a call, times BLOCK others."""
_PIECE = 4096
"""Length of the pieces in which vectors are multiplied; the products of all pieces are then added up."""
_MOST_TERMS = 64
"""The most terms of a lazy blend; a longer one is computed at once."""
_LARGE = 1 << 22
"""Vector length from which computing unused rows costs more than compiling another program."""
_serials = count()


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

    def lookup(self, row: int, serial: int) -> float | None:
        """Return the product of one vector with another; None if that is not among the others."""
        column = self._columns.get(serial)
        if column is None:
            return None
        return (self._rows.get(row) or self.row(row))[column]


@final
class JaxVector(DeviceVector):
    """A vector on an accelerator, or a lazy blend of such vectors, with what is known about it on the host."""

    __slots__ = (
        "_array",
        "_finite",
        "_length",
        "_numbers",
        "_products",
        "_row",
        "_start",
        "_step",
        "_tail",
        "_terms",
        "ops",
        "serial",
    )

    def __init__(
        self,
        ops: DeviceOps,
        array: Array | None,
        length: int | None = None,
        *,
        numbers: HostVector | None = None,
        terms: dict[JaxVector, float] | None = None,
    ) -> None:
        """Make a vector from an array, or a lazy blend from its `terms`."""
        self.ops = ops
        self._array = array
        self._length = length
        self._terms = terms
        self.serial = next(_serials)
        self._finite: bool | Callable[[], bool] | None = None
        self._numbers = numbers
        self._products: Products | None = None
        self._row = 0
        self._start: weakref.ref[Any] | None = None
        self._step: tuple[np.float32, JaxVector] | None = None
        self._tail: tuple[int, JaxVector] | None = None

    def __len__(self) -> int:
        if self._length is None:
            self._length = int(self.array.shape[0])
        return self._length

    @property
    def lazy(self) -> bool:
        """True if this is a blend that has not been computed."""
        return self._array is None

    @property
    def terms(self) -> dict[JaxVector, float]:
        """Vectors that are not lazy, with the coefficients by which they add up to this one."""
        return {self: 1.0} if self._terms is None else self._terms

    @property
    def tail(self) -> tuple[int, JaxVector] | None:
        """A place, and a vector from which a lazy blend takes all numbers from that place on."""
        return self._tail

    @property
    def array(self) -> Array:
        if self._array is None:
            self.ops.compute([self])
            assert self._array is not None
        return self._array

    def set_array(self, array: Array) -> None:
        """Set the computed value of a lazy blend."""
        self._array, self._terms, self._tail = array, None, None

    def set_finite(self, finite: bool | Callable[[], bool]) -> None:
        """Set what is known, or a function that waits for the device and returns it."""
        self._finite = finite

    def set_products(self, products: Products, row: int) -> None:
        self._products, self._row = products, row

    def set_step(self, start: Vector, divisor: np.float32, step: JaxVector) -> None:
        """Set the result of `mean_step` for this start and divisor, which was computed along with the vector."""
        self._start, self._step = weakref.ref(start), (divisor, step)

    def to_host(self) -> HostVector:
        if self._numbers is None:
            self._numbers = frozen(np.array(self.array))
        return self._numbers

    @property
    def finite(self) -> bool:
        if self._finite is None:
            self._finite = bool(np.isfinite(self.to_host()).all())
        elif callable(self._finite):
            self._finite = self._finite()
        return self._finite

    def to_same_device(self, other: Vector) -> JaxVector:
        return self.ops.place(other)

    def blend(self, others: Sequence[Vector], coefficients: Sequence[float]) -> JaxVector:
        terms: dict[JaxVector, float] = {}
        vectors, tail = (self, *map(self.ops.place, others)), None
        for vector, coefficient in zip(vectors, (1.0 - sum(coefficients), *coefficients), strict=True):
            tail = tail or vector._tail
            for term, share in vector.terms.items():
                terms[term] = terms.get(term, 0.0) + coefficient * share
        blend = JaxVector(self.ops, None, len(self), terms=terms)
        if tail is not None:
            first, *rest = (vector._tail_vector for vector in vectors)
            blend._tail = tail[0], first.blend(rest, coefficients)
        if len(terms) > _MOST_TERMS:
            self.ops.compute([blend])
        return blend

    def with_tail(self, size: int, tail: Vector) -> JaxVector:
        last = self.ops.place(tail)._tail_vector
        if not self.lazy:
            return JaxVector(self.ops, _join(size, self.array, last.array))
        joined = JaxVector(self.ops, None, len(self), terms=self.terms)
        joined._tail = size, last
        return joined

    @property
    def _tail_vector(self) -> JaxVector:
        """The vector whose last numbers are those of this one."""
        return self if self._tail is None else self._tail[1]

    def mean_step(self, start: Vector, size: int, divisor: np.float32) -> JaxVector:
        if self._start is not None and self._step is not None and self._start() is start and self._step[0] == divisor:
            return self._step[1]
        return JaxVector(self.ops, _step(self.ops.place(start).array, self.array, size, divisor))

    def encode(self, kind: EncodingKind, trained: int, key: int) -> JaxEncoded:
        return self._encode(None, None, kind, trained, key)[0]

    def encode_change(
        self, base: Vector, memory: Vector | None, kind: EncodingKind, trained: int, key: int
    ) -> tuple[JaxEncoded, JaxVector]:
        placed = None if memory is None else self.ops.place(memory).array
        encoded, left = self._encode(self.ops.place(base).array, placed, kind, trained, key)
        assert left is not None
        return encoded, JaxVector(self.ops, left, trained)

    def _encode(
        self, base: Array | None, memory: Array | None, kind: EncodingKind, trained: int, key: int
    ) -> tuple[JaxEncoded, Array | None]:
        found, numbers, enqueued, left = encode(self.array, base, memory, key_argument(key), kind=kind, trained=trained)
        flags, size = Flags(enqueued), len(self)
        decoded = JaxVector(self.ops, numbers, size)
        decoded.set_finite(flags.decoded)
        return JaxEncoded(found, encoded_bytes(kind, trained, size - trained), decoded, flags), left

    def products(self, others: Sequence[Vector]) -> list[float]:
        placed = [self.ops.place(other) for other in others]
        found = [self._known_product(other) for other in placed]
        unknown = list(dict.fromkeys(other for other, one in zip(placed, found, strict=True) if one is None))
        computed = dict(zip(unknown, self.ops.products(self, unknown), strict=True)) if unknown else {}
        whole = [computed[other] if one is None else one for other, one in zip(placed, found, strict=True)]
        return [one if isfinite(one) else self._exact(other) for one, other in zip(whole, placed, strict=True)]

    def _known_product(self, other: JaxVector) -> float | None:
        """The later of two vectors was multiplied with the earlier one, if they belong to one learner."""
        found = None
        if self._products is not None:
            found = self._products.lookup(self._row, other.serial)
        if found is None and other._products is not None:
            found = other._products.lookup(other._row, self.serial)
        return found

    def _exact(self, other: JaxVector) -> float:
        """Return the product in double precision, which does not overflow where single precision does."""
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.dot(self.to_host().astype(np.float64), other.to_host()))


@final
class DeviceOps:
    """The operations of one accelerator on vectors."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._placed: weakref.WeakValueDictionary[int, JaxVector] = weakref.WeakValueDictionary()
        """By the identity of the host array, which the vector keeps alive."""

    def place(self, vector: Vector) -> JaxVector:
        """Return the vector on this device; a read-only array is transferred once."""
        if isinstance(vector, JaxVector):
            return vector
        numbers = to_host(vector)
        if numbers.flags.writeable:
            numbers = frozen(numbers.copy())
        placed = self._placed.get(id(numbers))
        if placed is None:
            placed = JaxVector(self, jax.device_put(numbers, self._device, may_alias=False), numbers=numbers)
            self._placed[id(numbers)] = placed
        return placed

    def compute(self, vectors: Sequence[JaxVector]) -> None:
        """Enqueue the computation of those vectors that are lazy blends, in one program."""
        lazy = list(dict.fromkeys(vector for vector in vectors if vector.lazy))
        if not lazy:
            return
        terms = {term: place for place, term in enumerate(dict.fromkeys(t for one in lazy for t in one.terms))}
        arrays = [term.array for term in terms]
        # Padded to a few sizes, so that few programs are compiled; the coefficients of the padding are 0.
        coefficients = np.zeros((_padded(len(lazy), len(lazy[0])), _padded(len(terms), len(lazy[0]))), np.float32)
        for row, vector in enumerate(lazy):
            for term, share in vector.terms.items():
                coefficients[row, terms[term]] = share
        rows = _combine(coefficients, *arrays, *[arrays[0]] * (coefficients.shape[1] - len(arrays)))
        # In another program, so that those rows are the same numbers with and without tails.
        self.compute([vector.tail[1] for vector in lazy if vector.tail is not None])
        for vector, row in zip(lazy, rows, strict=False):
            vector.set_array(row if vector.tail is None else _join(vector.tail[0], row, vector.tail[1].array))

    def products(self, one: JaxVector, others: Sequence[JaxVector]) -> list[float]:
        """Compute products now, which waits for all work enqueued before."""
        (found,) = self._enqueue_products([one], others)
        return found.row(0)

    def multiply(self, live: LiveGradients, new: Sequence[JaxVector]) -> None:
        """Enqueue the products of new gradients with each other and with all live ones."""
        others = [*map(self.place, live.vectors()), *new]
        for number, products in enumerate(self._enqueue_products(new, others)):
            for row, vector in enumerate(new[number * ROWS : (number + 1) * ROWS]):
                vector.set_products(products, row)
        live.add(new)

    def _enqueue_products(self, some: Sequence[JaxVector], others: Sequence[JaxVector]) -> list[Products]:
        """Return one `Products` for every `ROWS` vectors of `some`."""
        size = len(some[0])
        if any(len(vector) != size for vector in (*some, *others)):
            raise InternalError(f"a vector of {size} numbers is multiplied with one of another length")
        columns = {other.serial: column for column, other in enumerate(others)}
        blocks = [_padded_block(others[first : first + BLOCK], BLOCK) for first in range(0, len(others), BLOCK)]
        found = []
        for first in range(0, len(some), ROWS):
            rows = _padded_block(some[first : first + ROWS], ROWS)
            # One program for each block, lest the compiler merge several into one of another form.
            parts = [_multiply_blocks(rows, block) for block in blocks]
            whole: Array = parts[0] if len(parts) == 1 else _concatenate(*parts)
            whole.copy_to_host_async()
            found.append(Products(columns, whole))
        return found


def program_argument(weights: Weights, devices: int) -> Any:
    """Return the weights as a program takes them: without a copy, if they are on the only device that is used."""
    return weights.array if devices == 1 and isinstance(weights, JaxVector) else to_host(weights)


def _padded_block(vectors: Sequence[JaxVector], number: int) -> tuple[Array, ...]:
    arrays = [vector.array for vector in vectors]
    return tuple(arrays + [arrays[0]] * (number - len(arrays)))


def _padded(number: int, size: int) -> int:
    """Return the next of 1, 16, 64, ..., or for large vectors the next of 1, 2, 4, ..."""
    padded = 1
    while padded < number:
        padded = 2 * padded if size >= _LARGE else max(16, 4 * padded)
    return padded


@jax.jit
def _combine(coefficients: Array, *terms: Array) -> tuple[Array, ...]:
    """Compute all blends at once. A term that is not finite affects only the blends of which it is a part."""
    stacked = jnp.stack(terms)
    finite = jnp.isfinite(stacked).all(axis=1)
    rows = jnp.dot(coefficients, jnp.where(finite[:, None], stacked, 0.0), precision=lax.Precision.HIGHEST)
    spoilt = ((coefficients != 0) & ~finite[None, :]).any(axis=1)
    rows = jnp.where(spoilt[:, None], jnp.nan, rows)
    return tuple(rows[row] for row in range(len(coefficients)))


@partial(jax.jit, static_argnums=0)
def _join(size: int, head: Array, tail: Array) -> Array:
    return jnp.concatenate([head[:size], tail[size:]])


@partial(jax.jit, static_argnums=2)
def _step(start: Array, end: Array, size: int, divisor: np.float32) -> Array:
    return (start[:size] - end[:size]) / divisor


@jax.jit
def _concatenate(*parts: Array) -> Array:
    return jnp.concatenate(parts, axis=1)


@jax.jit
def _multiply_blocks(some: tuple[Array, ...], others: tuple[Array, ...]) -> Array:
    size = some[0].shape[0]
    pieces = -(-size // _PIECE)

    def cut(vectors: tuple[Array, ...]) -> Array:
        rows = jnp.pad(jnp.stack(vectors), ((0, 0), (0, pieces * _PIECE - size)))
        return rows.reshape(len(vectors), pieces, _PIECE)

    multiply = partial(jnp.einsum, precision=lax.Precision.HIGHEST)
    return multiply("akc,bkc->kab", cut(some), cut(others)).sum(axis=0)
