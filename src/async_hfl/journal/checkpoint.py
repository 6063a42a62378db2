"""Checkpoints: plain data with arrays, in one MessagePack file. No pickle.

An array that stands in many places (a model that was sent to twenty devices) is stored once and comes back as one.
A file is written beside its place, synced and renamed, so a kill at any moment leaves the old one or the new one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from async_hfl.core.errors import RunDirectoryError
from async_hfl.core.plain import Plain

_ARRAY = 1
FORMAT = 1


def save(path: Path, tree: Plain) -> None:
    arrays: list[np.ndarray[Any, Any]] = []
    places: dict[int, int] = {}

    def hook(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} in a checkpoint")
        place = places.get(id(value))
        if place is None:
            place = places[id(value)] = len(arrays)
            arrays.append(value)  # keeps it alive, so its id stays its own
        return msgspec.msgpack.Ext(_ARRAY, place.to_bytes(4, "little"))

    body = msgspec.msgpack.encode(tree, enc_hook=hook)
    stored = [[str(a.dtype), list(a.shape), a.flags.writeable, a.tobytes()] for a in arrays]
    beside = path.with_suffix(".part")
    with beside.open("wb") as file:
        file.write(msgspec.msgpack.encode([FORMAT, stored, body]))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path) -> Plain:
    try:
        version, stored, body = msgspec.msgpack.decode(path.read_bytes())
    except (msgspec.DecodeError, ValueError) as error:
        raise RunDirectoryError(f"{path}: not a checkpoint, or damaged ({error})") from error
    if version != FORMAT:
        raise RunDirectoryError(f"{path}: checkpoint format {version}, this version reads {FORMAT}")
    arrays = []
    for dtype, shape, writeable, data in stored:
        array = np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape).copy()
        array.flags.writeable = writeable
        arrays.append(array)

    def hook(code: int, data: memoryview) -> Any:
        if code != _ARRAY:
            raise RunDirectoryError(f"{path}: unknown extension {code}")
        return arrays[int.from_bytes(data, "little")]

    return msgspec.msgpack.decode(body, ext_hook=hook)
