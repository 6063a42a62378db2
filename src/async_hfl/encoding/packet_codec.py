"""The encoding of packets and receipts as bytes.

    prefix   magic, four zero bytes, length of the header, length of the arrays        24 bytes
    header   MessagePack: [run, incarnation, number, kind, message]; the message refers to arrays by index
    arrays   a safetensors file; absent if there are no arrays

A peer may be broken or hostile. So the header is decoded by the types that the message classes declare: a message is
well-typed throughout, or it is refused. Lengths are checked before memory is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, get_args

import msgspec
import numpy as np

from async_hfl.core.errors import PeerError
from async_hfl.core.protocol.messages import Message
from async_hfl.encoding import tensors
from async_hfl.encoding.tensors import Array
from async_hfl.nodes.reliability.delivery import Packet, Receipt

Buffer = bytes | memoryview
Content = Packet | Receipt

MOST_BYTES = 2**30
"""Largest packet, unless a shell sets a lower limit."""
_MAGIC = b"ahp1"
_PREFIX = struct.Struct("<4sIQQ")
_ARRAY = 1
_REFERENCE = struct.Struct("<IB")
"""Index of an array, and a zero byte."""
_MOST_HEADER = 16 * 2**20
_MOST_NUMBER = 2**63 - 1
_RECEIPT = "Receipt"
_MESSAGES: dict[str, type] = {cls.__name__: cls for cls in get_args(Message)}


class _Head(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    run: int
    incarnation: int
    number: int
    kind: str
    message: msgspec.Raw = msgspec.Raw(b"\xc0")


def encode(content: Content) -> list[Buffer]:
    """Return the bytes in pieces, to be sent in sequence; large arrays are not copied."""
    arrays: list[Array] = []
    places: dict[int, int] = {}

    def array(value: object) -> msgspec.msgpack.Ext:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"a message cannot contain {type(value).__name__}")
        place = places.setdefault(id(value), len(arrays))
        if place == len(arrays):
            arrays.append(value)
        return msgspec.msgpack.Ext(_ARRAY, _REFERENCE.pack(place, 0))

    if isinstance(content, Receipt):
        header = msgspec.msgpack.encode(_Head(content.run, content.incarnation, content.number, _RECEIPT))
    else:
        body = msgspec.msgpack.Encoder(enc_hook=array).encode(content.message)
        kind = type(content.message).__name__
        head = _Head(content.run, content.incarnation, content.number, kind, msgspec.Raw(body))
        header = msgspec.msgpack.encode(head)
    if not arrays:
        return [_PREFIX.pack(_MAGIC, 0, len(header), 0) + header]
    pieces = tensors.write(arrays)
    length = sum(map(len, pieces))
    # The header is padded, so that the arrays begin at a multiple of 8.
    padding = b"\0" * (-(_PREFIX.size + len(header)) % 8)
    return [_PREFIX.pack(_MAGIC, 0, len(header), length) + header + padding, *pieces]


def decode(data: Buffer, most: int = MOST_BYTES) -> Content:
    """Return the content. Its arrays are read-only views of `data`.

    Raises PeerError, and no other error, for any bytes that a peer may send."""
    view = memoryview(data).toreadonly()
    if len(view) > most:
        raise PeerError(f"a packet of {len(view)} bytes; at most {most} are accepted")
    if len(view) < _PREFIX.size:
        raise PeerError(f"{len(view)} bytes are too few for a packet")
    magic, flags, header_length, body_length = _PREFIX.unpack(view[: _PREFIX.size])
    if magic != _MAGIC or flags:
        raise PeerError("not a packet of this protocol: is the peer another program, or a newer version?")
    if header_length > min(_MOST_HEADER, len(view) - _PREFIX.size) or body_length > most:
        raise PeerError(f"a packet of {len(view)} bytes announces {header_length} + {body_length} bytes")
    end = _PREFIX.size + header_length
    arrays: Sequence[Array] = ()
    if body_length == 0:
        if end != len(view):
            raise PeerError(f"a packet without arrays has {len(view) - end} bytes too many")
    else:
        body = view[end + -end % 8 :]
        if len(body) != body_length:
            raise PeerError(f"the arrays of a packet have {len(body)} bytes, not {body_length}")
        arrays = tensors.read(body)
    try:
        head = msgspec.msgpack.decode(view[_PREFIX.size : end], type=_Head)
        for number in (head.run, head.incarnation, head.number):
            if not 0 <= number <= _MOST_NUMBER:
                raise PeerError(f"a packet with number {number}")
        if head.kind == _RECEIPT:
            return Receipt(head.run, head.incarnation, head.number)
        cls = _MESSAGES.get(head.kind)
        if cls is None:
            raise PeerError(f"a message of unknown kind {head.kind[:40]!r}: does the peer run another version?")
        message = _decoder(cls, arrays).decode(head.message)
    except PeerError:
        raise
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError, TypeError, OverflowError) as error:
        raise PeerError(f"a message that cannot be decoded: {error}") from error
    return Packet(head.run, head.incarnation, head.number, message)


def _decoder(cls: type, arrays: Sequence[Array]) -> msgspec.msgpack.Decoder[Message]:
    """Return a decoder of one message class; references to arrays are resolved by `arrays`."""

    def find(code: int, data: memoryview) -> Array:
        if code != _ARRAY or len(data) != _REFERENCE.size:
            raise PeerError(f"a message with an extension {code} of {len(data)} bytes")
        place, zero = _REFERENCE.unpack(data)
        if place >= len(arrays) or zero:
            raise PeerError(f"a message that refers to array {place} of {len(arrays)}")
        array: Array = arrays[place]
        return array

    return msgspec.msgpack.Decoder(cls, ext_hook=find, dec_hook=_checked)


def _checked(declared: Any, value: Any) -> Any:
    """Check that a value is an array of the dtype that the message class declares."""
    if not isinstance(value, np.ndarray):
        raise PeerError(f"{type(value).__name__} where an array is expected")
    kinds = [np.dtype(kind) for kind in _dtypes(declared)]
    if kinds and value.dtype not in kinds:
        raise PeerError(f"an array of {value.dtype} where {' or '.join(map(str, kinds))} is expected")
    return value


@cache
def _dtypes(declared: Any) -> tuple[type, ...]:
    """numpy.ndarray[shape, numpy.dtype[kind]] -> kind, or several if the kind is a union."""
    kinds = chain.from_iterable(get_args(argument) for argument in get_args(declared)[1:])
    single = chain.from_iterable(get_args(kind) or (kind,) for kind in kinds)
    return tuple(kind for kind in single if isinstance(kind, type) and issubclass(kind, np.generic))
