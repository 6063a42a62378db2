"""Encoding of vectors on an accelerator: one XLA program makes the same bytes as `core.compression.codec`.

The programs differ from one another in the kind of encoding, the lengths, and whether a change is encoded. Results are
the same to the bit on every device, because nothing depends on how a compiler orders or merges operations:

* Scales are powers of two. A product with one is exact, so that merging it with a sum (FMA) changes nothing. It may
  be too small to be a normal number only where it is then added to a random number of at least 2^-17.
* Sums whose last bits matter are those of `ieee_sums`, as processors treat subnormal numbers differently.
* The other operations are those of integers, and maxima.

Halves are integers throughout: a compiler may leave out a conversion to float16 and back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, final

import numpy as np

from async_hfl.core.compression.encodings import (
    BLOCK,
    BLOCK_FORMS,
    LOWEST_EXPONENT,
    MARKED,
    MARKED_MAGNITUDE,
    BlockForm,
    Encoded,
    EncodingKind,
    blocks,
    header,
)
from async_hfl.core.compression.random_bits import COUNTER_FACTOR, FIRST_FACTOR, SECOND_FACTOR, split_key
from async_hfl.core.compression.rounding_halves import (
    INFINITY_BITS,
    LARGEST,
    NOT_A_NUMBER,
    OFFSET,
    ONE_EXPONENT,
    SMALLEST_NORMAL,
)
from async_hfl.core.vectors import DeviceEncoded, DeviceVector
from async_hfl.learning.engine.backend import Array, jax, jnp, lax
from async_hfl.learning.engine.on_device.ieee_sums import MAGNITUDE, SIGN, add, bits_of, floats_of

Begin: TypeAlias = Callable[[], None]
"""A function that enqueues the program whose results an object waits for, and sets them."""


@final
class Flags:
    """Two flags: an encoding is finite, and so is the vector that it decodes to."""

    __slots__ = ("_array", "_begin", "_row")

    def __init__(self) -> None:
        self._array: Array | None = None
        self._row = 0
        self._begin: Begin | None = None

    def set_begin(self, begin: Begin) -> None:
        self._begin = begin

    def set_array(self, array: Array, row: int) -> None:
        """Set the flags of several encodings, and the row of this one."""
        self._array, self._row, self._begin = array, row, None

    def encoding(self) -> bool:
        return self._flag(0)

    def decoded(self) -> bool:
        return self._flag(1)

    def _flag(self, number: int) -> bool:
        if self._begin is not None:
            self._begin()
        return bool(np.asarray(self._array)[self._row, number])


@final
class JaxEncoded(DeviceEncoded):
    """An encoded vector on an accelerator."""

    __slots__ = ("_array", "_begin", "_bytes", "_decoded", "_flags", "_length")

    def __init__(self, length: int, decoded: DeviceVector, flags: Flags) -> None:
        self._array: Array | None = None
        self._begin: Begin | None = None
        self._bytes: Encoded | Callable[[], Encoded] | None = None
        self._length = length
        self._decoded = decoded
        self._flags = flags

    def set_begin(self, begin: Begin) -> None:
        self._begin = begin

    def set_array(self, array: Array) -> None:
        """Set the bytes."""
        self._array, self._begin = array, None

    def set_bytes(self, encoded: Callable[[], Encoded]) -> None:
        """Set a function that encodes the vector when the bytes are needed."""
        self._bytes = encoded

    @property
    def nbytes(self) -> int:
        return self._length

    @property
    def finite(self) -> bool:
        return self._flags.encoding()

    @property
    def decoded(self) -> DeviceVector:
        return self._decoded

    def to_host(self) -> Encoded:
        if self._begin is not None:
            self._begin()
        if self._bytes is None:
            self._bytes = np.array(self._array)
            self._bytes.flags.writeable = False
            self._array = None
        elif callable(self._bytes):
            self._bytes = self._bytes()
        return self._bytes


def key_argument(key: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return a key as programs take it, so that none is compiled for one key."""
    return np.array(split_key(key), np.uint32)


