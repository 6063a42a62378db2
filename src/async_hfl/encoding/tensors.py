"""The safetensors format, read and written without copies.

A file is a length (8 bytes), a JSON header {name: {dtype, shape, data_offsets}} and the arrays in sequence. The
published library copies each array when reading and writing. A model of 40 MB goes to 50 devices, so here the arrays'
own memory is sent, and received arrays are views of the received bytes. Names are "0", "1", ...: the header of the
message refers to arrays by index. Everything that is read is checked: a peer may send anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import PeerError

Array = npt.NDArray[Any]
MOST_ARRAYS = 100_000
_MOST_HEADER = 16 * 2**20
_MOST_DIMENSIONS = 8
_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
Buffer = bytes | memoryview


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_header_decoder = msgspec.json.Decoder(dict[str, _Entry])


def write(arrays: Sequence[Array]) -> list[Buffer]:
    """Return the file in pieces: the header, then the memory of each array."""
    header: dict[str, Any] = {}
    pieces: list[Buffer] = []
    start = 0
    for number, array in enumerate(arrays):
        name = _NAMES.get(array.dtype.newbyteorder("<"))
        if name is None:
            raise TypeError(f"an array of {array.dtype} cannot be sent")
        stop = start + array.nbytes
        header[str(number)] = {"dtype": name, "shape": list(array.shape), "data_offsets": [start, stop]}
        little = np.ascontiguousarray(array, dtype=_DTYPES[name])
        pieces.append(little.reshape(-1).view(np.uint8).data)
        start = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at multiples of 8, so that they can be used in place
    return [len(text).to_bytes(8, "little") + text, *(piece for piece in pieces if len(piece))]


def read(data: memoryview) -> list[Array]:
    """Return read-only arrays that are views of `data`."""
    if len(data) < 8:
        raise PeerError("arrays: truncated before the header")
    length = int.from_bytes(data[:8], "little")
    if length > min(_MOST_HEADER, len(data) - 8):
        raise PeerError(f"arrays: a header of {length} bytes in a body of {len(data)}")
    try:
        entries = _header_decoder.decode(data[8 : 8 + length])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"arrays: header unreadable ({error})") from error
    if len(entries) > MOST_ARRAYS:
        raise PeerError(f"arrays: {len(entries)} of them; at most {MOST_ARRAYS} are accepted")
    body = data[8 + length :]
    arrays: list[Array] = []
    expected = 0
    for number in range(len(entries)):
        entry = entries.get(str(number))
        if entry is None:
            raise PeerError(f"arrays: number {number} of {len(entries)} is missing")
        dtype = _DTYPES.get(entry.dtype)
        if dtype is None:
            raise PeerError(f"array {number}: unknown dtype {entry.dtype[:16]!r}")
        if len(entry.shape) > _MOST_DIMENSIONS or any(not 0 <= length < 2**40 for length in entry.shape):
            raise PeerError(f"array {number}: an impossible shape")
        start, stop = entry.data_offsets
        if start != expected or stop - start != prod(entry.shape) * dtype.itemsize or stop > len(body):
            raise PeerError(f"array {number}: its offsets {start}-{stop} do not fit its shape, or the body")
        array = np.frombuffer(body[start:stop], dtype=dtype).reshape(entry.shape)
        array.flags.writeable = False
        arrays.append(array)
        expected = stop
    if expected != len(body):
        raise PeerError(f"arrays: {len(body) - expected} bytes belong to no array")
    return arrays
