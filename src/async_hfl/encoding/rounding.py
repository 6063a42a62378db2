"""Rounding of arrays for a transfer, used by the deployment and the simulation.

`half` sends float32 as IEEE float16: half the bytes, with 11 significant bits. The receiver works with the rounded
numbers, so a simulation of such a deployment rounds them in the same way.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.vectors import DeviceVector

Array = npt.NDArray[Any]
_MAX_HALF = np.float32(65504.0)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of arrays, chosen by the sender; a receiver accepts all."""

    half: bool = False
    """float32 arrays travel as float16."""
    zstd: bool = False
    """Arrays travel compressed if that makes them smaller."""


AS_IT_IS = Encoding()


def to_half(array: Array) -> npt.NDArray[np.float16]:
    """Round to float16. Finite numbers beyond its range become its largest. NaN and infinity are kept, since they
    mean that training diverged and the receiver must refuse the update."""
    finite = np.where(np.isfinite(array), np.clip(array, -_MAX_HALF, _MAX_HALF), array)
    return finite.astype(np.float16)


def is_rounded(array: Array, encoding: Encoding) -> bool:
    return encoding.half and array.dtype == np.float32


class Rounding:
    """Rounds messages as their receivers will have them. An array that goes to twenty devices is rounded once."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._known: dict[int, tuple[weakref.ref[Array], Array]] = {}

    def received(self, message: Any) -> Any:
        """Return the message with rounded, read-only arrays; the same object if nothing is rounded."""
        return _changed(message, self._array) if self._encoding.half else message

    def _array(self, array: Array) -> Array:
        if not is_rounded(array, self._encoding):
            return array
        place = id(array)
        known = self._known.get(place)
        if known is not None and known[0]() is array:
            return known[1]
        rounded = to_half(array).astype(np.float32)
        rounded.flags.writeable = False
        if not array.flags.writeable:
            gone = weakref.ref(array, lambda _: self._known.pop(place, None))
            self._known[place] = (gone, rounded)
        return rounded


def _changed(value: Any, change: Callable[[Array], Array]) -> Any:
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, DeviceVector):
        return change(value.to_host())
    if isinstance(value, tuple):
        items = [_changed(item, change) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if hasattr(value, "__dataclass_fields__"):
        changed = {}
        for field in fields(value):
            old = getattr(value, field.name)
            new = _changed(old, change)
            if new is not old:
                changed[field.name] = new
        return replace(value, **changed) if changed else value
    return value