@partial(jax.jit, static_argnames=("kind", "trained"))
def encode(
    vector: Array, base: Array | None, memory: Array | None, key: Array, *, kind: EncodingKind, trained: int
) -> tuple[Array, Array, Array, Array | None]:
    """Return the bytes, the decoded vector, two flags (see `Flags`), and the new memory if there is a base.

    With a base, the change vector - base + memory is encoded, and its decoded value added to the base.
    """
    meant = vector[:trained]
    if base is not None:
        meant = add(meant, -base[:trained])
    if memory is not None:
        meant = add(meant, memory)
    form = BLOCK_FORMS.get(kind)
    body, found, unfit = _halves(meant, key) if form is None else _blocks(meant, key, form)
    rest = vector[trained:]
    finite = ~unfit & jnp.isfinite(rest).all()
    start = jnp.asarray(np.frombuffer(header(kind, trained), np.uint8))
    whole = jnp.concatenate([start, _bytes_of(rest), body])
    left = None
    if base is not None:
        kept = jnp.zeros(trained, jnp.float32) if memory is None else memory
        left = jnp.where(finite, add(meant, -found), kept)
        found = add(found, base[:trained])
    decoded = jnp.concatenate([found, rest])
    return whole, decoded, jnp.stack([finite, jnp.isfinite(decoded).all()]), left


def _halves(values: Array, key: Array) -> tuple[Array, Array, Array]:
    """Return the bytes of the halves, the decoded values, and whether one is NaN.

    The formulas are those of `core.compression.rounding_halves`.
    """
    signs, magnitude = bits_of(values) & SIGN, bits_of(values) & MAGNITUDE
    unfit = magnitude >= INFINITY_BITS
    shifted = bits_of(floats_of(magnitude) + jnp.float32(SMALLEST_NORMAL))
    rounded = jnp.maximum(magnitude + ONE_EXPONENT, shifted) + (_draw(key, len(values)) >> 3)
    halves = jnp.minimum((rounded >> 13) - OFFSET, LARGEST)
    body = _bytes_of(jnp.where(unfit, NOT_A_NUMBER, halves | (signs >> 16)).astype(jnp.uint16))
    # Subnormal halves are multiples of 2^-24; the others lack 13 bits of the mantissa and 112 of the exponent.
    subnormal = bits_of(halves.astype(jnp.float32) * jnp.float32(2.0**-24))
    normal = (halves << 13) + (127 - 15 << 23)
    found = floats_of(jnp.where(halves < 1 << 10, subnormal, normal) | signs)
    return body, jnp.where(unfit, jnp.nan, found), unfit.any()


def _blocks(values: Array, key: Array, form: BlockForm) -> tuple[Array, Array, Array]:
    """Return the bytes of exponents and codes, the decoded values, and whether a block is marked.

    The formulas are those of `core.compression.rounding_blocks`.
    """
    count, number = len(values), blocks(len(values))
    rows = jnp.pad(values, (0, BLOCK * number - count)).reshape(number, BLOCK)
    peaks = (bits_of(rows) & MAGNITUDE).max(axis=1, keepdims=True)
    marked = peaks >= MARKED_MAGNITUDE
    fitting = ((peaks + form.carry) >> 23).astype(jnp.int32) - form.offset
    exponents = jnp.where(marked, MARKED, jnp.maximum(fitting, LOWEST_EXPONENT))
    noise = _draw(key, BLOCK * number).reshape(number, BLOCK).astype(jnp.float32) * jnp.float32(2.0**-16)
    noise += jnp.float32(2.0**-17)
    rounded = jnp.floor(jnp.where(marked, 0.0, rows) * _powers(-exponents) + noise)
    found = jnp.where(marked, jnp.nan, rounded * _powers(exponents)).reshape(-1)[:count]
    codes = _bytes_of(rounded.astype(jnp.int8).reshape(-1))
    if form.largest == 127:
        body = codes[:count]
    else:
        pairs = codes.reshape(-1, 2)[: (count + 1) // 2] & 0x0F
        body = pairs[:, 0] | (pairs[:, 1] << 4)
    return jnp.concatenate([_bytes_of(exponents.astype(jnp.int8).reshape(-1)), body]), found, marked.any()


def _powers(exponents: Array) -> Array:
    """Return 2^e for each e from -126 to 127; 0 for -127."""
    return floats_of((exponents + 127 << 23).astype(jnp.uint32))


def _draw(key: Array, count: int) -> Array:
    """Return 16 random bits for each value, those of `core.compression.random_bits`."""
    number = lax.iota(jnp.uint32, count)
    found: Array = (number >> 1) * jnp.uint32(COUNTER_FACTOR) + key[0]
    found = (found ^ (found >> 16)) * jnp.uint32(FIRST_FACTOR) ^ key[1]
    found = (found ^ (found >> 15)) * jnp.uint32(SECOND_FACTOR)
    found ^= found >> 16
    found >>= number % 2 * 16
    return found & 0xFFFF


def _bytes_of(numbers: Array) -> Array:
    """Return the bytes of numbers, the lowest of each first, on every device."""
    found: Array = lax.bitcast_convert_type(numbers, jnp.uint8).reshape(-1)
    return found
