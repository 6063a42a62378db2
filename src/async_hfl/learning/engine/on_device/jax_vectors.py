"""Vectors in the memory of one accelerator, and the operations on them: transfer, blend, inner product.

Every JAX program returns before its work is done. Enqueueing a program costs the host about 0.1 ms and waiting for a
result about 0.3 ms (measured on an H200), whatever the length of the vectors, and a result that is requested late waits
for all work enqueued before. Hence:

* A blend is lazy: its terms are stored, and several blends are computed by one program when one is needed. So is an
  encoding (`lazy_encodings`).
* The products of new gradients with all live ones (`trainer.LiveGradients`) are enqueued together with the training
  jobs, and arrive with the results.
* A product is computed in blocks of one fixed form. It is therefore the same number whatever else is multiplied.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import count
from math import isfinite
from typing import Any, final

import numpy as np

from async_hfl.core.compression.encodings import EncodingKind, encoded_bytes, header
from async_hfl.core.errors import InternalError
from async_hfl.core.vectors import DeviceVector, HostVector, Vector, to_host
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.engine.backend import Array, jax
from async_hfl.learning.engine.on_device.device_codec import Begin, Flags, JaxEncoded
from async_hfl.learning.engine.on_device.lazy_encodings import Ahead, Encoding, Form, LazyEncodings
from async_hfl.learning.engine.on_device.products import Products, concatenate, multiply_blocks
from async_hfl.learning.engine.on_device.vector_programs import combine, join, mean_step, mean_steps, padded
from async_hfl.learning.engine.trainer import LiveGradients

ROWS, BLOCK = 16, 64
"""Shape of a block of products: up to ROWS new vectors, about the jobs of a call, times BLOCK others."""
_MOST_TERMS = 64
"""The most terms of a lazy blend; a longer one is computed at once."""
_serials = count()


@final
class JaxVector(DeviceVector):
    """A vector on an accelerator, a lazy blend of such vectors, or a vector that is decoded when it is needed, with
    what is known about it on the host."""

    __slots__ = (
        "_array",
        "_arrived",
        "_begin",
        "_encoded",
        "_finite",
        "_length",
        "_live",
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
        """Make a vector from an array, a lazy blend from its `terms`, or a vector whose array is set later."""
        self.ops = ops
        self._array = array
        self._begin: Begin | None = None
        self._length = length
        self._terms = terms
        self.serial = next(_serials)
        self._finite: bool | Callable[[], bool] | None = None
        self._numbers = numbers
        self._products: Products | None = None
        self._row = 0
        self._live: LiveGradients | None = None
        self._encoded: Ahead[JaxVector] | None = None
        self._arrived: tuple[EncodingKind, int, Flags] | None = None
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
        return self._terms is not None

    @property
    def decoded_later(self) -> bool:
        """True if the program that decodes this vector has not begun."""
        return self._begin is not None

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

    def set_begin(self, begin: Begin) -> None:
        """Set the function that enqueues the program whose result is this vector. It must call `set_array`."""
        self._begin = begin

    def begin(self) -> None:
        """Enqueue the programs that decode this vector, or the terms of this blend, unless they have begun."""
        if self._begin is not None:
            self._begin()
        if self.lazy:
            for term in self.terms:
                term.begin()
        if self._tail is not None:
            self._tail[1].begin()

    def set_array(self, array: Array) -> None:
        """Set the computed value of a lazy blend, or of a vector that a program has begun to compute."""
        self._array, self._terms, self._tail, self._begin = array, None, None, None

    def set_finite(self, finite: bool | Callable[[], bool]) -> None:
        """Set what is known, or a function that waits for the device and returns it."""
        self._finite = finite

    def set_products(self, products: Products, row: int, live: LiveGradients) -> None:
        self._products, self._row, self._live = products, row, live

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
            return JaxVector(self.ops, join(size, self.array, last.array))
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
        return JaxVector(self.ops, mean_step(self.ops.place(start).array, self.array, size, divisor))

    def encode(self, kind: EncodingKind, trained: int, key: int) -> JaxEncoded:
        """A vector that was decoded is a multiple of its scales and would be encoded exactly: it stays the same vector,
        and its bytes are computed if they are asked for."""
        if self._arrived is None or self._arrived[:2] != (kind, trained):
            return self._encode(None, None, kind, trained, key)[0]
        encoded = JaxEncoded(encoded_bytes(kind, trained, len(self) - trained), self, self._arrived[2])
        encoded.set_bytes(lambda: self._encode(None, None, kind, trained, key)[0].to_host())
        return encoded

    def encode_change(
        self, base: Vector, memory: Vector | None, kind: EncodingKind, trained: int, key: int
    ) -> tuple[JaxEncoded, JaxVector]:
        encoded, left = self._encode(base, memory, kind, trained, key)
        assert left is not None
        return encoded, left

    def encode_ahead(
        self, base: Vector | None, memory: Vector | None, kind: EncodingKind, trained: int, key: int
    ) -> JaxVector:
        """Encode the vector, or its change, and remember that for whoever asks for it; return the decoded vector."""
        encoded, left = self._encode(base, memory, kind, trained, key)
        start = None if base is None else weakref.ref(base)
        self._encoded = Ahead(start, memory, (kind, trained, key), encoded, left)
        decoded = encoded.decoded
        assert isinstance(decoded, JaxVector)
        return decoded

    def _encode(
        self, base: Vector | None, memory: Vector | None, kind: EncodingKind, trained: int, key: int
    ) -> tuple[JaxEncoded, JaxVector | None]:
        ahead, size, place = self._encoded, len(self), self.ops.place
        if ahead is not None and ahead.answers(base, memory, (kind, trained, key)):
            return ahead.encoded, ahead.left
        header(kind, trained)  # raises an error if vectors of this kind are not encoded
        flags, decoded = Flags(), JaxVector(self.ops, None, size)
        decoded.set_finite(flags.decoded)
        if base is None:
            decoded._arrived = (kind, trained, flags)
        encoded = JaxEncoded(encoded_bytes(kind, trained, size - trained), decoded, flags)
        start, kept, left, live = None, None, None, self._live
        if base is not None:
            start, left, live = place(base), JaxVector(self.ops, None, trained), None
            kept = None if memory is None else place(memory)
        encoding = Encoding(self, start, kept, key, encoded, flags, decoded, left, live)
        self.ops.encodings.add(Form(kind, trained, size, base is not None, self.lazy), encoding)
        return encoded, left

    def products(self, others: Sequence[Vector]) -> list[float]:
        placed = [self.ops.place(other) for other in others]
        found = self._known_products(placed)
        if None in found and any(vector.decoded_later for vector in (self, *placed)):
            self.ops.compute([self, *placed])  # gradients are multiplied when they are decoded
            found = self._known_products(placed)
        unknown = list(dict.fromkeys(other for other, one in zip(placed, found, strict=True) if one is None))
        computed = dict(zip(unknown, self.ops.products(self, unknown), strict=True)) if unknown else {}
        whole = [computed[other] if one is None else one for other, one in zip(placed, found, strict=True)]
        return [one if isfinite(one) else self._exact(other) for one, other in zip(whole, placed, strict=True)]

    def _known_products(self, others: Sequence[JaxVector]) -> list[float | None]:
        """The later of two vectors was multiplied with the earlier one, if they belong to one learner."""
        found: list[float | None] = [None] * len(others)
        if self._products is not None:
            found = self._products.lookup_all(self._row, [other.serial for other in others])
        for place, other in enumerate(others):
            if found[place] is None and other._products is not None:
                found[place] = other._products.lookup(other._row, self.serial)
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
        self._zeros: dict[int, JaxVector] = {}
        self.encodings: LazyEncodings[JaxVector] = LazyEncodings(self)

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

    def zeros(self, size: int) -> JaxVector:
        found = self._zeros.get(size)
        if found is None:
            found = self._zeros[size] = self.place(frozen(np.zeros(size, np.float32)))
        return found

    def compute(self, vectors: Sequence[JaxVector]) -> None:
        """Enqueue the programs that decode these vectors, and one that computes those that are lazy blends."""
        for vector in vectors:
            vector.begin()
        lazy = list(dict.fromkeys(vector for vector in vectors if vector.lazy))
        if not lazy:
            return
        terms = {term: place for place, term in enumerate(dict.fromkeys(t for one in lazy for t in one.terms))}
        arrays = [term.array for term in terms]
        # Padded to a few sizes, so that few programs are compiled; the coefficients of the padding are 0.
        coefficients = np.zeros((padded(len(lazy), len(lazy[0])), padded(len(terms), len(lazy[0]))), np.float32)
        for row, vector in enumerate(lazy):
            for term, share in vector.terms.items():
                coefficients[row, terms[term]] = share
        rows = combine(coefficients, *arrays, *[arrays[0]] * (coefficients.shape[1] - len(arrays)))
        # In another program, so that those rows are the same numbers with and without tails.
        self.compute([vector.tail[1] for vector in lazy if vector.tail is not None])
        for vector, row in zip(lazy, rows, strict=False):
            vector.set_array(row if vector.tail is None else join(vector.tail[0], row, vector.tail[1].array))

    def mean_steps(
        self, starts: Sequence[Vector], ends: Sequence[JaxVector], size: int, divisors: Sequence[np.float32]
    ) -> list[JaxVector]:
        """Enqueue the mean steps of several vectors, which remember them."""
        padding = padded(len(ends), size) - len(ends)
        before, after = [self.place(start).array for start in starts], [end.array for end in ends]
        rows = mean_steps(
            tuple(before + before[:1] * padding),
            tuple(after + after[:1] * padding),
            size,
            np.array([*divisors, *[1] * padding], np.float32),
        )
        steps = [JaxVector(self, row) for row, _ in zip(rows, ends, strict=False)]
        for start, end, divisor, step in zip(starts, ends, divisors, steps, strict=True):
            end.set_step(start, divisor, step)
        return steps

    def products(self, one: JaxVector, others: Sequence[JaxVector]) -> list[float]:
        """Compute products now, which waits for all work enqueued before."""
        (found,) = self._enqueue_products([one], others)
        return found.row(0)

    def multiply(self, live: LiveGradients, new: Sequence[JaxVector]) -> None:
        """Enqueue the products of new gradients with each other and with all live ones."""
        others = [*map(self.place, live.vectors()), *new]
        for number, products in enumerate(self._enqueue_products(new, others)):
            for row, vector in enumerate(new[number * ROWS : (number + 1) * ROWS]):
                vector.set_products(products, row, live)
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
            parts = [multiply_blocks(rows, block) for block in blocks]
            whole: Array = parts[0] if len(parts) == 1 else concatenate(*parts)
            whole.copy_to_host_async()
            found.append(Products(columns, whole))
        return found


def program_argument(weights: Weights, devices: int) -> Any:
    """Return the weights as a program takes them: without a copy, if they are on the only device that is used."""
    return weights.array if devices == 1 and isinstance(weights, JaxVector) else to_host(weights)


def _padded_block(vectors: Sequence[JaxVector], number: int) -> tuple[Array, ...]:
    arrays = [vector.array for vector in vectors]
    return tuple(arrays + [arrays[0]] * (number - len(arrays)))
