"""Vectors that are encoded on a device have the bytes, decoded values and memory of the numpy codec, to the bit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.errors import InternalError
from async_hfl.core.maths.aggregation import mix
from async_hfl.core.vectors import HostVector, to_host
from async_hfl.core.weights import frozen
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device import lazy_encodings
from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps, JaxVector

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from codec import KINDS, SHAPES, compare, random_triple, same

kinds = st.sampled_from(KINDS)
keys = st.integers(0, 2**64 - 1)
SIZE, TRAINED = 131, 129
BLOCKS: list[EncodingKind] = ["int8", "int4"]
anything = st.one_of(st.floats(width=32), st.floats(-1000, 1000, width=32), st.floats(-(2.0**-99), 2.0**-99, width=32))


@pytest.fixture(scope="module")
def ops() -> DeviceOps:
    return DeviceOps(jax.local_devices()[0])


def floats(*values: float) -> HostVector:
    return frozen(np.array(values, np.float32))


def arrays(size: int, elements: st.SearchStrategy[float] = anything) -> st.SearchStrategy[HostVector]:
    return hnp.arrays(np.float32, size, elements=elements).map(frozen)


# Any values ------------------------------------------------------------------------------------------------------


@given(arrays(SIZE), arrays(SIZE), st.one_of(st.none(), arrays(TRAINED)), kinds, keys)
@settings(max_examples=300)
def test_any_values(
    ops: DeviceOps, weights: HostVector, base: HostVector, memory: HostVector | None, kind: EncodingKind, key: int
) -> None:
    assert compare(kind, (weights, base, memory), TRAINED, key, ops) == []


finite = st.floats(-(2.0**120), 2.0**120, width=32)


@given(arrays(SIZE, finite), arrays(SIZE, finite), st.one_of(st.none(), arrays(TRAINED, finite)), kinds, keys)
@settings(max_examples=100)
def test_any_finite_values(
    ops: DeviceOps, weights: HostVector, base: HostVector, memory: HostVector | None, kind: EncodingKind, key: int
) -> None:
    assert compare(kind, (weights, base, memory), TRAINED, key, ops) == []


@pytest.mark.parametrize(("size", "trained"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_cases_of_every_length(ops: DeviceOps, kind: EncodingKind, size: int, trained: int) -> None:
    random = np.random.default_rng([size, trained])
    for number in range(12):
        vectors = random_triple(random, size, trained)
        assert compare(kind, vectors, trained, number << 40 | 5, ops) == [], number


# Hand cases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_edges_of_all_scales(ops: DeviceOps, kind: EncodingKind) -> None:
    """In each block there is one edge, or a neighbour of one, among values that are smaller."""
    edges = np.array([code * 2.0**exponent for code in (1, 7, 127) for exponent in range(-149, 121)], np.float32)
    peaks = np.concatenate([np.nextafter(edges, np.float32(0)), edges, np.nextafter(edges, np.float32(np.inf))])
    rows = np.random.default_rng(1).uniform(-1, 1, (len(peaks), 64)) * peaks[:, None]
    rows[:, 5], rows[1::2, 5] = peaks, -peaks[1::2]
    vector = frozen(rows.astype(np.float32).reshape(-1))
    base = frozen(np.random.default_rng(2).permutation(vector))
    assert compare(kind, (vector, base, None), len(vector), 3, ops) == []
    assert compare(kind, (vector, frozen(np.zeros_like(vector)), base), len(vector), 4, ops) == []


def test_at_the_edges_of_halves(ops: DeviceOps) -> None:
    """Every half, its neighbours among the values of float32, and the middle between two halves."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = halves[np.isfinite(halves)].view(np.int32)
    vector = frozen(np.concatenate([bits - 1, bits, bits + 1, bits + (1 << 12)]).view(np.float32))
    assert compare("float16", (vector, frozen(vector[::-1].copy()), None), len(vector), 6, ops) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_subnormal_remainder_is_kept(ops: DeviceOps, kind: EncodingKind) -> None:
    """1.5 * 2^-126 - 2^-126 = 2^-127, which is too small for a code; the memory adds the least number of all."""
    weights, base, least = ops.place(floats(1.5 * 2.0**-126)), floats(2.0**-126), floats(2.0**-149)
    encoded, memory = weights.encode_change(base, None, kind, 1, 9)
    assert memory.to_host().tolist() == [2.0**-127]
    assert encoded.decoded.to_host().tolist() == [2.0**-126]
    _, memory = weights.encode_change(base, least, kind, 1, 9)
    assert memory.to_host().tolist() == [2.0**-127 + 2.0**-149]


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 70, 128, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_is_kept_if_a_value_is_not_finite(
    ops: DeviceOps, kind: EncodingKind, place: int, bad: float
) -> None:
    spoilt = np.ones(SIZE, np.float32)
    spoilt[place] = bad
    weights, base = frozen(spoilt), frozen(np.zeros(SIZE, np.float32))
    memory = frozen(np.linspace(0, 1, TRAINED, dtype=np.float32))
    assert compare(kind, (weights, base, memory), TRAINED, 1, ops) == []
    encoded, kept = ops.place(weights).encode_change(base, memory, kind, TRAINED, 1)
    assert not encoded.finite
    assert same(kept.to_host(), memory)
    _, kept = ops.place(weights).encode_change(base, None, kind, TRAINED, 1)
    assert same(kept.to_host(), np.zeros(TRAINED, np.float32))


