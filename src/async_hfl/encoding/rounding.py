"""How numbers are shortened for a transfer, and what they weigh then. Both shells use this one function.

`half` sends float32 as IEEE float16: half the bytes, 11 bits of each number. The receiver works with the rounded
numbers, so a simulation that is to resemble such a deployment rounds likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
M = TypeVar("M")
_HALF_MOST = np.float32(65504.0)


@dataclass(frozen=True, slots=True)
class Encoding:
    """Chosen by the sender; a receiver reads all of them."""

    half: bool = False
    """float32 arrays travel as float16."""
    zstd: bool = False
    """The arrays travel compressed, where that makes them smaller."""


def to_half(array: Array) -> npt.NDArray[np.float16]:
    """Nearest float16; finite numbers too large for it become its largest, NaN and infinity stay what they are (they
    mean that training went wrong, and are refused where they arrive)."""
    finite = np.where(np.isfinite(array), np.clip(array, -_HALF_MOST, _HALF_MOST), array)
    return finite.astype(np.float16)


def is_shortened(array: Array, encoding: Encoding) -> bool:
    return encoding.half and array.dtype == np.float32


def as_received(array: Array, encoding: Encoding) -> Array:
    """The array as the other side will have it; read-only, the very same object where nothing changes."""
    if not is_shortened(array, encoding):
        return array
    rounded = to_half(array).astype(np.float32)
    rounded.flags.writeable = False
    return rounded


def array_bytes(array: Array, encoding: Encoding) -> int:
    """Before compression."""
    return array.nbytes // 2 if is_shortened(array, encoding) else array.nbytes


def message_as_received(message: M, encoding: Encoding) -> M:
    """A message with every array in it as the other side will have it."""
    if not encoding.half:
        return message
    rounded: M = _rounded(message, encoding)
    return rounded


def _rounded(value: Any, encoding: Encoding) -> Any:
    if isinstance(value, np.ndarray):
        return as_received(value, encoding)
    if isinstance(value, tuple):
        items = [_rounded(item, encoding) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if hasattr(value, "__dataclass_fields__"):
        changed = {}
        for field in fields(value):
            old = getattr(value, field.name)
            new = _rounded(old, encoding)
            if new is not old:
                changed[field.name] = new
        return replace(value, **changed) if changed else value
    return value
