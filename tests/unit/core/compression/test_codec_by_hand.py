"""Light vectors by hand: bytes, exponents, codes, random bits, and values that cannot be encoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from async_hfl.core.compression import rounding_blocks, rounding_halves
from async_hfl.core.compression.codec import decode, decode_change, encode, encode_change
from async_hfl.core.compression.encodings import EncodingKind, check, encoded_bytes, is_finite, split
from async_hfl.core.compression.random_bits import CHUNK, draw
from async_hfl.core.errors import InternalError
from async_hfl.core.randomness import scramble
from async_hfl.core.vectors import HostVector
from async_hfl.core.weights import frozen

LIGHT: list[EncodingKind] = ["float16", "int8", "int4"]
BLOCKS: list[EncodingKind] = ["int8", "int4"]
MASK = (1 << 32) - 1


def floats(*values: float) -> HostVector:
    return frozen(np.array(values, np.float32))


def exponents(vector: HostVector, kind: EncodingKind) -> list[int]:
    found: list[int] = split(encode(vector, kind, len(vector), 1), kind, len(vector), len(vector)).exponents.tolist()
    return found


# Bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        # 1 is 0x3c00 and -2 is 0xc000; 5.5 is 1.375 * 2^2, so 0x4580.
        ("float16", "003c 00c0 8045"),
        # 127 * 2^-5 = 3.97 < 5.5 <= 127 * 2^-4, so the unit is 1/16: codes 16, -32 and 88.
        ("int8", "fc 10 e0 58"),
        # 7 * 2^-1 = 3.5 < 5 <= 7 * 2^0, so the unit is 1: codes 1 and -2 (14 as a nibble), then 5 and padding.
        ("int4", "00 e1 05"),
    ],
)
def test_every_byte_of_a_tiny_vector(kind: EncodingKind, body: str) -> None:
    code = {"float16": "01", "int8": "02", "int4": "03"}[kind]
    rest = "0000c03f 000080be"  # 1.5 and -0.25
    vector = floats(1, -2, 5 if kind == "int4" else 5.5, 1.5, -0.25)
    encoded = encode(vector, kind, 3, key=1)
    assert encoded.tobytes() == bytes.fromhex(f"03000000 {code} 000000 {rest} {body}")
    assert len(encoded) == encoded_bytes(kind, 3, 2)
    np.testing.assert_array_equal(decode(encoded, kind, 5, 3), vector)


def test_number_of_bytes() -> None:
    assert encoded_bytes("float32", 100, 3) == 412
    assert encoded_bytes("float16", 100, 3) == 8 + 12 + 200
    assert encoded_bytes("int8", 100, 3) == 8 + 12 + 2 + 100
    assert encoded_bytes("int4", 101, 3) == 8 + 12 + 2 + 51
    assert encoded_bytes("int8", 0, 0) == 8


def test_float32_vectors_are_not_encoded() -> None:
    with pytest.raises(InternalError, match="float32 vectors are not encoded"):
        encode(floats(1), "float32", 1, 1)


@pytest.mark.parametrize("kind", LIGHT)
@pytest.mark.parametrize("rest", [0, 3])
def test_no_values_at_all(kind: EncodingKind, rest: int) -> None:
    vector = frozen(np.arange(rest, dtype=np.float32))
    encoded, memory = encode_change(vector, vector, None, kind, 0, 1)
    assert memory is not None
    assert (len(encoded), len(memory)) == (8 + 4 * rest, 0)
    assert is_finite(encoded, kind, rest, 0)
    np.testing.assert_array_equal(decode(encoded, kind, rest, 0), vector)


@pytest.mark.parametrize("kind", LIGHT)
def test_everything_that_is_returned_is_read_only(kind: EncodingKind) -> None:
    vector, base = floats(1, 2, 3), floats(0, 0, 0)
    encoded, memory = encode_change(vector, base, None, kind, 2, 1)
    assert memory is not None
    found = (encoded, memory, encode(vector, kind, 2, 1), decode(encoded, kind, 3, 2))
    assert not any(array.flags.writeable for array in (*found, decode_change(encoded, base, kind, 2)))


# Exponents -------------------------------------------------------------------------------------------------------


def test_each_block_of_64_has_its_own_exponent() -> None:
    vector = np.zeros(64 * 3 + 1, np.float32)
    vector[63], vector[64], vector[192] = 1.0, -300.0, 0.001
    # 1 <= 127 / 64; 300 <= 127 * 4; 0.001 <= 127 * 2^-16 = 0.0019, but not 127 * 2^-17.
    assert exponents(frozen(vector), "int8") == [-6, 2, -100, -16]
    # 1 <= 7 / 4; 300 <= 7 * 64; 0.001 <= 7 * 2^-12 = 0.0017, but not 7 * 2^-13.
    assert exponents(frozen(vector), "int4") == [-2, 6, -100, -12]


@pytest.mark.parametrize(("kind", "largest", "highest"), [("int8", 127, 121), ("int4", 7, 125)])
def test_the_exponent_is_the_least_that_fits(kind: EncodingKind, largest: int, highest: int) -> None:
    for exponent in range(-99, highest):
        edge = np.float32(largest * 2.0**exponent)
        above = np.nextafter(edge, np.float32(np.inf))
        assert exponents(floats(edge), kind) == [exponent]
        assert exponents(floats(-above), kind) == [exponent + 1]
    assert exponents(floats(np.nextafter(np.float32(2.0**127), np.float32(0))), kind) == [highest]
    for tiny in (0.0, -0.0, 1e-45, 2.0**-126, largest * 2.0**-100):
        assert exponents(floats(tiny), kind) == [-100]


# Rounding --------------------------------------------------------------------------------------------------------


def reference_bits(key: int, number: int) -> int:
    """The 16 bits of one value, with Python's integers."""
    low, high = scramble(key) & MASK, scramble(key) >> 32
    x = (number // 2 * 0x9E3779B1 + low) & MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x ^= high
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK
    x ^= x >> 16
    return x >> 16 if number % 2 else x & 0xFFFF


def drawn(key: int, first: int, count: int) -> npt.NDArray[np.uint16]:
    return draw(key, first, count, np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32))


