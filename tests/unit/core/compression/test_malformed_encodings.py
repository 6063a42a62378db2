"""Bytes that are no light vector: each is refused by name, or decoded to the right length, within bounded memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from async_hfl.core.compression.codec import decode, decode_change, encode
from async_hfl.core.compression.encodings import Encoded, EncodingKind, check, encoded_bytes, is_finite
from async_hfl.core.compression.random_bits import CHUNK
from async_hfl.core.errors import PeerError
from async_hfl.core.weights import frozen

LIGHT: list[EncodingKind] = ["float16", "int8", "int4"]
SIZE, TRAINED = 135, 131
REST = 4 * (SIZE - TRAINED)
MUTATIONS = 20_000


def well_formed(kind: EncodingKind) -> Encoded:
    values = np.random.default_rng(5).standard_normal(SIZE).astype(np.float32)
    return encode(frozen(values), kind, TRAINED, 9)


def changed(encoded: Encoded, place: int, byte: int) -> Encoded:
    copy = encoded.copy()
    copy[place] = byte
    return copy


@pytest.mark.parametrize(
    ("kind", "place", "byte", "message"),
    [
        ("int8", 0, 1, "an encoded vector has 1 values instead of 131"),
        ("int8", 4, 3, "an encoding of code 3 instead of 2"),
        ("int4", 4, 0, "an encoding of code 0 instead of 3"),
        ("float16", 7, 1, "a header whose last bytes are not zero"),
        ("int8", 8 + REST, 128 + 27, "an exponent of -101"),
        ("int8", 8 + REST + 1, 122, "an exponent of 122"),
        ("int4", 8 + REST + 1, 126, "an exponent of 126"),
        ("int8", 8 + REST + 2, 127, "codes in a marked block"),
        ("int4", 8 + REST + 2, 127, "codes in a marked block"),
        ("int8", 8 + REST + 3, 128, "a code of -128"),
        ("int4", 8 + REST + 3, 0x18, "a code of -8"),
        ("int4", 8 + REST + 3, 0x81, "a code of -8"),
        ("int4", -1, 0x11, "a last byte with a code too many"),
    ],
)
def test_the_refusal_names_the_mistake(kind: EncodingKind, place: int, byte: int, message: str) -> None:
    wrong = changed(well_formed(kind), place, byte)
    with pytest.raises(PeerError, match=message):
        check(wrong, kind, SIZE, TRAINED)
    with pytest.raises(PeerError, match=message):
        decode(wrong, kind, SIZE, TRAINED)


def test_an_infinite_half_is_refused() -> None:
    wrong = well_formed("float16")
    with pytest.raises(PeerError, match="an infinite value"):
        check(changed(changed(wrong, 8 + REST, 0), 9 + REST, 0xFC), "float16", SIZE, TRAINED)


@pytest.mark.parametrize("kind", LIGHT)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda encoded: encoded[:-1], "bytes instead of"),
        (lambda encoded: encoded[:0], "0 bytes instead of"),
        (lambda encoded: np.append(encoded, np.uint8(0)), "bytes instead of"),
        (lambda encoded: encoded.view(np.int8), "int8 instead of bytes"),
        (lambda encoded: encoded.tobytes(), "bytes instead of bytes"),
        (lambda encoded: encoded[None], "an array of 2 dimensions"),
        (lambda encoded: np.repeat(encoded, 2)[::2], "instead of a contiguous one"),
    ],
)
def test_the_array_itself_is_wrong(kind: EncodingKind, make: Any, message: str) -> None:
    with pytest.raises(PeerError, match=message):
        check(make(well_formed(kind)), kind, SIZE, TRAINED)


@pytest.mark.parametrize("kind", LIGHT)
def test_marked_blocks_and_nan_pass(kind: EncodingKind) -> None:
    values = np.ones(SIZE, np.float32)
    values[[3, 130, 134]] = np.nan
    encoded = encode(frozen(values), kind, TRAINED, 9)
    check(encoded, kind, SIZE, TRAINED)
    assert not is_finite(encoded, kind, SIZE, TRAINED)


def mutated(encoded: Encoded, random: np.random.Generator) -> Encoded:
    copy = encoded.copy()
    match random.integers(6):
        case 0:
            return copy[: random.integers(len(copy))]
        case 1:
            return np.append(copy, random.integers(0, 256, random.integers(1, 9)).astype(np.uint8))
        case 2:
            for _ in range(random.integers(1, 5)):
                copy[random.integers(len(copy))] ^= 1 << random.integers(8)
        case 3:
            copy[random.integers(8)] = random.integers(256)
        case 4:
            copy[random.integers(8, 8 + REST + 8)] = random.integers(256)
        case _:
            copy[8:] = random.integers(0, 256, len(copy) - 8)
    return copy


@pytest.mark.parametrize("kind", LIGHT)
def test_mutated_bytes_are_refused_or_decoded(kind: EncodingKind) -> None:
    random = np.random.default_rng(17)
    encoded, base = well_formed(kind), frozen(np.ones(SIZE, np.float32))
    decoded = 0
    for _ in range(MUTATIONS // len(LIGHT) + 1):
        wrong = mutated(encoded, random)
        try:
            vector = decode(wrong, kind, SIZE, TRAINED)
        except PeerError:
            with pytest.raises(PeerError):
                check(wrong, kind, SIZE, TRAINED)
            continue
        decoded += 1
        check(wrong, kind, SIZE, TRAINED)
        assert (vector.shape, vector.dtype) == ((SIZE,), np.float32)
        assert not np.isinf(vector[:TRAINED]).any()
        assert is_finite(wrong, kind, SIZE, TRAINED) == np.isfinite(vector).all()
        assert len(decode_change(wrong, base, kind, TRAINED)) == SIZE
    assert decoded > 100  # flipped bits of values are values


def peak_bytes(work: Any) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", LIGHT)
def test_lengths_are_checked_before_memory_is_used(kind: EncodingKind) -> None:
    short = well_formed(kind)
    short = changed(short, 3, 0xFF)  # says that it has 4 billion values

    def refuse() -> None:
        with pytest.raises(PeerError):
            decode(short, kind, SIZE, TRAINED)
        with pytest.raises(PeerError):
            decode(short, kind, 1 << 31, 1 << 31)

    refuse()
    assert peak_bytes(refuse) < 100_000


@pytest.mark.parametrize("kind", LIGHT)
def test_memory_is_bounded_by_the_vector(kind: EncodingKind) -> None:
    size = 1_000_000
    values = frozen(np.ones(size, np.float32))
    encoded = encode(values, kind, size, 1)
    buffers = 16 * CHUNK
    assert peak_bytes(lambda: encode(values, kind, size, 1)) < encoded_bytes(kind, size, 0) + buffers + 100_000
    assert peak_bytes(lambda: decode(encoded, kind, size, size)) < 4 * size + 1_000_000
    surplus = np.zeros(50 * size, np.uint8)

    def refuse() -> None:
        with pytest.raises(PeerError):
            decode(surplus, kind, size, size)

    assert peak_bytes(refuse) < 1_000_000
