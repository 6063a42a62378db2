"""Encoding as IEEE halves (float16), rounded at random so that the average is the value.

A normal half has the mantissa of a float32 without its last 13 bits. Adding 13 random bits before these are cut off
rounds up with exactly the right probability, and a value without them is encoded exactly.

Below 2^-14 halves are multiples of 2^-24. A magnitude m is there replaced by m + 2^-14, whose last 13 bits are again
those below 2^-24; the exponent that this adds is subtracted afterwards. The replacement is also the greater of the two
ways of rounding precisely where it applies, so no value needs to be tested.

Finite values beyond 65504 become ±65504; NaN and infinity become NaN, of one form, as the sign of a NaN that was
computed depends on the processor.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

from async_hfl.core.compression.encodings import Parts
from async_hfl.core.compression.random_bits import CHUNK, draw

Float32s = npt.NDArray[np.float32]

SMALLEST_NORMAL = 2.0**-14
ONE_EXPONENT = 1 << 23
"""Added to the bits of a float32, it doubles the value."""
OFFSET = 127 - 14 << 10
"""Bits of 2^-14 without the last 13, as the halves to subtract."""
LARGEST = 0x7BFF
"""Bits of 65504."""
NOT_A_NUMBER = 0x7E00
INFINITY_BITS = 0x7F800000


@final
class HalfRounding:
    """The encoder of one vector in float16: it holds the buffers that all chunks of the vector share."""

    __slots__ = ("_bits", "_key", "_magnitude", "_parts", "_shifted")

    def __init__(self, parts: Parts, key: int, longest: int) -> None:
        self._parts, self._key = parts, key
        length = longest + longest % 2
        self._magnitude = np.empty(length, np.uint32)
        self._shifted = np.empty(length, np.float32)
        self._bits = np.empty(length, np.uint32)

    def encode(self, values: Float32s, first: int, left: Float32s | None) -> None:
        """Encode the values from number `first`, a multiple of CHUNK; write to `left` what rounding left of them."""
        count = len(values)
        magnitude, shifted = self._magnitude[:count], self._shifted[:count]
        np.bitwise_and(values.view(np.uint32), 0x7FFFFFFF, out=magnitude)
        unfit = magnitude >= INFINITY_BITS if int(magnitude.max()) >= INFINITY_BITS else None
        np.add(magnitude.view(np.float32), np.float32(SMALLEST_NORMAL), out=shifted)
        np.add(magnitude, ONE_EXPONENT, out=magnitude)
        np.maximum(magnitude, shifted.view(np.uint32), out=magnitude)
        half = len(self._bits) // 2
        drawn = draw(self._key, first, count, self._bits[:half], self._bits[half:])
        np.right_shift(drawn, 3, out=drawn)
        np.add(magnitude, drawn, out=magnitude)
        np.right_shift(magnitude, 13, out=magnitude)
        np.subtract(magnitude, OFFSET, out=magnitude)
        np.minimum(magnitude, LARGEST, out=magnitude)
        signs = self._bits[:count]
        np.right_shift(values.view(np.uint32), 16, out=signs)
        np.bitwise_and(signs, 0x8000, out=signs)
        np.bitwise_or(magnitude, signs, out=magnitude)
        if unfit is not None:
            magnitude[unfit] = NOT_A_NUMBER
        halves = self._parts.halves[first : first + count]
        np.copyto(halves, magnitude, casting="unsafe")
        if left is not None:
            np.subtract(values, halves.view(np.float16), out=left)


def decode_halves(parts: Parts, start: Float32s | None, out: Float32s) -> None:
    """Write the decoded values, added to those of `start` if it is given."""
    halves = parts.halves.view(np.float16)
    for first in range(0, len(out), CHUNK):
        found = out[first : first + CHUNK]
        np.copyto(found, halves[first : first + CHUNK])
        if start is not None:
            np.add(found, start[first : first + CHUNK], out=found)
