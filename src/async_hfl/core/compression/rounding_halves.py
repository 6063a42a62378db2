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
from async_hfl.core.compression.scratch import Scratch

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
    """The encoder of one vector in float16."""

    __slots__ = ("_key", "_parts", "_scratch")

    def __init__(self, parts: Parts, key: int, scratch: Scratch) -> None:
        self._parts, self._key, self._scratch = parts, key, scratch

    def encode(self, values: Float32s, place: slice) -> None:
        """Encode the values at this place of the vector, which zeros may follow. The place starts at a multiple of
        CHUNK."""
        first, count = place.start, place.stop - place.start
        scratch = self._scratch
        magnitude, shifted = scratch.words("bits", len(values)), scratch.floats("scaled", len(values))
        bits = scratch.words("noise", len(values))
        np.bitwise_and(values.view(np.uint32), 0x7FFFFFFF, out=magnitude)
        unfit = magnitude >= INFINITY_BITS if int(magnitude.max()) >= INFINITY_BITS else None
        np.add(magnitude.view(np.float32), np.float32(SMALLEST_NORMAL), out=shifted)
        np.add(magnitude, ONE_EXPONENT, out=magnitude)
        np.maximum(magnitude, shifted.view(np.uint32), out=magnitude)
        half = len(bits) // 2
        drawn = draw(self._key, first, len(values), bits[:half], bits[half:])
        np.right_shift(drawn, 3, out=drawn)
        np.add(magnitude, drawn, out=magnitude)
        np.right_shift(magnitude, 13, out=magnitude)
        np.subtract(magnitude, OFFSET, out=magnitude)
        np.minimum(magnitude, LARGEST, out=magnitude)
        signs = bits
        np.right_shift(values.view(np.uint32), 16, out=signs)
        np.bitwise_and(signs, 0x8000, out=signs)
        np.bitwise_or(magnitude, signs, out=magnitude)
        if unfit is not None:
            magnitude[unfit] = NOT_A_NUMBER
        halves = self._parts.halves[first : first + count]
        np.copyto(halves, magnitude[:count], casting="unsafe")

    def decoded(self, place: slice) -> Float32s:
        """Return the decoded values of this place, in a buffer."""
        found = self._scratch.floats("scaled", place.stop - place.start)
        np.copyto(found, self._parts.halves[place].view(np.float16))
        return found


def decode_halves(parts: Parts, start: Float32s | None, out: Float32s) -> None:
    """Write the decoded values, added to those of `start` if it is given."""
    halves = parts.halves.view(np.float16)
    for first in range(0, len(out), CHUNK):
        found = out[first : first + CHUNK]
        np.copyto(found, halves[first : first + CHUNK])
        if start is not None:
            np.add(found, start[first : first + CHUNK], out=found)
