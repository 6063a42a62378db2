"""Byte layout of light vectors: models, or changes of models, in float16, int8 or int4 instead of float32.

A light vector is one array of bytes, exactly as it travels (little endian):

    header    8 bytes       number n of encoded values (uint32), code of the encoding (uint8), three zero bytes
    rest      4 r bytes     float32 values that are kept exactly: statistics of normalisation layers, which come last
    body      float16       n IEEE halves
              int8          an exponent (int8) for every block of 64 values, then n codes (int8) from -127 to 127
              int4          an exponent (int8) for every block of 64 values, then two codes from -7 to 7 per byte, the
                            first in the low half of the byte

A value of int8 or int4 is code * 2^exponent. Blocks that share a power of two as their scale follow the idea of the
OCP Microscaling (MX) formats. A block that held NaN, infinity or a magnitude of 2^127 or more has the exponent 127
and codes 0: it is marked, and decoded as NaN.

Bytes from another process pass `check`, which compares their number with the expected one before anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import InternalError, PeerError

EncodingKind: TypeAlias = Literal["float32", "float16", "int8", "int4"]
"""A float32 vector travels as it is: only the other kinds are encoded."""
Encoded: TypeAlias = npt.NDArray[np.uint8]
"""One-dimensional, contiguous and read-only: the bytes of a light vector."""

BLOCK = 64
"""Number of values that share an exponent."""
HEADER_BYTES = 8
MARKED = 127
"""Exponent of a block that cannot be encoded."""
LOWEST_EXPONENT = -100
"""Exponent of blocks with tiny values or zeros only. The products of codes and scales are never subnormal."""
MARKED_MAGNITUDE = 127 + 127 << 23
"""Bits of 2^127. As integers, the bits of infinity and NaN are greater."""

_CODES: dict[EncodingKind, int] = {"float16": 1, "int8": 2, "int4": 3}
_HALF_INFINITY = 0x7C00


@dataclass(frozen=True, slots=True)
class BlockForm:
    """The numbers that distinguish int8 from int4.

    The exponent of a block with maximum m is ((bits(m) + carry) >> 23) - offset: the exponent of m itself, less that
    of the largest code, plus one if the mantissa of m exceeds that of the largest code.
    """

    largest: int
    """Largest code."""
    carry: int
    offset: int
    highest: int
    """Exponent of a block with maximum just below 2^127."""


BLOCK_FORMS: dict[EncodingKind, BlockForm] = {
    # 127 = 1.984375 * 2^6 has the mantissa 0x7e0000, and 7 = 1.75 * 2^2 the mantissa 0x600000.
    "int8": BlockForm(127, carry=0x7FFFFF - 0x7E0000, offset=127 + 6, highest=121),
    "int4": BlockForm(7, carry=0x7FFFFF - 0x600000, offset=127 + 2, highest=125),
}


@dataclass(frozen=True, slots=True)
class Parts:
    """Views of the parts of a light vector."""

    rest: npt.NDArray[np.float32]
    exponents: npt.NDArray[np.int8]
    """Empty for float16."""
    body: npt.NDArray[np.uint8]
    """Codes or halves."""

    @property
    def halves(self) -> npt.NDArray[np.uint16]:
        return self.body.view(np.uint16)


def blocks(values: int) -> int:
    """Return the number of blocks, of which the last may be shorter than the others."""
    return -(-values // BLOCK)


def encoded_bytes(kind: EncodingKind, values: int, rest: int) -> int:
    """Return the number of bytes of a vector of which `values` are encoded and `rest` are kept as float32."""
    match kind:
        case "float32":
            return 4 * (values + rest)
        case "float16":
            body = 2 * values
        case "int8":
            body = blocks(values) + values
        case "int4":
            body = blocks(values) + (values + 1) // 2
    return HEADER_BYTES + 4 * rest + body


def header(kind: EncodingKind, values: int) -> bytes:
    """Return the header of a light vector."""
    if kind not in _CODES:
        raise InternalError(f"{kind} vectors are not encoded")
    return values.to_bytes(4, "little") + bytes((_CODES[kind], 0, 0, 0))


def split(encoded: Encoded, kind: EncodingKind, size: int, trained: int) -> Parts:
    """Return views of the parts of a light vector of the expected length."""
    start = HEADER_BYTES + 4 * (size - trained)
    body = start + (blocks(trained) if kind in BLOCK_FORMS else 0)
    return Parts(
        encoded[HEADER_BYTES:start].view(np.float32), encoded[start:body].view(np.int8), encoded[body:].view(np.uint8)
    )


def check(encoded: Encoded, kind: EncodingKind, size: int, trained: int) -> None:
    """Raise PeerError unless these are the bytes of a vector of `size` values, of which `trained` are encoded.

    Values that are not finite pass, as `is_finite` reports them.
    """
    checked_parts(encoded, kind, size, trained)


def checked_parts(encoded: Encoded, kind: EncodingKind, size: int, trained: int) -> Parts:
    """Check the bytes, and return views of their parts."""
    expected = header(kind, trained)
    if not isinstance(encoded, np.ndarray) or encoded.dtype != np.uint8:
        _refuse(f"{getattr(encoded, 'dtype', type(encoded).__name__)} instead of bytes")
    if encoded.ndim != 1 or not encoded.flags.c_contiguous:
        _refuse(f"an array of {encoded.ndim} dimensions instead of a contiguous one of one dimension")
    if len(encoded) != encoded_bytes(kind, trained, size - trained):
        _refuse(f"{len(encoded)} bytes instead of {encoded_bytes(kind, trained, size - trained)}")
    found = encoded[:HEADER_BYTES].tobytes()
    if found != expected:
        _refuse_header(found, expected)
    parts = split(encoded, kind, size, trained)
    form = BLOCK_FORMS.get(kind)
    if form is None:
        # An encoder writes NaN for infinity, so that every half is either a value or visibly none.
        if _largest_half(parts.halves) >= _HALF_INFINITY and ((parts.halves & 0x7FFF) == _HALF_INFINITY).any():
            _refuse("an infinite value")
    elif trained:
        _check_blocks(parts, form, kind, trained)
    return parts


def is_finite(encoded: Encoded, kind: EncodingKind, size: int, trained: int) -> bool:
    """Return True unless a value that was encoded, or kept, was NaN or infinite (or too large for int8 and int4)."""
    return parts_are_finite(split(encoded, kind, size, trained), kind)


def parts_are_finite(parts: Parts, kind: EncodingKind) -> bool:
    if kind in BLOCK_FORMS:
        finite = not len(parts.exponents) or int(parts.exponents.max()) != MARKED
    else:
        finite = _largest_half(parts.halves) < _HALF_INFINITY
    return finite and (not len(parts.rest) or bool(np.isfinite(parts.rest).all()))


def _largest_half(halves: npt.NDArray[np.uint16]) -> int:
    """Return the bits of the largest magnitude."""
    return int((halves & 0x7FFF).max()) if len(halves) else 0


def _check_blocks(parts: Parts, form: BlockForm, kind: EncodingKind, trained: int) -> None:
    lowest, highest = int(parts.exponents.min()), int(parts.exponents.max())
    if lowest < LOWEST_EXPONENT:
        _refuse(f"an exponent of {lowest}")
    if highest > form.highest:
        marked = parts.exponents == MARKED
        unmarked = parts.exponents[~marked]
        if len(unmarked) and (found := int(unmarked.max())) > form.highest:
            _refuse(f"an exponent of {found}")
        step = BLOCK if kind == "int8" else BLOCK // 2
        if any(parts.body[step * block : step * (block + 1)].any() for block in np.flatnonzero(marked)):
            _refuse("codes in a marked block")
    if kind == "int8":
        if int(parts.body.view(np.int8).min()) == -128:
            _refuse("a code of -128")
    else:
        if trained % 2 and parts.body[-1] >> 4:
            _refuse("a last byte with a code too many")
        low, high = parts.body & 0x0F, parts.body & 0xF0
        if (low == 0x08).any() or (high == 0x80).any():
            _refuse("a code of -8")


def _refuse_header(found: bytes, expected: bytes) -> NoReturn:
    if found[:4] != expected[:4]:
        _refuse(f"{int.from_bytes(found[:4], 'little')} values instead of {int.from_bytes(expected[:4], 'little')}")
    if found[4] != expected[4]:
        _refuse(f"an encoding of code {found[4]} instead of {expected[4]}")
    _refuse("a header whose last bytes are not zero")


def _refuse(found: str) -> NoReturn:
    raise PeerError(f"an encoded vector has {found}")
