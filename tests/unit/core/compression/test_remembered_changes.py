"""The codec of a simulation remembers what a change decodes to; that is what decoding its bytes gives. It also
remembers the bytes of a decoded gradient, which would be encoded exactly."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from async_hfl.core.compression import codec
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.compression.random_bits import CHUNK
from async_hfl.core.vectors import HostVector
from async_hfl.core.weights import frozen

KINDS: list[EncodingKind] = ["float16", "int8", "int4"]


def vectors(count: int, size: int) -> list[HostVector]:
    random = np.random.default_rng(size)
    return [frozen(random.standard_normal(size).astype(np.float32)) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "trained"), [(64, 64), (201, 200), (CHUNK + 77, CHUNK + 70)])
def test_a_remembered_change_is_what_its_bytes_decode_to(kind: EncodingKind, size: int, trained: int) -> None:
    weights, base = vectors(2, size)
    models = ModelCodec(kind, kind, size=size, trained=trained, simulated=True)
    change, memory = models.encode_change(weights, base, None, 7)
    assert isinstance(change, np.ndarray)
    known = models.decode_change(change, base)
    assert known is models.decode_change(change, base)
    decoded = codec.decode_change(change, base, kind, trained)
    assert isinstance(known, np.ndarray)
    assert known.tobytes() == decoded.tobytes()
    assert not known.flags.writeable
    apart, left = codec.encode_change(weights, base, None, kind, trained, 7)
    assert memory is not None
    assert left is not None
    assert (change.tobytes(), np.asarray(memory).tobytes()) == (apart.tobytes(), left.tobytes())


def test_only_this_change_of_this_base_is_remembered() -> None:
    weights, base, other = vectors(3, 100)
    models = ModelCodec("int8", "int8", size=100, trained=100, simulated=True)
    change, _ = models.encode_change(weights, base, None, 7)
    assert isinstance(change, np.ndarray)
    for bytes_, start in ((change, other), (frozen(change.copy()), base)):
        expected = codec.decode_change(bytes_, start, "int8", 100)
        np.testing.assert_array_equal(models.decode_change(bytes_, start), expected)
    spoilt, _ = models.encode_change(frozen(weights * np.float32(np.nan)), base, None, 8)
    assert np.isnan(models.decode_change(spoilt, base)).all()


def test_a_change_is_forgotten_with_its_bytes() -> None:
    weights, base = vectors(2, 100)
    models = ModelCodec("int8", "int8", size=100, trained=100, simulated=True)
    for key in range(3):
        models.encode_change(weights, base, None, key)
    gc.collect()
    assert not models._decoded


def test_a_deployed_node_does_not_keep_decoded_changes() -> None:
    weights, base = vectors(2, 100)
    models = ModelCodec("int8", "int8", size=100, trained=100)
    change, _ = models.encode_change(weights, base, None, 7)
    assert models.decode_change(change, base) is not models.decode_change(change, base)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 64, CHUNK + 77])
def test_a_decoded_gradient_would_be_encoded_exactly(kind: EncodingKind, size: int) -> None:
    for number, gradient in enumerate(vectors(5, size)):
        scaled = frozen(gradient * np.float32(10.0 ** (9 * number - 30)))
        decoded = codec.decode(codec.encode(scaled, kind, size, 1), kind, size, size)
        again = codec.decode(codec.encode(decoded, kind, size, 2), kind, size, size)
        assert again.tobytes() == decoded.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_travels_on_as_the_bytes_that_arrived(kind: EncodingKind) -> None:
    models = ModelCodec(kind, "float32", size=100, trained=100, simulated=True)
    (gradient,) = vectors(1, 100)
    sent = models.encode_gradient(gradient, "up", 1)
    arrived = models.decode_gradient(sent, "up")
    assert models.encode_gradient(arrived, "up", 2) is sent
    assert models.decode_gradient(sent, "up") is arrived
    assert models.encode_gradient(arrived, "down", 3) is arrived  # downwards, it travels as float32
    assert isinstance(arrived, np.ndarray)
    assert models.encode_gradient(frozen(arrived.copy()), "up", 4) is not sent


def test_the_bytes_of_a_gradient_are_forgotten_with_it() -> None:
    models = ModelCodec("int8", "int8", size=100, trained=100, simulated=True)
    for key in range(3):
        models.decode_gradient(models.encode_gradient(vectors(1, 100)[0], "up", key), "up")
    gc.collect()
    assert (models._arrived, dict(models._gradients)) == ({}, {})


def test_a_deployed_node_encodes_a_gradient_anew() -> None:
    """Its bytes must not depend on whether it was restarted since the gradient arrived."""
    models = ModelCodec("int8", "int8", size=100, trained=100)
    sent = models.encode_gradient(vectors(1, 100)[0], "up", 1)
    arrived = models.decode_gradient(sent, "up")
    expected = codec.encode(np.asarray(arrived), "int8", 100, 2)
    assert np.asarray(models.encode_gradient(arrived, "up", 2)).tobytes() == expected.tobytes()
