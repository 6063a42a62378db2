"""Encoding in blocks: 64 values share a scale 2^e, and each is a code of 8 or 4 bits.

e is the least exponent with which the largest magnitude m of the block fits: m <= 127 * 2^e (int8) or 7 * 2^e (int4).

A value x becomes floor(x / 2^e + u), where u is one of (k + 0.5) / 2^16 with 16 random bits k. On average that is
x / 2^e, so that many small changes add up as they should, and a multiple of 2^e is encoded exactly. Scales are powers
of two: products with them are exact, and the codes do not depend on the machine or on the order of its operations.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

from async_hfl.core.compression.encodings import (
    BLOCK,
    LOWEST_EXPONENT,
    MARKED,
    MARKED_MAGNITUDE,
    BlockForm,
    Parts,
    blocks,
)
from async_hfl.core.compression.random_bits import CHUNK, draw
from async_hfl.core.compression.scratch import Scratch

Float32s = npt.NDArray[np.float32]

_STARTS = np.arange(0, CHUNK, BLOCK)
_SIGN_OF_NIBBLE = np.int8(8)


@final
class BlockRounding:
    """The encoder of one vector in int8 or int4."""

    __slots__ = ("_form", "_key", "_parts", "_scratch")

    def __init__(self, form: BlockForm, parts: Parts, key: int, scratch: Scratch) -> None:
        self._form, self._parts, self._key, self._scratch = form, parts, key, scratch

    def encode(self, values: Float32s, place: slice) -> None:
        """Encode whole blocks: the values at this place of the vector, and zeros after its end. The place starts at a
        multiple of CHUNK."""
        first, count, number = place.start, place.stop - place.start, len(values) // BLOCK
        scratch = self._scratch
        scaled, noise = scratch.floats("scaled", len(values)), scratch.floats("noise", len(values))
        words, bits = scaled.view(np.uint32), scratch.words("bits", len(values) // 2)

        np.bitwise_and(values.view(np.uint32), 0x7FFFFFFF, out=words)
        peaks = np.maximum.reduceat(words, _STARTS[:number])
        exponents = self._exponents(peaks)
        if int(peaks.max()) >= MARKED_MAGNITUDE:
            marked = peaks >= MARKED_MAGNITUDE
            exponents[marked] = MARKED
            values = np.where(marked[:, None], np.float32(0), values.reshape(-1, BLOCK)).reshape(-1)
        block = first // BLOCK
        self._parts.exponents[block : block + number] = exponents

        drawn = draw(self._key, first, len(values), bits, words)
        np.copyto(noise, drawn)
        np.multiply(noise, np.float32(2.0**-16), out=noise)
        np.add(noise, np.float32(2.0**-17), out=noise)
        np.multiply(values.reshape(-1, BLOCK), _powers(-exponents), out=scaled.reshape(-1, BLOCK))
        np.add(scaled, noise, out=scaled)
        np.floor(scaled, out=scaled)
        self._write_codes(scaled, first, count)

    def decoded(self, place: slice) -> Float32s:
        """Return the decoded values of the place encoded last, in a buffer; 0 for a marked block."""
        count, block = place.stop - place.start, place.start // BLOCK
        exponents = self._parts.exponents[block : block + blocks(count)]
        rows = self._scratch.floats("scaled", BLOCK * len(exponents)).reshape(-1, BLOCK)
        np.multiply(rows, _powers(exponents.astype(np.int32)), out=rows)
        return rows.reshape(-1)[:count]

    def _exponents(self, peaks: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        peaks = peaks + np.uint32(self._form.carry)
        peaks >>= np.uint32(23)
        exponents = peaks.view(np.int32)
        exponents -= np.int32(self._form.offset)
        return np.maximum(exponents, np.int32(LOWEST_EXPONENT), out=exponents)

    def _write_codes(self, rounded: Float32s, first: int, count: int) -> None:
        if self._form.largest == 127:
            np.copyto(self._parts.body[first : first + count].view(np.int8), rounded[:count], casting="unsafe")
            return
        codes = self._scratch.words("bits", len(rounded) // 4).view(np.int8)
        np.copyto(codes, rounded, casting="unsafe")
        # Two codes are the bytes of one number of 16 bits: moving the second next to the first needs no strides.
        pairs = codes.view(np.uint16)[: (count + 1) // 2]
        second = pairs >> np.uint16(4)
        second &= np.uint16(0xF0)
        pairs &= np.uint16(0x0F)
        pairs |= second
        np.copyto(self._parts.body[first // 2 : (first + count + 1) // 2], pairs, casting="unsafe")


def decode_blocks(parts: Parts, form: BlockForm, start: Float32s | None, out: Float32s) -> None:
    """Write the decoded values, added to those of `start` if it is given."""
    scales = _powers(parts.exponents.astype(np.int32))
    if len(parts.exponents) and int(parts.exponents.max()) == MARKED:
        scales[parts.exponents == MARKED] = np.nan
    for first in range(0, len(out), CHUNK):
        found = out[first : first + CHUNK]
        np.copyto(found, _codes(parts, form, first, len(found)))
        whole = len(found) // BLOCK
        block = first // BLOCK
        rows = found[: whole * BLOCK].reshape(-1, BLOCK)
        np.multiply(rows, scales[block : block + whole], out=rows)
        if whole * BLOCK < len(found):
            found[whole * BLOCK :] *= scales[block + whole]
        if start is not None:
            np.add(found, start[first : first + CHUNK], out=found)


def _codes(parts: Parts, form: BlockForm, first: int, count: int) -> npt.NDArray[np.int8]:
    if form.largest == 127:
        return parts.body[first : first + count].view(np.int8)
    pairs = parts.body[first // 2 : (first + count + 1) // 2].astype(np.uint16)
    second = pairs << np.uint16(4)
    second &= np.uint16(0x0F00)
    pairs &= np.uint16(0x0F)
    pairs |= second
    codes = pairs.view(np.int8)
    codes ^= _SIGN_OF_NIBBLE
    codes -= _SIGN_OF_NIBBLE
    return codes[:count]


def _powers(exponents: npt.NDArray[np.int32]) -> Float32s:
    """Return 2^e as a column, for each e from -126 to 127; 0 for -127."""
    bits = exponents + np.int32(127)
    bits <<= np.int32(23)
    return bits.view(np.float32)[:, None]
