"""Encoding and decoding of packets: all messages, and any bytes of a hostile peer."""

from __future__ import annotations

import dataclasses
import typing
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol.messages import Message, Train, Update
from async_hfl.encoding import tensors
from async_hfl.encoding.packet_codec import Content, decode, encode
from async_hfl.nodes.reliability.delivery import Packet, Receipt

numbers = st.integers(0, 2**63 - 1)
singles = st.floats(width=32, allow_nan=True, allow_infinity=True)


def length_of(content: Content) -> int:
    return sum(map(len, encode(content)))


@st.composite
def arrays(draw: st.DrawFn, *, light: bool) -> np.ndarray[Any, Any]:
    """Arrays of float32, and of bytes if they may be light."""
    made: np.ndarray[Any, Any]
    if light and draw(st.booleans()):
        made = np.array(draw(st.lists(st.integers(0, 255), max_size=40)), np.uint8)
    else:
        made = np.array(draw(st.lists(singles, max_size=40)), np.float32)
    if len(made) % 2 == 0 and draw(st.booleans()):
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
        return arrays(light=np.uint8 in get_args(get_args(arguments[1])[0]))
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
@given(content=contents)
def test_a_round_trip_changes_nothing(content: Packet | Receipt) -> None:
    assert equal(decode(b"".join(encode(content))), content)


@settings(max_examples=300)
@given(content=contents, data=st.data())
def test_a_damaged_packet_is_decoded_or_raises_a_peer_error(content: Packet | Receipt, data: st.DataObject) -> None:
    """A digest detects damage in transit. A hostile peer may send a valid digest of invalid bytes."""
    packet = bytearray(b"".join(encode(content)))
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


def test_a_packet_is_larger_than_its_arrays_by_headers_only() -> None:
    weights = model(10_000)
    assert 0 < length_of(update(weights)) - 40_000 < 300
    assert 0 < length_of(update(weights.view(np.uint8)[:10_165])) - 10_165 < 300
    assert length_of(Receipt(1, 2, 3)) < 64


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
        with pytest.raises(PeerError, match="float32 or uint8 is expected"):
            decode(b"".join(encode(update(wrong))))


@pytest.mark.parametrize("kind", get_args(Message), ids=lambda kind: kind.__name__)
def test_every_message_class_can_be_read(kind: type) -> None:
    """A field of a type that the decoder does not support fails here, before such a message is ever sent."""
    msgspec.msgpack.Decoder(kind, dec_hook=lambda declared, value: value)
