"""Encoding and decoding of packets: all messages, all encodings, and any bytes of a hostile peer."""

from __future__ import annotations

import dataclasses
import typing
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
import safetensors.numpy
from async_hfl.encoding.rounding import Encoding, Rounding, to_half
from hypothesis import given, settings
from hypothesis import strategies as st

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol.messages import Message, Train, Update
from async_hfl.encoding import tensors
from async_hfl.encoding.packet_codec import Content, decode, encode
from async_hfl.nodes.reliability.delivery import Packet, Receipt

ENCODINGS = [Encoding(), Encoding(half=True), Encoding(zstd=True), Encoding(half=True, zstd=True)]
numbers = st.integers(0, 2**63 - 1)
singles = st.floats(width=32, allow_nan=True, allow_infinity=True)


def length_of(content: Content, encoding: Encoding = ENCODINGS[0]) -> int:
    return sum(map(len, encode(content, encoding)))


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, np.dtype[np.float32]]:
    values = draw(st.lists(singles, max_size=40))
    made = np.array(values, np.float32)
    if len(values) % 2 == 0 and draw(st.booleans()):
        made = made.reshape(2, -1)
    made.flags.writeable = False
    return made


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field of this type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (typing.Union, UnionType):
        return st.one_of([values_of(one) for one in arguments])
    if origin is tuple:
        if arguments[1:] == (Ellipsis,):
            return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*(values_of(one) for one in arguments))
    if origin is np.ndarray:
        return arrays()
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        return st.builds(kind, **{name: values_of(hint) for name, hint in hints.items()})
    plain = {int: numbers, float: st.floats(), str: st.text(max_size=20), bool: st.booleans(), type(None): st.none()}
    return plain[kind]


messages = st.one_of([values_of(kind) for kind in get_args(Message)])
packets = st.builds(Packet, run=numbers, incarnation=numbers, number=numbers, message=messages)
contents = st.one_of(packets, st.builds(Receipt, run=numbers, incarnation=numbers, number=numbers))


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other, equal_nan=True)
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return type(one) is type(other) and all(equal(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


@settings(max_examples=300)
@given(content=contents, encoding=st.sampled_from(ENCODINGS))
def test_a_round_trip_changes_nothing_but_the_rounding(content: Packet | Receipt, encoding: Encoding) -> None:
    data = b"".join(encode(content, encoding))
    assert len(data) == length_of(content, encoding)
    expected = content
    if isinstance(content, Packet):
        expected = dataclasses.replace(content, message=Rounding(encoding).received(content.message))
    assert equal(decode(data), expected)


@settings(max_examples=300)
@given(content=contents, encoding=st.sampled_from(ENCODINGS), data=st.data())
def test_a_damaged_packet_is_decoded_or_raises_a_peer_error(
    content: Packet | Receipt, encoding: Encoding, data: st.DataObject
) -> None:
    """A digest detects damage in transit. A hostile peer may send a valid digest of invalid bytes."""
    packet = bytearray(b"".join(encode(content, encoding)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(packet) - 1))
        how = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if how == "flip":
            packet[place] = data.draw(st.integers(0, 255))
        elif how == "cut" and len(packet) > 1:
            del packet[place:]
        else:
            packet[place:place] = data.draw(st.binary(max_size=8))
        if not packet:
            break
    try:
        found = decode(bytes(packet))
    except PeerError:
        return
    assert isinstance(found, Packet | Receipt)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(noise: bytes) -> None:
    with pytest.raises(PeerError):
        decode(noise)


def model(size: int = 1000, seed: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def update(weights: Any) -> Packet:
    return Packet(1, 2, 3, Update(JobId(0, 1, 2), weights, 1, 1, 0.5, 0.5, None, 0.0, 0.0))


def test_a_shared_array_is_sent_once_and_not_copied() -> None:
    shared = model(100_000)
    message = Train(JobId(0, 1, 2), shared, 1, 1, 1, basis=shared.reshape(1, -1))
    assert length_of(Packet(1, 1, 1, message)) < 2 * shared.nbytes + 1000
    both = dataclasses.replace(message, basis=shared)
    assert length_of(Packet(1, 1, 1, both)) < shared.nbytes + 1000
    pieces = encode(update(shared))
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), shared) for piece in pieces)
    data = b"".join(pieces)
    arrived = decode(data)
    assert isinstance(arrived, Packet)
    assert isinstance(arrived.message, Update)
    assert np.shares_memory(arrived.message.weights, np.frombuffer(data, np.uint8))
    assert not arrived.message.weights.flags.writeable


def test_bytes_by_encoding() -> None:
    weights = model(10_000)
    plain, half, packed = (length_of(update(weights), encoding) for encoding in ENCODINGS[:3])
    assert plain - 40_000 < 300
    assert half - 20_000 < 300
    assert packed < plain
    assert length_of(Receipt(1, 2, 3)) < 64
    # Noise does not compress and is sent uncompressed.
    noise = np.frombuffer(np.random.default_rng(1).bytes(40_000), np.float32)
    assert length_of(update(noise), Encoding(zstd=True)) == length_of(update(noise))


