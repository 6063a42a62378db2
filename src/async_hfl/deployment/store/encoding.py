"""Encoding of plain data as MessagePack, with large arrays replaced by references to payloads.

An array of `PAYLOAD_BYTES` or more becomes a payload: the encoded bytes contain a reference (SHA-256, offset and
length), and the store keeps the content once, however many events refer to it. By convention a read-only array never
changes, so its reference is computed once and cached for the array's lifetime. A payload that is read twice yields the
same array.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, finalize

import msgspec
import numpy as np

from async_hfl.core.serialization import Plain

PAYLOAD_BYTES = 4096
_SMALL, _REFERENCE = 1, 2
Array = np.ndarray[Any, Any]
Buffer = bytes | memoryview


class Reference(NamedTuple):
    """A range of bytes of a stored payload."""

    digest: bytes
    offset: int
    length: int


class ReceivedFile(NamedTuple):
    """A packet that arrived as a file, and contains the arrays of the next event."""

    path: Path
    digest: bytes
    """SHA-256 of the file, verified on arrival."""
    data: Buffer
    """The file's bytes; the arrays are views of this memory."""


class MissingPayload(Exception):
    """A payload was evicted, or its file is missing."""

    def __init__(self, digest: bytes) -> None:
        super().__init__(f"payload {digest.hex()} is missing")
        self.digest = digest


@dataclass(frozen=True, slots=True)
class Encoded:
    body: bytes
    references: frozenset[bytes]
    """Digests of the payloads that the body refers to."""


class Arrays:
    """References of live arrays, and live arrays by reference."""

    def __init__(self) -> None:
        self.received: ReceivedFile | None = None
        """Set while an event is encoded whose arrays may be views of this file."""
        self._of_array: dict[int, Reference] = {}
        self._loaded: WeakValueDictionary[tuple[Reference, str, tuple[int, ...]], Array] = WeakValueDictionary()

    def reference(self, array: Array) -> Reference:
        known = self._of_array.get(id(array))
        if known is not None:
            return known
        file = self.received
        offset = -1 if file is None else _address(array) - _address(np.frombuffer(file.data, np.uint8))
        if file is not None and 0 <= offset <= len(file.data) - array.nbytes and array.flags.c_contiguous:
            known = Reference(file.digest, offset, array.nbytes)
        else:
            known = Reference(hashlib.sha256(content(array)).digest(), 0, array.nbytes)
        if not array.flags.writeable:
            self._of_array[id(array)] = known
            finalize(array, self._of_array.pop, id(array), None)  # the id may be reused after that
        return known

    def loaded(self, reference: Reference, dtype: str, shape: tuple[int, ...]) -> Array | None:
        return self._loaded.get((reference, dtype, shape))

    def remember(self, reference: Reference, array: Array) -> None:
        self._loaded[reference, array.dtype.str, array.shape] = array
        self._of_array[id(array)] = reference
        finalize(array, self._of_array.pop, id(array), None)


def content(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Encoding:
    def __init__(
        self,
        arrays: Arrays,
        keep: Callable[[Reference, Array], Reference] | None = None,
        load: Callable[[Reference], memoryview] | None = None,
    ) -> None:
        """`keep` stores an array as a payload and returns its reference. `load` returns the bytes of a payload, or
        raises MissingPayload."""
        self.arrays = arrays
        self._keep = keep
        self._load = load
        self._references: set[bytes] = set()
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._encode_array)
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._decode_array)

    def encode(self, data: Plain) -> Encoded:
        self._references.clear()
        body = self._encoder.encode(data)
        return Encoded(body, frozenset(self._references))

    def decode(self, body: bytes) -> Plain:
        return self._decoder.decode(body)

    def _encode_array(self, value: Any) -> msgspec.msgpack.Ext:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} is not plain data")
        shape = (value.dtype.str, list(value.shape), value.flags.writeable)
        if value.nbytes < PAYLOAD_BYTES:
            return msgspec.msgpack.Ext(_SMALL, msgspec.msgpack.encode((*shape, bytes(content(value)))))
        reference = self.arrays.reference(value)
        if self._keep is not None:
            reference = self._keep(reference, value)
        self._references.add(reference.digest)
        return msgspec.msgpack.Ext(_REFERENCE, msgspec.msgpack.encode((*shape, *reference)))

    def _decode_array(self, code: int, data: memoryview) -> Array:
        dtype, shape, writeable, *rest = msgspec.msgpack.decode(data)
        if code == _SMALL:
            return _array(rest[0], dtype, shape, writeable)
        if code != _REFERENCE:
            raise ValueError(f"unknown extension {code}")
        reference = Reference(*rest)
        known = None if writeable else self.arrays.loaded(reference, dtype, tuple(shape))
        if known is not None:
            return known
        if self._load is None:
            raise MissingPayload(reference.digest)
        array = _array(self._load(reference), dtype, shape, writeable)
        if not writeable:
            self.arrays.remember(reference, array)
        return array


def _array(data: bytes | memoryview, dtype: str, shape: list[int], writeable: bool) -> Array:
    array = np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape)
    if array.flags.writeable == writeable:
        return array
    array = array.copy()
    array.flags.writeable = writeable
    return array


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
