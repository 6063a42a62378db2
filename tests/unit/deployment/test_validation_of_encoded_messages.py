"""Validation of messages with encoded models and gradients: what no correct node sends is a PeerError."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from async_hfl.core.compression.codec import encode
from async_hfl.core.compression.encodings import EncodingKind, encoded_bytes
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD, Address, JobId, UploadId, device_address, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.weights import frozen
from async_hfl.deployment.shell.message_validation import validator
from async_hfl.nodes.reliability.delivery import Packet

SIZE, TRAINED = 135, 131
REST = 4 * (SIZE - TRAINED)
DEVICE, GATEWAY = device_address(0), gateway_address(0)
LIGHT: list[EncodingKind] = ["float16", "int8", "int4"]


def values(size: int = SIZE) -> Any:
    return np.random.default_rng(4).standard_normal(size).astype(np.float32)


def light(kind: EncodingKind, *, size: int = SIZE, trained: int = TRAINED, **changed: float) -> Any:
    numbers = values(size)
    for place, number in changed.items():
        numbers[int(place[1:])] = number
    return encode(frozen(numbers), kind, trained, 7)


def with_byte(encoded: Any, place: int, byte: int) -> Any:
    copy = encoded.copy()
    copy[place] = byte
    return copy


def update(weights: Any, gradient: Any = None, *, compressed: bool = False) -> m.Update:
    return m.Update(JobId(0, 1, 1), weights, 1, 1, 0.5, 0.5, gradient, 0.1, 0.1, compressed)


def upload(weights: Any) -> m.Upload:
    return m.Upload(UploadId(0, 1, 1), weights, 0, 1, 1, False, 1, ())


def messages_of(kind: EncodingKind, model: Any) -> list[tuple[Address, Address, m.Message]]:
    """Return every message that contains a model."""
    lease, known = m.Lease(0, 1, 1), m.DeviceKnowledge(0, 1.0, True, 5, 0.5, 0.5)
    return [
        (CLOUD, GATEWAY, m.GlobalModel(1, model)),
        (CLOUD, GATEWAY, m.Answer(UploadId(0, 1, 1), 1, model, m.Outcome(True, 1, 0.5))),
        (CLOUD, GATEWAY, m.WarmUp(1, model, (lease,), (known,))),
        (CLOUD, GATEWAY, m.EvaluateRequest(1, model, (0,))),
        (GATEWAY, DEVICE, m.Train(JobId(0, 1, 1), model, 1, 1, 1)),
        (GATEWAY, DEVICE, m.EvaluateRequest(1, model)),
        (GATEWAY, CLOUD, upload(model)),
        (DEVICE, GATEWAY, update(model)),
    ]


def check(sender: Address, receiver: Address, message: m.Message, codec: ModelCodec, **options: Any) -> None:
    validator(receiver, codec, **options)(sender, Packet(7, 1, 1, message))


def codec_of(up: EncodingKind, down: EncodingKind, *, encodes_gradients: bool = True) -> ModelCodec:
    return ModelCodec(up, down, size=SIZE, trained=TRAINED, encodes_gradients=encodes_gradients)


@pytest.mark.parametrize("kind", LIGHT)
def test_an_encoded_model_passes_in_every_message(kind: EncodingKind) -> None:
    for sender, receiver, message in messages_of(kind, light(kind)):
        check(sender, receiver, message, codec_of(kind, kind))


WRONG: dict[str, Any] = {
    "another dtype": lambda kind: values(),
    "doubles": lambda kind: values().astype(np.float64),
    "signed bytes": lambda kind: light(kind).view(np.int8),
    "another kind": lambda kind: light("int4" if kind == "int8" else "int8"),
    "a byte less": lambda kind: light(kind)[:-1],
    "a byte more": lambda kind: np.append(light(kind), np.uint8(0)),
    "no bytes": lambda kind: light(kind)[:0],
    "two dimensions": lambda kind: light(kind)[None],
    "another number of values": lambda kind: light(kind, trained=TRAINED - 1),
    "a longer model": lambda kind: light(kind, size=SIZE + 64, trained=TRAINED + 64),
    "a header that is not zero": lambda kind: with_byte(light(kind), 6, 1),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("kind", LIGHT)
def test_another_dtype_kind_or_length_is_refused_in_every_message(kind: EncodingKind, what: str) -> None:
    for sender, receiver, message in messages_of(kind, WRONG[what](kind)):
        with pytest.raises(PeerError):
            check(sender, receiver, message, codec_of(kind, kind))


def test_each_direction_is_checked_against_its_own_encoding() -> None:
    codec = codec_of("int4", "float16")
    for sender, receiver, message in messages_of("int4", light("int4")):
        if sender.tier > receiver.tier:
            check(sender, receiver, message, codec)
        else:
            with pytest.raises(PeerError, match="bytes instead of"):
                check(sender, receiver, message, codec)
    for sender, receiver, message in messages_of("float16", light("float16")):
        if sender.tier < receiver.tier:
            check(sender, receiver, message, codec)
        else:
            with pytest.raises(PeerError, match="bytes instead of"):
                check(sender, receiver, message, codec)
    with pytest.raises(PeerError, match="uint8; models of this task have 135 float32 numbers"):
        check(CLOUD, GATEWAY, m.GlobalModel(1, light("int8")), codec_of("int8", "float32"))


@pytest.mark.parametrize(
    ("kind", "place", "byte", "why"),
    [
        ("int8", 8 + REST + 3, 128, "a code of -128"),
        ("int8", 8 + REST, 122, "an exponent of 122"),
        ("int8", 8 + REST, 127, "codes in a marked block"),
        ("int4", 8 + REST + 3, 0x80, "a code of -8"),
        ("int4", -1, 0x10, "a code too many"),
    ],
)
def test_codes_that_no_encoder_writes_are_refused(kind: EncodingKind, place: int, byte: int, why: str) -> None:
    for sender, receiver, message in messages_of(kind, with_byte(light(kind), place, byte)):
        with pytest.raises(PeerError, match=why):
            check(sender, receiver, message, codec_of(kind, kind))


@pytest.mark.parametrize("sign", [0x7C, 0xFC])
def test_infinite_halves_are_refused(sign: int) -> None:
    model = with_byte(with_byte(light("float16"), 8 + REST, 0), 9 + REST, sign)
    for sender, receiver, message in messages_of("float16", model):
        with pytest.raises(PeerError, match="an infinite value"):
            check(sender, receiver, message, codec_of("float16", "float16"))


@pytest.mark.parametrize("place", [0, 130, 134])
@pytest.mark.parametrize("kind", LIGHT)
def test_a_marked_change_passes(kind: EncodingKind, place: int) -> None:
    """Training may diverge: the gateway ends such a job as refused, and the cloud drops such an upload."""
    marked = light(kind, **{f"v{place}": np.nan})
    check(DEVICE, GATEWAY, update(marked), codec_of(kind, kind))
    check(GATEWAY, CLOUD, upload(marked), codec_of(kind, kind))


@pytest.mark.parametrize("kind", LIGHT)
def test_gradients_are_encoded_or_refused(kind: EncodingKind) -> None:
    model, gradient = light(kind), encode(frozen(values(TRAINED)), kind, TRAINED, 7)
    codec = codec_of(kind, kind)
    check(DEVICE, GATEWAY, update(model, gradient), codec)
    for wrong in (values(TRAINED), gradient[:-1], model, with_byte(gradient, 4, 0), gradient[None]):
        with pytest.raises(PeerError):
            check(DEVICE, GATEWAY, update(model, wrong), codec)
    assert gradient.nbytes == encoded_bytes(kind, TRAINED, 0)


@pytest.mark.parametrize("kind", ["float32", *LIGHT])
def test_a_gradient_that_claims_to_be_projected_is_refused(kind: EncodingKind) -> None:
    model = values() if kind == "float32" else light(kind)
    encoded = values(TRAINED) if kind == "float32" else encode(frozen(values(TRAINED)), kind, TRAINED, 7)
    for gradient in (encoded, values(TRAINED), values(4), np.zeros(0, np.float32)):
        with pytest.raises(PeerError, match="this run's gradients are not projected"):
            check(DEVICE, GATEWAY, update(model, gradient, compressed=True), codec_of(kind, kind))
        known = m.DeviceKnowledge(0, 1.0, True, 5, 0.5, 0.5, gradient, compressed=True)
        with pytest.raises(PeerError, match="this run's gradients are not projected"):
            check(GATEWAY, CLOUD, replace(upload(model), knowledge=(known,)), codec_of(kind, kind))


def test_projected_gradients_travel_as_float32() -> None:
    codec = codec_of("int8", "int8", encodes_gradients=False)
    model, sizes = light("int8"), {"projected_sizes": frozenset({4})}
    check(DEVICE, GATEWAY, update(model, values(4), compressed=True), codec, **sizes)
    check(DEVICE, GATEWAY, update(model, values(TRAINED)), codec, **sizes)
    for wrong, compressed in (
        (values(5), True),
        (values(4), False),
        (encode(frozen(values(4)), "int8", 4, 1), True),
        (encode(frozen(values(TRAINED)), "int8", TRAINED, 1), False),
    ):
        with pytest.raises(PeerError, match="a gradient of shape"):
            check(DEVICE, GATEWAY, update(model, wrong, compressed=compressed), codec, **sizes)


@pytest.mark.parametrize("size", [0, 4, TRAINED - 1, SIZE])
def test_a_whole_gradient_has_as_many_numbers_as_are_trained(size: int) -> None:
    """A gradient of another length would make the node fail, and fail again at every restart."""
    codec = codec_of("float32", "float32")
    check(DEVICE, GATEWAY, update(values(), values(TRAINED)), codec)
    with pytest.raises(PeerError, match=r"expected \[131\] numbers"):
        check(DEVICE, GATEWAY, update(values(), values(size)), codec)
