"""Checkpoint files: named parts of plain data and arrays, as MessagePack blocks with checksums. No pickle.

Parts are written one by one, so that a network of 100,000 devices is never in memory twice. An array that is referred
to in many places (a model that was sent to twenty devices) is stored once and shared again after loading. A file is
written under a temporary name, synced and renamed, so a kill at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import msgspec
import numpy as np

from async_hfl.core.errors import RunDirectoryError
from async_hfl.core.serialization import Plain
from async_hfl.core.vectors import DeviceVector, Vector
from async_hfl.journal.formats import FORMAT, foreign_format

_ARRAY, _DEVICE_VECTOR = 1, 2
_MAGIC = b"async-hfl checkpoint %d\n"
_HEADER = _MAGIC % FORMAT
_LENGTH = 8
_WORTH_SHARING = 4096
"""Bytes of an array. Smaller arrays are cheaper to write again than to look up."""
_CHECKSUM = 4
Array = np.ndarray[Any, Any]


def save(path: Path, parts: Iterable[tuple[str, Plain]]) -> None:
    beside = path.with_suffix(".part")
    with beside.open("wb") as file:
        file.write(_HEADER)
        writer = _Writer(file)
        for name, tree in parts:
            writer.part(name, tree)
        writer.close()
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path, to_device: Callable[[Array], Vector] | None = None) -> dict[str, list[Plain]]:
    """Return the trees of each part name, as saved; `to_device` puts vectors back on an accelerator."""
    data = memoryview(path.read_bytes())
    if bytes(data[: len(_HEADER)]) != _HEADER:
        for former in range(1, FORMAT):
            if bytes(data[: len(_HEADER)]) == _MAGIC % former:
                raise RunDirectoryError(f"{foreign_format(path, former)}, or delete it to begin the run again")
        raise RunDirectoryError(f"{path}: not a checkpoint; delete it to begin the run again")
    try:
        return _read(data[len(_HEADER) :], to_device)
    except (msgspec.DecodeError, ValueError, TypeError, IndexError, KeyError) as error:
        raise RunDirectoryError(f"{path}: damaged ({error}); delete it to begin the run again") from error


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._array)
        self._shared: dict[int, tuple[int, Array]] = {}
        self.arrays = 0

    def part(self, name: str, tree: Plain) -> None:
        # The arrays of a part are written while it is encoded, so they precede it in the file.
        self.block(["part", name, self._encoder.encode(tree)])

    def block(self, content: list[Any]) -> None:
        self._checked(self._encoder.encode(content))

    def _checked(self, data: bytes | memoryview) -> None:
        self._file.write(len(data).to_bytes(_LENGTH, "little") + crc32(data).to_bytes(_CHECKSUM, "little"))
        self._file.write(data)

    def close(self) -> None:
        self.block(["end", self.arrays])
        self._shared.clear()  # the encoder and its hook are a cycle: release the arrays now

    def _array(self, value: Any) -> Any:
        code = _ARRAY
        if isinstance(value, DeviceVector):
            code, value = _DEVICE_VECTOR, value.to_host()
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} in a checkpoint")
        known = self._shared.get(id(value))
        if known is None:
            known = (self.arrays, value)
            self.arrays += 1
            if not value.flags.writeable and value.nbytes >= _WORTH_SHARING:
                self._shared[id(value)] = known  # keeps the array alive, so that its id is not reused
            # A view of the array's memory: a large table is not copied on its way to the file.
            self.block(["array", str(value.dtype), list(value.shape), value.flags.writeable])
            self._checked(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return msgspec.msgpack.Ext(code, known[0].to_bytes(4, "little"))


def _read(data: memoryview, to_device: Callable[[Array], Vector] | None) -> dict[str, list[Plain]]:
    arrays: list[Array] = []
    parts: dict[str, list[Plain]] = {}

    def hook(code: int, place: memoryview) -> Any:
        if code not in (_ARRAY, _DEVICE_VECTOR):
            raise ValueError(f"unknown extension {code}")
        array = arrays[int.from_bytes(place, "little")]
        return array if code == _ARRAY or to_device is None else to_device(array)

    blocks = _blocks(data)
    for block in blocks:
        kind, *content = msgspec.msgpack.decode(block)
        if kind == "array":
            dtype, shape, writeable = content
            array = np.frombuffer(next(blocks, b""), dtype=np.dtype(dtype)).reshape(shape).copy()
            array.flags.writeable = writeable
            arrays.append(array)
        elif kind == "part":
            name, body = content
            parts.setdefault(name, []).append(msgspec.msgpack.decode(body, ext_hook=hook))
        elif content[0] == len(arrays):
            return parts
    raise ValueError("no end")


def _blocks(data: memoryview) -> Iterator[memoryview]:
    position = 0
    while position < len(data):
        start = position + _LENGTH + _CHECKSUM
        length, checksum = data[position : position + _LENGTH], data[position + _LENGTH : start]
        position = start + int.from_bytes(length, "little")
        if position > len(data):
            raise ValueError("cut off")
        if crc32(data[start:position]) != int.from_bytes(checksum, "little"):
            raise ValueError("a checksum is wrong")
        yield data[start:position]
