"""Plain data as bytes: MessagePack, with large arrays left out and named by their SHA-256.

An array of `PAYLOAD_BYTES` or more becomes a payload: the bytes hold a reference, the store keeps the content once,
however many events speak of it. What is read-only never changes (a rule of this package), so its digest is worked out
once and remembered while the array lives, and what is read back twice is one array.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, finalize

import msgspec
import numpy as np

from async_hfl.core.serialization import Plain

PAYLOAD_BYTES = 4096
_SMALL, _REFERENCE = 1, 2
Array = np.ndarray[Any, Any]


class Reference(NamedTuple):
    """Some bytes of a stored payload."""

    digest: bytes
    offset: int
    length: int


class MissingPayload(Exception):
    """A payload was evicted (or its file is gone). Whoever reads decides whether that matters."""

    def __init__(self, digest: bytes) -> None:
        super().__init__(f"payload {digest.hex()} is not there")
        self.digest = digest


@dataclass(frozen=True, slots=True)
class Encoded:
    body: bytes
    references: frozenset[bytes]
    """Digests of the payloads that the body speaks of."""


class Arrays:
    """Which array has which digest, both ways, while they live."""

    def __init__(self) -> None:
        self._of_array: dict[int, Reference] = {}
        self._loaded: WeakValueDictionary[tuple[Reference, str, tuple[int, ...]], Array] = WeakValueDictionary()

    def reference(self, array: Array) -> Reference:
        known = self._of_array.get(id(array))
        if known is None:
            known = Reference(hashlib.sha256(content(array)).digest(), 0, array.nbytes)
            if not array.flags.writeable:
                self.learn(array, known)
        return known

    def learn(self, array: Array, reference: Reference) -> None:
        self._of_array[id(array)] = reference
        # An id is free again when its array is gone.
        finalize(array, self._of_array.pop, id(array), None)

    def loaded(self, reference: Reference, dtype: str, shape: tuple[int, ...]) -> Array | None:
        return self._loaded.get((reference, dtype, shape))

    def remember(self, reference: Reference, array: Array) -> None:
        self._loaded[reference, array.dtype.str, array.shape] = array
        self.learn(array, reference)


def content(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Encoding:
    def __init__(
        self,
        arrays: Arrays,
        keep: Callable[[Reference, Array], None] | None = None,
        load: Callable[[Reference], memoryview] | None = None,
    ) -> None:
        """`keep` is given every payload that is encoded, `load` answers with a payload's bytes (or MissingPayload)."""
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
        self._references.add(reference.digest)
        if self._keep is not None:
            self._keep(reference, value)
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
