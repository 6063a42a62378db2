"""A packet or receipt as bytes and back.

    prefix   magic, flags, length of the header, length of the arrays (uncompressed)        24 bytes
    header   MessagePack: [run, incarnation, number, kind, message]; arrays stand in it as numbers
    arrays   a safetensors file, compressed by zstd if the flag says so; nothing where there are none

The header is decoded by the types that the message classes declare, so what comes out has the right shape all through,
or does not come out: a peer may be broken or hostile. Lengths are checked before memory is taken.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any, get_args

import msgspec
import numpy as np
import zstandard

from async_hfl.core.errors import PeerError
from async_hfl.core.protocol.messages import Message
from async_hfl.encoding import tensors
from async_hfl.encoding.rounding import AS_IT_IS, Array, Encoding, is_shortened, to_half
from async_hfl.nodes.reliability.delivery import Packet, Receipt

Buffer = bytes | memoryview
Content = Packet | Receipt

MOST_BYTES = 2**30
"""Of one parcel, unless a shell says less."""
_MAGIC = b"ahp1"
_PREFIX = struct.Struct("<4sIQQ")
_ZSTD = 1
_ARRAY = 1
_REFERENCE = struct.Struct("<IB")
_UNCHANGED, _ROUNDED = 0, 1
_MOST_HEADER = 16 * 2**20
_MOST_NUMBER = 2**63 - 1
_LEVEL = 3
_RECEIPT = "Receipt"
_MESSAGES: dict[str, type] = {cls.__name__: cls for cls in get_args(Message)}


class _Head(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    run: int
    incarnation: int
    number: int
    kind: str
    message: msgspec.Raw = msgspec.Raw(b"\xc0")


def encode(content: Content, encoding: Encoding = AS_IT_IS) -> list[Buffer]:
    """As pieces, to be sent one after the other; large arrays are not copied."""
    arrays: list[Array] = []
    places: dict[int, int] = {}

    def array(value: object) -> msgspec.msgpack.Ext:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} in a message")
        how = _ROUNDED if is_shortened(value, encoding) else _UNCHANGED
        place = places.setdefault(id(value), len(arrays))
        if place == len(arrays):
            arrays.append(to_half(value) if how == _ROUNDED else value)
        return msgspec.msgpack.Ext(_ARRAY, _REFERENCE.pack(place, how))

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
    flags = 0
    if encoding.zstd:
        packed = _compress(pieces, length)
        if len(packed) < length:
            flags, pieces = _ZSTD, [packed]
    # The arrays begin at a multiple of 8: MessagePack readers of ours stop at the header's end, so it may be padded.
    padding = b"\0" * (-(_PREFIX.size + len(header)) % 8)
    return [_PREFIX.pack(_MAGIC, flags, len(header), length) + header + padding, *pieces]


def share_on_wire(array: Array, encoding: Encoding) -> float:
    """Bytes that it takes on the wire, of those that it takes here. A simulation that compresses counts every model as
    it finds the first: the numbers of a trained model are as hard to compress as those it began with."""
    if not array.nbytes:
        return 1.0
    sent = to_half(array) if is_shortened(array, encoding) else array
    length = sent.nbytes
    if encoding.zstd:
        length = min(length, len(_compress([np.ascontiguousarray(sent).reshape(-1).view(np.uint8).data], length)))
    return length / array.nbytes


def length_of(content: Content, encoding: Encoding = AS_IT_IS) -> int:
    """What a shell without a network counts."""
    return sum(map(len, encode(content, encoding)))


def decode(data: Buffer, most: int = MOST_BYTES) -> Content:
    """The content, its arrays read-only on the memory of `data` where they were neither rounded nor compressed.
    Raises PeerError, and nothing else, for whatever a peer may have sent."""
    view = memoryview(data).toreadonly()
    if len(view) > most:
        raise PeerError(f"a parcel of {len(view)} bytes, at most {most} are taken")
    if len(view) < _PREFIX.size:
        raise PeerError(f"a parcel of {len(view)} bytes is none")
    magic, flags, header_length, body_length = _PREFIX.unpack(view[: _PREFIX.size])
    if magic != _MAGIC or flags & ~_ZSTD:
        raise PeerError("not a parcel of this protocol: is the other side another program, or a newer one?")
    if header_length > min(_MOST_HEADER, len(view) - _PREFIX.size) or body_length > most:
        raise PeerError(f"a parcel of {len(view)} bytes speaks of {header_length} + {body_length}")
    end = _PREFIX.size + header_length
    header = view[_PREFIX.size : end]
    if body_length == 0:
        if end != len(view) or flags:
            raise PeerError(f"a parcel without arrays has {len(view) - end} bytes too many")
        return _content(header, [])
    body = view[end + -end % 8 :]
    if flags & _ZSTD:
        body = _decompress(body, body_length)
    elif len(body) != body_length:
        raise PeerError(f"a parcel's arrays have {len(body)} bytes, not {body_length}")
    return _content(header, tensors.read(body))


def _content(header: memoryview, arrays: Sequence[Array]) -> Content:
    try:
        head = msgspec.msgpack.decode(header, type=_Head)
        for number in (head.run, head.incarnation, head.number):
            if not 0 <= number <= _MOST_NUMBER:
                raise PeerError(f"a parcel numbered {number}")
        if head.kind == _RECEIPT:
            return Receipt(head.run, head.incarnation, head.number)
        cls = _MESSAGES.get(head.kind)
        if cls is None:
            raise PeerError(f"a message of unknown kind {head.kind[:40]!r}: is the other side newer?")
        message = _decoder(cls, _lookup(arrays)).decode(head.message)
    except PeerError:
        raise
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError, TypeError, OverflowError) as error:
        raise PeerError(f"a message that cannot be read: {error}") from error
    return Packet(head.run, head.incarnation, head.number, message)


def _lookup(arrays: Sequence[Array]) -> Callable[[int, memoryview], Array]:
    rounded: dict[int, Array] = {}

    def find(code: int, data: memoryview) -> Array:
        if code != _ARRAY or len(data) != _REFERENCE.size:
            raise PeerError(f"an extension {code} of {len(data)} bytes in a message")
        place, how = _REFERENCE.unpack(data)
        if place >= len(arrays):
            raise PeerError(f"array {place} of {len(arrays)} in a message")
        array: Array = arrays[place]
        if how == _UNCHANGED:
            return array
        if how != _ROUNDED or array.dtype != np.float16:
            raise PeerError(f"array {place} is shortened in an unknown way")
        if place not in rounded:
            rounded[place] = array.astype(np.float32)
            rounded[place].flags.writeable = False
        return rounded[place]

    return find


@cache
def _declared(cls: type) -> type:
    """The class, once msgspec has seen that it can read it: a message it cannot read is our mistake, told at once."""
    msgspec.msgpack.Decoder(cls, dec_hook=_checked)
    return cls


def _decoder(cls: type, find: Callable[[int, memoryview], Array]) -> msgspec.msgpack.Decoder[Message]:
    return msgspec.msgpack.Decoder(_declared(cls), ext_hook=find, dec_hook=_checked)


def _checked(declared: Any, value: Any) -> Any:
    """An array where the message class declares one: of the declared kind of number."""
    if not isinstance(value, np.ndarray):
        raise PeerError(f"{type(value).__name__} where an array is due")
    kinds = [np.dtype(kind) for kind in _number_kinds(declared)]
    if kinds and value.dtype not in kinds:
        raise PeerError(f"an array of {value.dtype} where {kinds[0]} is due")
    return value


@cache
def _number_kinds(declared: Any) -> tuple[type, ...]:
    """numpy.ndarray[shape, numpy.dtype[kind]] -> kind."""
    kinds = chain.from_iterable(get_args(argument) for argument in get_args(declared)[1:])
    return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, np.generic))


def _compress(pieces: Sequence[Buffer], length: int) -> bytes:
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj(size=length)
    return b"".join([*(compressor.compress(piece) for piece in pieces), compressor.flush()])


def _decompress(body: memoryview, length: int) -> memoryview:
    """Never more than the length that was announced (and bounded)."""
    try:
        with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(body) as reader:
            out = bytearray(length)
            filled = 0
            view = memoryview(out)
            while filled < length:
                count = reader.readinto(view[filled:])
                if not count:
                    break
                filled += count
            if filled < length or reader.read(1):
                raise PeerError(f"compressed arrays hold another number of bytes than {length}")
    except zstandard.ZstdError as error:
        raise PeerError(f"compressed arrays cannot be read: {error}") from error
    return memoryview(out).toreadonly()