@pytest.mark.parametrize("kind", BLOCKS)
def test_magnitudes_from_two_to_the_127_are_marked(ops: DeviceOps, kind: EncodingKind) -> None:
    largest = np.nextafter(np.float32(2.0**127), np.float32(0))
    assert ops.place(floats(largest)).encode(kind, 1, 1).finite
    assert not ops.place(floats(-(2.0**127))).encode(kind, 1, 1).finite


@pytest.mark.parametrize("kind", BLOCKS)
def test_if_the_sum_overflows_only_the_decoded_vector_is_infinite(ops: DeviceOps, kind: EncodingKind) -> None:
    """The change is 2^126, which comes from the memory, and its sum with the base is infinite."""
    base = floats(3e38)
    encoded, _ = ops.place(base).encode_change(base, floats(2.0**126), kind, 1, 1)
    assert encoded.finite
    assert not encoded.decoded.finite
    assert encoded.decoded.to_host().tolist() == [np.inf]
    assert compare(kind, (base, base, floats(2.0**126)), 1, 1, ops) == []


# Vectors, programs and arrays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_memories_and_decoded_vectors_stay_on_the_device(ops: DeviceOps, kind: EncodingKind) -> None:
    """Several changes with error feedback, of which each begins from the last result, as on the host."""
    random = np.random.default_rng(4)
    base, memory = ops.place(frozen(random.standard_normal(SIZE).astype(np.float32))), None
    for number in range(5):
        target = ops.place(frozen(random.standard_normal(SIZE).astype(np.float32)))
        weights = mix(base, target, 0.1)
        assert isinstance(weights, JaxVector)
        assert weights.lazy
        before = (weights.to_host(), base.to_host(), None if memory is None else memory.to_host())
        assert compare(kind, before, TRAINED, number, ops) == []
        encoded, memory = weights.encode_change(base, memory, kind, TRAINED, number)
        assert isinstance(encoded.decoded, JaxVector)
        base = encoded.decoded
        fresh, left = ops.place(before[0]).encode_change(*before[1:], kind, TRAINED, number)
        assert same(to_host(fresh.decoded), base.to_host())
        assert same(left.to_host(), memory.to_host())
        assert fresh.to_host().tobytes() == encoded.to_host().tobytes()


def test_no_program_is_compiled_for_a_key_or_for_values(ops: DeviceOps) -> None:
    one, other = (ops.place(frozen(np.full(77, value, np.float32))) for value in (1, 2))
    one.encode_change(other, one, "int4", 77, 1)[0].to_host()
    programs = lazy_encodings._encode_all._cache_size()
    other.encode_change(one, other, "int4", 77, 2**63)[0].to_host()
    assert lazy_encodings._encode_all._cache_size() == programs


def test_bytes_are_read_only_and_one_array(ops: DeviceOps) -> None:
    encoded = ops.place(floats(1, 2, 3)).encode("int8", 2, 1)
    found = encoded.to_host()
    assert found is encoded.to_host()
    assert (found.dtype, found.ndim, found.flags.writeable) == (np.uint8, 1, False)
    assert encoded.nbytes == len(found) == 8 + 4 + 1 + 2


def test_float32_is_refused(ops: DeviceOps) -> None:
    with pytest.raises(InternalError, match="float32 vectors are not encoded"):
        ops.place(floats(1)).encode("float32", 1, 1)