def test_random_bits_by_definition() -> None:
    key = 0x0123456789ABCDEF
    assert drawn(key, 0, 5).tolist() == [reference_bits(key, number) for number in range(5)]
    assert drawn(key, 3 * CHUNK, 4).tolist() == [reference_bits(key, 3 * CHUNK + number) for number in range(4)]


@pytest.mark.parametrize("other", [1 << bit for bit in (0, 1, 16, 31, 32, 33, 48, 63)])
def test_random_bits_are_fair_and_differ_between_keys(other: int) -> None:
    """CHUNK fair bits deviate from their mean by 6 standard deviations once in 10^9 draws; these draws are fixed."""
    one, another = drawn(99, 0, CHUNK), drawn(99 ^ other, 0, CHUNK)
    for bits in (another, one ^ another, another[1:] ^ another[:-1]):
        shares = np.array([(bits >> bit & 1).mean() for bit in range(16)])
        assert np.abs(shares - 0.5).max() < 6 * 0.5 / len(bits) ** 0.5


def test_codes_by_definition() -> None:
    """64 values with maximum 100: the unit is 1, and each code is floor(x + (k + 0.5) / 2^16)."""
    values = np.linspace(-100, 99.7, 64).astype(np.float32)
    encoded = encode(frozen(values), "int8", 64, key=7)
    expected = [int(np.floor(float(x) + (reference_bits(7, i) + 0.5) / 65536)) for i, x in enumerate(values)]
    assert encoded[8] == 0
    assert encoded[9:].view(np.int8).tolist() == expected


