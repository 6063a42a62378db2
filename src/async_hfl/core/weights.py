"""A model is one flat, read-only float32 vector; `Layout` says which named array lies where in it.

Flat vectors make mixing three numpy calls whatever the model, and stack into one matrix for batched training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.device_vector import DeviceVector, HereVector, Vector, here
from async_hfl.core.errors import DataError

Weights: TypeAlias = Vector
"""Here or, in a simulation on an accelerator, with the learner."""


def frozen(weights: HereVector) -> HereVector:
    """Mark as read-only: a model that was sent is shared by many jobs and must never change under them."""
    weights.flags.writeable = False
    return weights


def digest(weights: Weights) -> str:
    """SHA-256 of the numbers."""
    return hashlib.sha256(np.ascontiguousarray(here(weights)).data).hexdigest()


def is_finite(weights: Weights) -> bool:
    """No NaN, no infinity. One product tells in nearly every case; a huge but finite vector overflows it."""
    if isinstance(weights, DeviceVector):
        return weights.finite
    with np.errstate(over="ignore", invalid="ignore"):
        if isfinite(float(np.dot(weights, weights))):
            return True
    return bool(np.logical_and.reduce(np.isfinite(weights)))


def mean_step(sent: Weights, received: Weights, size: int, divisor: np.float32) -> Vector:
    """(sent - received) / divisor of the leading numbers, which are trained. Of absurd weights it is not finite."""
    if isinstance(received, DeviceVector):
        return received.mean_step(sent, size, divisor)
    with np.errstate(over="ignore", invalid="ignore"):
        step = here(sent)[:size] - received[:size]
        step /= divisor
    return frozen(step)


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of the arrays inside a flat model, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    def unflatten(self, weights: HereVector) -> dict[str, HereVector]:
        arrays: dict[str, HereVector] = {}
        start = 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + prod(shape)
            arrays[name] = weights[start:stop].reshape(shape)
            start = stop
        return arrays

    def flatten(self, arrays: Mapping[str, npt.NDArray[np.generic]], where: str = "the model") -> HereVector:
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
