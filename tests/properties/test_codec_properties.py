"""Properties of light vectors for any values: error, lossless second encoding, error feedback, packing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from async_hfl.core.compression.codec import decode, decode_change, encode, encode_change
from async_hfl.core.compression.encodings import EncodingKind, check, encoded_bytes, is_finite, split
from async_hfl.core.compression.random_bits import CHUNK
from async_hfl.core.vectors import HostVector
from async_hfl.core.weights import frozen

kinds = st.sampled_from(["float16", "int8", "int4"])
keys = st.integers(0, 2**64 - 1)
usual = st.floats(-1000, 1000, width=32)
extreme = st.floats(-(2.0**126), 2.0**126, width=32)
values = st.one_of(usual, st.sampled_from([0.0, -0.0, 1.0, -127.0, 2.0**-14, 2.0**-24, 2.0**-100, 2.0**126]), extreme)
vectors = hnp.arrays(np.float32, st.integers(0, 200), elements=values).map(frozen)
FEW = settings(max_examples=150)


def steps(vector: HostVector, encoded: npt.NDArray[np.uint8], kind: EncodingKind) -> npt.NDArray[np.float64]:
    """The distance between neighbouring values of the encoding, for each value."""
    if kind == "float16":
        return np.exp2(np.floor(np.log2(np.maximum(np.abs(vector.astype(np.float64)), 2.0**-14))) - 10)
    exponents = split(encoded, kind, len(vector), len(vector)).exponents
    return np.repeat(np.exp2(exponents.astype(np.float64)), 64)[: len(vector)]


@given(vectors, kinds, keys)
@FEW
def test_each_value_is_wrong_by_less_than_a_step(vector: HostVector, kind: EncodingKind, key: int) -> None:
    if kind == "float16":
        vector = frozen(np.clip(vector, -65504, 65504))
    encoded = encode(vector, kind, len(vector), key)
    found = decode(encoded, kind, len(vector), len(vector))
    assert (np.abs(found.astype(np.float64) - vector) < steps(vector, encoded, kind)).all()


@given(vectors, kinds, keys, st.data())
@FEW
def test_lengths_and_kept_values(vector: HostVector, kind: EncodingKind, key: int, data: st.DataObject) -> None:
    trained = data.draw(st.integers(0, len(vector)))
    encoded = encode(vector, kind, trained, key)
    check(encoded, kind, len(vector), trained)
    assert is_finite(encoded, kind, len(vector), trained)
    assert encoded.nbytes == encoded_bytes(kind, trained, len(vector) - trained)
    found = decode(encoded, kind, len(vector), trained)
    assert found.shape == vector.shape
    assert found[trained:].tobytes() == vector[trained:].tobytes()


@given(vectors, kinds, keys, keys)
@FEW
def test_a_decoded_vector_is_encoded_without_loss(vector: HostVector, kind: EncodingKind, one: int, two: int) -> None:
    size = len(vector)
    found = decode(encode(vector, kind, size, one), kind, size, size)
    np.testing.assert_array_equal(decode(encode(found, kind, size, two), kind, size, size), found)


@given(hnp.arrays(np.int8, st.integers(1, 200), elements=st.integers(-7, 7)), st.integers(-90, 100), keys)
@FEW
def test_packed_codes_come_back(codes: npt.NDArray[np.int8], exponent: int, key: int) -> None:
    vector = frozen(np.ldexp(codes.astype(np.float32), exponent))
    encoded = encode(vector, "int4", len(vector), key)
    np.testing.assert_array_equal(decode(encoded, "int4", len(vector), len(vector)), vector)


@given(st.integers(1, 130), st.integers(1, 12), kinds, keys, st.integers(0, 2**32 - 1))
@FEW
def test_with_error_feedback_changes_add_up(size: int, rounds: int, kind: EncodingKind, key: int, seed: int) -> None:
    """Only the last memory is missing from the sum of what was decoded, and that is less than one step."""
    random = np.random.default_rng(seed)
    base = frozen(random.standard_normal(size).astype(np.float32))
    memory: HostVector | None = None
    meant, received = np.zeros(size), np.zeros(size)
    for number in range(rounds):
        weights = frozen(base + (random.standard_normal(size) * 0.01).astype(np.float32))
        wanted = weights - base + (0 if memory is None else memory)
        encoded, memory = encode_change(weights, base, memory, kind, size, key + number & 2**64 - 1)
        change = decode(encoded, kind, size, size)
        assert memory is not None
        np.testing.assert_array_equal(memory, wanted - change)
        meant += weights.astype(np.float64) - base
        received += change
        base = decode_change(encoded, base, kind, size)
    assert memory is not None
    assert (np.abs(memory) < steps(wanted, encoded, kind)).all()
    # Beyond the memory there are only the roundings of float32 in weights - base + memory.
    np.testing.assert_allclose(received + memory, meant, rtol=0, atol=rounds * 2.0**-24)


@given(kinds, keys, st.integers(-130, 130), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_long_vectors_are_the_same_however_they_are_cut(kind: EncodingKind, key: int, more: int, seed: int) -> None:
    """The codes of a long vector are those of its first values, and of the last block on its own scale."""
    vector = frozen(np.random.default_rng(seed).standard_normal(2 * CHUNK + more).astype(np.float32))
    size, short = len(vector), CHUNK + 64
    whole = decode(encode(vector, kind, size, key), kind, size, size)
    np.testing.assert_array_equal(decode(encode(vector[:short], kind, short, key), kind, short, short), whole[:short])
    assert np.abs(whole - vector).max() < 1.01
    changed, _ = encode_change(vector, frozen(np.zeros(size, np.float32)), None, kind, size, key)
    np.testing.assert_array_equal(decode(changed, kind, size, size), whole)


@pytest.mark.parametrize("kind", ["float16", "int8", "int4"])
def test_the_same_key_gives_the_same_bytes_and_another_key_others(kind: EncodingKind) -> None:
    vector = frozen(np.random.default_rng(3).standard_normal(1000).astype(np.float32))
    assert encode(vector, kind, 1000, 5).tobytes() == encode(vector, kind, 1000, 5).tobytes()
    assert encode(vector, kind, 1000, 5).tobytes() != encode(vector, kind, 1000, 6).tobytes()