def all_bits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Value i draws k = i, so that 65,536 values draw every k."""

    def in_order(key: int, first: int, count: int, *buffers: Any) -> npt.NDArray[np.uint16]:
        return np.arange(first, first + count, dtype=np.uint32).astype(np.uint16)

    monkeypatch.setattr(rounding_blocks, "draw", in_order)
    monkeypatch.setattr(rounding_halves, "draw", in_order)


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.1, 0.25, 1 / 3, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("kind", "low"), [("int8", 64), ("int4", 4)])
def test_rounding_is_unbiased_over_all_random_numbers(
    kind: EncodingKind, low: int, share: float, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_bits_once(monkeypatch)
    value = np.float32(sign * (low + share))
    found = decode(encode(np.full(65536, value), kind, 65536, 1), kind, 65536, 65536)
    assert abs(float(found.mean(dtype=np.float64)) - float(value)) <= 2.0**-16
    assert set(found.tolist()) <= {np.floor(value), np.ceil(value)}


@pytest.mark.parametrize("value", [1.0001, 0.3, -1234.567, 65503.9, 6.1e-5, 1e-5, -3e-8, 1e-9, 2.0**-15 + 2.0**-37])
def test_halves_are_unbiased_over_all_random_numbers(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    all_bits_once(monkeypatch)
    found = decode(encode(np.full(65536, value, np.float32), "float16", 65536, 1), "float16", 65536, 65536)
    # 13 random bits decide; below 2^-14 the value is first rounded to a multiple of 2^-37.
    room = 0.0 if abs(value) >= 2.0**-14 else 2.0**-38
    assert abs(float(found.mean(dtype=np.float64)) - float(np.float32(value))) <= room
    assert len(set(found.tolist())) <= 2


def test_every_half_is_encoded_exactly() -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    values = frozen(halves[np.isfinite(halves)].astype(np.float32))
    for key in (1, 2, 3):
        encoded = encode(values, "float16", len(values), key)
        assert decode(encoded, "float16", len(values), len(values)).tobytes() == values.tobytes()


def test_halves_are_never_infinite() -> None:
    vector = floats(65504, 65519, 65520, 70000, -1e38, 3.4e38)
    encoded = encode(vector, "float16", 6, 1)
    assert is_finite(encoded, "float16", 6, 6)
    assert decode(encoded, "float16", 6, 6).tolist() == [65504, 65504, 65504, 65504, -65504, 65504]


# Values that cannot be encoded -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", LIGHT)
@pytest.mark.parametrize("place", [0, 70, 129])
def test_a_value_that_is_not_finite_is_visible(kind: EncodingKind, value: float, place: int) -> None:
    vector = np.ones(130, np.float32)
    vector[place] = value
    encoded = encode(frozen(vector), kind, 128, 1)
    check(encoded, kind, 130, 128)
    assert not is_finite(encoded, kind, 130, 128)
    spoilt = np.isnan(decode(encoded, kind, 130, 128)) | np.isinf(decode(encoded, kind, 130, 128))
    assert spoilt[place]
    block = (
        slice(place, place + 1) if kind == "float16" or place >= 128 else slice(place // 64 * 64, place // 64 * 64 + 64)
    )
    assert np.flatnonzero(spoilt).tolist() == list(range(*block.indices(130)))


def test_every_half_that_is_no_number_has_the_same_bits() -> None:
    """Whether inf - inf has a sign depends on the processor."""
    values = np.array([0x7FC00000, 0xFFC00001, 0x7F800000, 0xFF800000], np.uint32).view(np.float32)
    assert encode(frozen(values), "float16", 4, 1)[8:].view(np.uint16).tolist() == [0x7E00] * 4


@pytest.mark.parametrize("kind", BLOCKS)
def test_magnitudes_from_two_to_the_127_are_refused(kind: EncodingKind) -> None:
    assert is_finite(encode(floats(1.9 * 2.0**126), kind, 1, 1), kind, 1, 1)
    assert not is_finite(encode(floats(-(2.0**127)), kind, 1, 1), kind, 1, 1)


@pytest.mark.parametrize("kind", LIGHT)
@pytest.mark.parametrize("spoilt", [(np.nan, 0, 0), (0, 0, np.inf)])
@pytest.mark.parametrize("memory", [None, floats(0.25, 0.5)])
def test_the_memory_is_kept_if_a_value_is_not_finite(
    kind: EncodingKind, spoilt: tuple[float, ...], memory: HostVector | None
) -> None:
    encoded, kept = encode_change(floats(*spoilt), floats(1, 1, 1), memory, kind, 2, 1)
    assert kept is memory
    assert not is_finite(encoded, kind, 3, 2)


@pytest.mark.parametrize("kind", LIGHT)
def test_an_overflow_of_the_change_is_visible(kind: EncodingKind) -> None:
    encoded, memory = encode_change(floats(3e38), floats(-3e38), None, kind, 1, 1)
    assert memory is None
    assert not is_finite(encoded, kind, 1, 1)


def test_a_sum_that_overflows_is_infinite() -> None:
    encoded = encode(floats(2.0**126), "int8", 1, 1)
    assert decode_change(encoded, floats(3e38), "int8", 1).tolist() == [np.inf]


# Changes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_change_by_hand(kind: EncodingKind) -> None:
    """The change (4, 0.25) plus the memory (1, 0.25) is (5, 0.5); with a peak of 5 the unit is 1/16 or 1."""
    weights, base, memory = floats(10, 2.25, 9), floats(6, 2, 8), floats(1, 0.25)
    encoded, new = encode_change(weights, base, memory, kind, 2, key=3)
    assert new is not None
    rounded = float(np.floor(0.5 + (reference_bits(3, 1) + 0.5) / 65536)) if kind == "int4" else 0.5
    assert decode(encoded, kind, 3, 2).tolist() == [5, rounded, 9]
    assert new.tolist() == [0, 0.5 - rounded]
    assert decode_change(encoded, base, kind, 2).tolist() == [11, 2 + rounded, 9]
