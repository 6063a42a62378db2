"""A model is one flat, read-only float32 vector; `Layout` says which named array lies where in it.

Flat vectors make mixing three numpy calls whatever the model, and stack into one matrix for batched training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError

Weights: TypeAlias = npt.NDArray[np.float32]


def frozen(weights: npt.NDArray[np.float32]) -> Weights:
    """Mark as read-only: a model that was sent is shared by many jobs and must never change under them."""
    weights.flags.writeable = False
    return weights


def digest(weights: Weights) -> str:
    """SHA-256 of the numbers."""
    return hashlib.sha256(np.ascontiguousarray(weights).data).hexdigest()


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of the arrays inside a flat model, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    def unflatten(self, weights: Weights) -> dict[str, Weights]:
        arrays: dict[str, Weights] = {}
        start = 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + prod(shape)
            arrays[name] = weights[start:stop].reshape(shape)
            start = stop
        return arrays

    def flatten(self, arrays: Mapping[str, npt.NDArray[np.generic]], where: str = "the model") -> Weights:
        """Check names, shapes and finiteness; what passes is safe to train from."""
        missing = [name for name in self.names if name not in arrays]
        surplus = [name for name in arrays if name not in self.names]
        if missing or surplus:
            raise DataError(f"{where}: arrays missing: {missing or 'none'}; unknown: {surplus or 'none'}")
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            array = np.asarray(arrays[name])
            if array.shape != shape:
                raise DataError(f"{where}: array {name!r} has shape {array.shape}, this task's model wants {shape}")
            with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused just below
                values = array.astype(np.float32).reshape(-1)
            if not np.isfinite(values).all():
                raise DataError(f"{where}: array {name!r} holds NaN or infinite values (as float32)")
            parts.append(values)
        return frozen(np.concatenate(parts) if parts else np.zeros(0, np.float32))
