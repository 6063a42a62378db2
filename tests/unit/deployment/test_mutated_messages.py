"""Mutated packets with encoded models: each is refused with PeerError, or decoded to vectors of the right shape."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mutations import mutated

from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD, Address, JobId, UploadId, device_address, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.message_vectors import decode_knowledge, decode_update
from async_hfl.core.weights import frozen
from async_hfl.deployment.shell.message_validation import validator
from async_hfl.encoding import packet_codec
from async_hfl.nodes.reliability.delivery import Packet, Receipt

SIZE, TRAINED = 135, 131
LIGHT: list[EncodingKind] = ["float16", "int8", "int4"]
MUTATIONS = 20_000
DEVICE, GATEWAY = device_address(0), gateway_address(0)
BASE = frozen(np.ones(SIZE, np.float32))
Way = tuple[Address, Address]


def codec_of(kind: EncodingKind) -> ModelCodec:
    return ModelCodec(kind, kind, size=SIZE, trained=TRAINED, seed=5)


def packets(codec: ModelCodec) -> list[tuple[Way, bytes]]:
    """Return the bytes of one packet of each kind of message with a model, and the way that it goes."""
    values = frozen(np.random.default_rng(5).standard_normal(SIZE).astype(np.float32))
    model, (change, _) = codec.encode_model(values, 1), codec.encode_change(values, BASE, None, 2)
    gradient = codec.encode_gradient(frozen(np.asarray(values)[:TRAINED].copy()), "up", 3)
    known = m.DeviceKnowledge(0, 1.0, True, 5, 0.5, 0.5, gradient)
    sent: list[tuple[Way, m.Message]] = [
        ((GATEWAY, DEVICE), m.Train(JobId(0, 1, 1), model, 1, 1, 1, settled=(4, 5))),
        ((DEVICE, GATEWAY), m.Update(JobId(0, 1, 1), change, 3, 1, 0.5, 0.5, gradient, 0.1, 0.1)),
        ((GATEWAY, CLOUD), m.Upload(UploadId(0, 1, 1), change, 2, 1, 3, False, 1, (known,), (7,), (1, 2))),
        ((CLOUD, GATEWAY), m.Answer(UploadId(0, 1, 1), 4, model, m.Outcome(True, 1, 0.5))),
    ]
    return [(way, b"".join(packet_codec.encode(Packet(7, 1, 1, message)))) for way, message in sent]


def decode_as_a_node(codec: ModelCodec, way: Way, message: m.Message) -> list[Any]:
    """Return the vectors of a message, decoded as its receiver does."""
    up = way[0].tier > way[1].tier
    if isinstance(message, m.Update):
        update = decode_update(codec, message, BASE)
        return [update.weights, *([] if update.gradient is None else [update.gradient])]
    found: list[Any] = []
    if hasattr(message, "weights"):
        found.append(codec.decode_change(message.weights, BASE) if up else codec.decode_model(message.weights))
    for known in getattr(message, "knowledge", ()):
        gradient = decode_knowledge(codec, known, "up" if up else "down").gradient
        found.extend([] if gradient is None else [gradient])
    return found


def receive(codec: ModelCodec, way: Way, data: bytes, check: Callable[..., None]) -> bool:
    """Return False if the packet is refused; any error but PeerError fails the test."""
    try:
        content = packet_codec.decode(data)
        check(way[0], content)
    except PeerError:
        return False
    if isinstance(content, Receipt):
        return True
    vectors = decode_as_a_node(codec, way, content.message)
    assert {(vector.shape, vector.dtype.name) for vector in vectors} <= {((SIZE,), "float32"), ((TRAINED,), "float32")}
    if hasattr(content.message, "weights"):
        assert vectors[0].shape == (SIZE,)
    return True


@pytest.mark.parametrize("kind", LIGHT)
def test_mutated_messages_are_refused_or_decoded(kind: EncodingKind) -> None:
    random, codec = np.random.default_rng(11), codec_of(kind)
    originals = packets(codec)
    checks = {way: validator(way[1], codec) for way, _ in originals}
    others = [data for _, data in originals] + [data for _, data in packets(codec_of("int8"))]
    passed = 0
    for number in range(MUTATIONS // len(LIGHT) + 1):
        way, data = originals[number % len(originals)]
        passed += receive(codec, way, mutated(data, others, random), checks[way])
    assert all(receive(codec, way, data, checks[way]) for way, data in originals)
    # Most mutations are noticed; those of the numbers themselves often are not.
    assert 300 < passed < MUTATIONS // len(LIGHT) // 2


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", LIGHT)
def test_memory_is_bounded_whatever_lengths_a_packet_announces(kind: EncodingKind) -> None:
    codec = codec_of(kind)
    huge = [struct.pack("<Q", 2**40), struct.pack("<Q", 2**31), b"\xff" * 8, struct.pack("<I", 2**32 - 1)]
    for way, data in packets(codec):
        check = validator(way[1], codec)

        def all_places(way: Way = way, data: bytes = data, check: Callable[..., None] = check) -> None:
            for place in range(0, len(data) - 8, 5):
                for number in huge:
                    receive(codec, way, data[:place] + number + data[place + len(number) :], check)

        receive(codec, way, data, check)
        assert peak_bytes(all_places) < 300_000


@pytest.mark.parametrize("kind", LIGHT)
def test_a_model_of_a_larger_task_is_refused_before_it_is_decoded(kind: EncodingKind) -> None:
    size = 4_000_000
    larger = ModelCodec(kind, kind, size=size, trained=size)
    model = larger.encode_model(frozen(np.ones(size, np.float32)), 1)
    data = b"".join(
        packet_codec.encode(Packet(7, 1, 1, m.Answer(UploadId(0, 1, 1), 4, model, m.Outcome(True, 1, 0.5))))
    )
    codec = codec_of(kind)
    check = validator(GATEWAY, codec)
    assert not receive(codec, (CLOUD, GATEWAY), data, check)
    assert peak_bytes(lambda: receive(codec, (CLOUD, GATEWAY), data, check)) < 100_000
