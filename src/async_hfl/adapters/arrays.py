"""The arrays that clients exchange, in the client's own order, and the flat vector that travels for them.

Floating-point arrays travel as float32, those that training changes first. Integer arrays (counters) do not travel:
a mean of counters means nothing. Each device keeps the newest values that its own client has returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.weights import Layout

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One array: its name, its form, and if training changes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trained: bool

    @property
    def travels(self) -> bool:
        return np.dtype(self.dtype).kind == "f"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The arrays of a client in its own order, and their places in the flat vector."""

    arrays: tuple[Exchanged, ...]

    @staticmethod
    def of(names: Sequence[str], arrays: Sequence[Array], trained: Sequence[bool]) -> Arrangement:
        """Raises ValueError if an array cannot be exchanged."""
        if not arrays:
            raise ValueError("the client's get_parameters gives no arrays; give model=FUNCTION to the adapter")
        for name, array in zip(names, arrays, strict=True):
            if array.dtype.kind not in "fiub":
                raise ValueError(f"array {name!r} holds {array.dtype} values; a model consists of numbers")
        if not any(array.dtype.kind == "f" for array in arrays):
            raise ValueError("the model has no floating-point array to train")
        parts = zip(names, arrays, trained, strict=True)
        return Arrangement(tuple(Exchanged(n, a.shape, a.dtype.str, t) for n, a, t in parts))

    @property
    def layout(self) -> Layout:
        order = [self.arrays[place] for place in self._order()]
        return Layout(tuple(one.name for one in order), tuple(one.shape for one in order))

    @property
    def trained_size(self) -> int:
        return sum(prod(one.shape) for one in self.arrays if one.travels and one.trained)

    def join(self, arrays: Sequence[Any]) -> tuple[Floats, list[Array]]:
        """Return the flat vector and the integer arrays. Raises ValueError if the arrays have another form."""
        found = [np.asarray(array) for array in arrays]
        if len(found) != len(self.arrays):
            raise ValueError(f"{len(found)} arrays, and the model has {len(self.arrays)} ({self._some()})")
        for one, array in zip(self.arrays, found, strict=True):
            if array.dtype.kind not in "fiub":
                raise ValueError(f"array {one.name!r} of {array.dtype} values; a model consists of numbers")
            if array.shape != one.shape:
                raise ValueError(f"array {one.name!r} has shape {array.shape}, and the model's has {one.shape}")
        with np.errstate(over="ignore"):
            flat = np.concatenate([found[place].astype(np.float32).reshape(-1) for place in self._order()])
        kept = zip(self.arrays, found, strict=True)
        return flat, [array.astype(one.dtype) for one, array in kept if not one.travels]

    def split(self, flat: Floats, integers: Sequence[Array]) -> list[Array]:
        """Return new arrays in the client's order and types."""
        found: dict[int, Array] = {}
        start = 0
        for place in self._order():
            one = self.arrays[place]
            stop = start + prod(one.shape)
            found[place] = flat[start:stop].reshape(one.shape).astype(one.dtype)
            start = stop
        kept = iter(integers)
        return [found[place] if one.travels else next(kept).copy() for place, one in enumerate(self.arrays)]

    def _order(self) -> list[int]:
        """Return the places of the travelling arrays, the trained ones first."""
        places = [place for place, one in enumerate(self.arrays) if one.travels]
        return sorted(places, key=lambda place: not self.arrays[place].trained)

    def _some(self) -> str:
        names = [one.name for one in self.arrays]
        return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