def test_rounding_by_hand() -> None:
    values = np.array([0.0, 1.0, 1.0004, -3.14159274, 65504.0, 70000.0, -1e38, 1e-9, np.inf, np.nan], np.float32)
    expected = [0.0, 1.0, 1.0, -3.140625, 65504.0, 65504.0, -65504.0, 0.0, np.inf, np.nan]
    assert np.array_equal(to_half(values).astype(np.float64), expected, equal_nan=True)
    rounding = Rounding(Encoding(half=True))
    arrived = rounding.received(values)
    assert arrived.dtype == np.float32
    assert not arrived.flags.writeable
    assert Rounding(Encoding()).received(values) is values
    assert rounding.received(arrived) is not arrived
    assert np.array_equal(rounding.received(arrived), arrived, equal_nan=True)


def test_a_model_that_is_sent_to_many_devices_is_rounded_once() -> None:
    rounding = Rounding(Encoding(half=True))
    weights = model()
    weights.flags.writeable = False
    first, second = (rounding.received(update(weights)).message.weights for _ in range(2))
    assert first is second
    assert np.array_equal(first, to_half(weights).astype(np.float32))
    changing = model()
    one = rounding.received(changing)
    changing[0] = 7.0
    assert rounding.received(changing)[0] == 7.0
    assert one[0] != 7.0
    assert Rounding(Encoding()).received(changing) is changing


def test_the_body_is_a_safetensors_file() -> None:
    """The published library reads the arrays written here, and its own files can be read here."""
    one, two = model(7), np.arange(6, dtype=np.float32).reshape(2, 3)
    ours = b"".join(tensors.write([one, two]))
    theirs = safetensors.numpy.load(ours)
    assert np.array_equal(theirs["0"], one)
    assert np.array_equal(theirs["1"], two)
    back = tensors.read(memoryview(safetensors.numpy.save({"0": one, "1": two})))
    assert np.array_equal(back[0], one)
    assert np.array_equal(back[1], two)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"0": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, "do not fit"),
        ({"0": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, "do not fit"),
        ({"0": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "impossible shape"),
        ({"0": {"dtype": "F32", "shape": [2**33, 2**33], "data_offsets": [0, 8]}}, "do not fit"),
        ({"0": {"dtype": "F32", "shape": [1] * 9 + [2], "data_offsets": [0, 8]}}, "impossible shape"),
        ({"0": {"dtype": "PICKLE", "shape": [2], "data_offsets": [0, 8]}}, "unknown dtype"),
        ({"1": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "is missing"),
        ({"0": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, "belong to no array"),
        ({"0": {"dtype": "F32", "shape": [2]}}, "unreadable"),
        ({"0": [[[]]]}, "unreadable"),
    ],
)
def test_impossible_arrays_are_refused(header: Any, why: str) -> None:
    text = msgspec.json.encode(header)
    with pytest.raises(PeerError, match=why):
        tensors.read(memoryview(len(text).to_bytes(8, "little") + text + bytes(8)))


def test_a_decompression_bomb_is_refused() -> None:
    """Its announced length is above the limit, or is less than it decompresses to."""
    zeros = update(np.zeros(5_000_000, np.float32))
    data = b"".join(encode(zeros, Encoding(zstd=True)))
    assert len(data) < 10_000
    with pytest.raises(PeerError, match="announces"):
        decode(data, most=1_000_000)
    lie = bytearray(data)
    lie[16:24] = (1_000_000).to_bytes(8, "little")
    with pytest.raises(PeerError, match="do not hold"):
        decode(bytes(lie), most=2_000_000)


def test_a_message_of_the_wrong_shape_is_refused() -> None:
    """A decoded message has exactly the types that its class declares."""
    head = [1, 2, 3, "JobDropped"]
    for fields, why in (
        ({"job": [1, 2, 3], "reason": "superseded", "version": "x"}, "Expected `int`"),
        ({"job": [1, 2], "reason": "superseded", "version": 1}, "of length 3, got 2"),
        ({"job": [1, 2, 3], "reason": "because", "version": 1}, "Invalid enum value"),
        ({"job": [1, 2, 3], "version": 1}, "missing required field `reason`"),
        ([1, 2, 3], "Expected `object`"),
    ):
        header = msgspec.msgpack.encode([*head, fields])
        prefix = b"ahp1" + (0).to_bytes(4, "little") + len(header).to_bytes(8, "little") + bytes(8)
        with pytest.raises(PeerError, match=why):
            decode(prefix + header)
    for wrong in (np.zeros(3, np.int64), np.zeros(3, np.float64)):
        with pytest.raises(PeerError, match="float32 is expected"):
            decode(b"".join(encode(update(wrong))))


@pytest.mark.parametrize("kind", get_args(Message), ids=lambda kind: kind.__name__)
def test_every_message_class_can_be_read(kind: type) -> None:
    """A field of a type that the decoder does not support fails here, before such a message is ever sent."""
    msgspec.msgpack.Decoder(kind, dec_hook=lambda declared, value: value)
