"""Light updates: models, and changes of models, that travel in float16, int8 or int4.

A change is encoded with error feedback: the sender keeps what rounding left of it (its memory), and adds that to its
next change. The sum of all changes that were decoded then differs from the sum of those that were meant by the last
memory only.

The first `trained` values of a vector are encoded, the others (statistics of normalisation layers) are kept as they
are. `key` is a number of 64 bits that determines all rounding; every vector should have its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from async_hfl.core.compression.encodings import (
    BLOCK,
    BLOCK_FORMS,
    Encoded,
    EncodingKind,
    Parts,
    blocks,
    checked_parts,
    encoded_bytes,
    header,
    parts_are_finite,
    split,
)
from async_hfl.core.compression.random_bits import CHUNK
from async_hfl.core.compression.rounding_blocks import BlockRounding, decode_blocks
from async_hfl.core.compression.rounding_halves import HalfRounding, decode_halves
from async_hfl.core.compression.scratch import Scratch
from async_hfl.core.vectors import HostVector
from async_hfl.core.weights import frozen


def encode(
    vector: HostVector,
    kind: EncodingKind,
    trained: int,
    key: int,
    scratch: Scratch | None = None,
    decoded: HostVector | None = None,
) -> Encoded:
    """Return the encoded vector. Values that are not finite are marked, so that a receiver refuses the vector.

    If all values are finite, the values that `decode` would return are written to `decoded`, which costs less.
    """
    scratch = scratch or Scratch()
    encoded, parts = _empty(kind, len(vector), trained)
    parts.rest[:] = vector[trained:]
    rounding = _rounding(kind, parts, key, scratch)
    with np.errstate(all="ignore"):
        for part in _chunks(trained):
            values = vector[part]
            if len(values) % BLOCK:
                padded = _whole_blocks(len(values), scratch)
                padded[: len(values)] = values
                values = padded
            rounding.encode(values, part)
            if decoded is not None:
                np.copyto(decoded[part], rounding.decoded(part))
    if decoded is not None:
        decoded[trained:] = vector[trained:]
    return _sealed(encoded)


def encode_change(
    weights: HostVector,
    base: HostVector,
    memory: HostVector | None,
    kind: EncodingKind,
    trained: int,
    key: int,
    scratch: Scratch | None = None,
    decoded: HostVector | None = None,
) -> tuple[Encoded, HostVector | None]:
    """Return weights - base + memory, encoded, and the new memory; no memory means zeros.

    If a value is not finite, the encoded vector says so, and the memory is returned unchanged. If all are, `decoded` is
    given what `decode_change` will return, for less than that costs.
    """
    scratch = scratch or Scratch()
    encoded, parts = _empty(kind, len(weights), trained)
    parts.rest[:] = weights[trained:]
    rounding = _rounding(kind, parts, key, scratch)
    left = np.empty(trained, np.float32)
    with np.errstate(all="ignore"):  # an overflow is marked
        for part in _chunks(trained):
            values = _whole_blocks(part.stop - part.start, scratch)
            meant = values[: part.stop - part.start]
            np.subtract(weights[part], base[part], out=meant)
            if memory is not None:
                np.add(meant, memory[part], out=meant)
            rounding.encode(values, part)
            rounded = rounding.decoded(part)
            np.subtract(meant, rounded, out=left[part])
            if decoded is not None:
                np.add(rounded, base[part], out=decoded[part])
    if decoded is not None:
        decoded[trained:] = weights[trained:]
    return _sealed(encoded), frozen(left) if parts_are_finite(parts, kind) else memory


def decode(encoded: Encoded, kind: EncodingKind, size: int, trained: int) -> HostVector:
    """Return a vector of `size` values; raise PeerError if that is not what the bytes are. Marked values are NaN."""
    return _decode(encoded, None, kind, size, trained)


def decode_change(encoded: Encoded, base: HostVector, kind: EncodingKind, trained: int) -> HostVector:
    """Return the base plus the decoded change, with the values that were kept instead of the last ones of the base.

    The sum may overflow, so it is the result whose values need to be finite.
    """
    return _decode(encoded, base, kind, len(base), trained)


def _decode(encoded: Encoded, base: HostVector | None, kind: EncodingKind, size: int, trained: int) -> HostVector:
    parts = checked_parts(encoded, kind, size, trained)
    vector = np.empty(size, np.float32)
    start = None if base is None else base[:trained]
    form = BLOCK_FORMS.get(kind)
    with np.errstate(all="ignore"):
        if form is None:
            decode_halves(parts, start, vector[:trained])
        else:
            decode_blocks(parts, form, start, vector[:trained])
    vector[trained:] = parts.rest
    return frozen(vector)


def _empty(kind: EncodingKind, size: int, trained: int) -> tuple[Encoded, Parts]:
    encoded = np.empty(encoded_bytes(kind, trained, size - trained), np.uint8)
    start = header(kind, trained)
    encoded[: len(start)] = np.frombuffer(start, np.uint8)
    return encoded, split(encoded, kind, size, trained)


def _rounding(kind: EncodingKind, parts: Parts, key: int, scratch: Scratch) -> BlockRounding | HalfRounding:
    form = BLOCK_FORMS.get(kind)
    return HalfRounding(parts, key, scratch) if form is None else BlockRounding(form, parts, key, scratch)


def _chunks(trained: int) -> Iterator[slice]:
    """Yield the parts of a vector that are encoded one after another."""
    for first in range(0, trained, CHUNK):
        yield slice(first, min(first + CHUNK, trained))


def _whole_blocks(count: int, scratch: Scratch) -> HostVector:
    """Return a buffer for this many values, which zeros follow to the end of the last block."""
    values = scratch.floats("values", BLOCK * blocks(count))
    values[count:] = 0.0
    return values


def _sealed(encoded: Encoded) -> Encoded:
    encoded.flags.writeable = False
    return encoded
