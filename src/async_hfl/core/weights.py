"""Models as flat, read-only float32 vectors, and the layout of named arrays inside them.

Flat vectors can be mixed by three numpy calls whatever the model, and stacked into one matrix for batched training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.vectors import DeviceVector, HostVector, Vector

Weights: TypeAlias = Vector
"""On the host or, in a simulation on an accelerator, on the learner's device."""


def frozen(weights: HostVector) -> HostVector:
    """Mark an array as read-only: a model that was sent is shared by many jobs and must not change."""
    weights.flags.writeable = False
    return weights


def digest(weights: Weights) -> str:
    """Return the SHA-256 of the numbers."""
    return hashlib.sha256(np.ascontiguousarray(weights).data).hexdigest()


def is_finite(weights: Weights) -> bool:
    """True if no weight is NaN or infinite. One product decides nearly every case; huge finite weights overflow it."""
    if isinstance(weights, DeviceVector):
        return weights.finite
    with np.errstate(over="ignore", invalid="ignore"):
        if isfinite(float(np.dot(weights, weights))):
            return True
    return bool(np.logical_and.reduce(np.isfinite(weights)))


def mean_step(sent: Weights, received: Weights, size: int, divisor: np.float32) -> Vector:
    """Return (sent - received) / divisor of the first `size` weights, which are trained. It may overflow."""
    if isinstance(received, DeviceVector):
        return received.mean_step(sent, size, divisor)
    with np.errstate(over="ignore", invalid="ignore"):
        step = np.asarray(sent)[:size] - received[:size]
        step /= divisor
    return frozen(step)


@dataclass(frozen=True, slots=True)
class Layout:
    """The names and shapes of the arrays inside a flat model, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    def unflatten(self, weights: HostVector) -> dict[str, HostVector]:
        arrays: dict[str, HostVector] = {}
        start = 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + prod(shape)
            arrays[name] = weights[start:stop].reshape(shape)
            start = stop
        return arrays

    def flatten(self, arrays: Mapping[str, npt.NDArray[np.generic]], where: str = "the model") -> HostVector:
        """Return the flat model after checking names, shapes and that all values are finite."""
        missing = [name for name in self.names if name not in arrays]
        surplus = [name for name in arrays if name not in self.names]
        if missing or surplus:
            raise DataError(f"{where}: arrays missing: {missing or 'none'}; unknown: {surplus or 'none'}")
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            array = np.asarray(arrays[name])
            if array.shape != shape:
                raise DataError(f"{where}: array {name!r} has shape {array.shape}, this task's model wants {shape}")
            with np.errstate(over="ignore"):  # too large a value becomes infinite and is refused below
                values = array.astype(np.float32).reshape(-1)
            if not np.isfinite(values).all():
                raise DataError(f"{where}: array {name!r} holds NaN or infinite values (as float32)")
            parts.append(values)
        return frozen(np.concatenate(parts) if parts else np.zeros(0, np.float32))
