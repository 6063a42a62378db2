"""Gradient compression as a linear projection that keeps inner products nearly right.

`none` sends gradients whole; `pca` projects on the leading right singular vectors of the warm-up gradients
(uncentred, so that dot products with the mean keep their meaning); `sketch` adds each number, with a random sign, to
one of a few sums (count-sketch, Charikar et al. 2002): inner products are right in expectation, with a standard error
of about |x| |y| / sqrt(size), and nothing but a seed need be known to do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.device_vector import HereVector, Vector, here
from async_hfl.core.randomness import scramble_many
from async_hfl.core.serialization import plain

Gradient: TypeAlias = Vector
Components: TypeAlias = npt.NDArray[np.float32]


class GradientProjection(Protocol):
    @property
    def size(self) -> int:
        """Numbers per projected gradient."""
        ...

    def project(self, gradient: Gradient) -> HereVector: ...


@plain
@dataclass(frozen=True, slots=True)
class PcaProjection:
    components: Components
    """One orthonormal row per component."""

    @property
    def size(self) -> int:
        return int(self.components.shape[0])

    def project(self, gradient: Gradient) -> HereVector:
        return np.asarray(self.components @ here(gradient), dtype=np.float32)


@plain
@dataclass(frozen=True, slots=True)
class CountSketch:
    """(S g)_b = sum over the j with h(j) = b of sign(j) g_j; h and sign are drawn by the seed."""

    seed: int
    size: int

    def project(self, gradient: Gradient) -> HereVector:
        bucket, sign = _hashes(self.seed, self.size, len(gradient))
        return np.bincount(bucket, here(gradient) * sign, self.size).astype(np.float32)


@lru_cache(maxsize=4)
def _hashes(seed: int, size: int, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Bucket and sign of each place; the same for every gradient of a run, so drawn once."""
    bits = scramble_many(np.arange(length, dtype=np.uint64) ^ np.uint64(seed))
    sign = np.where(bits & np.uint64(1), 1.0, -1.0)
    return ((bits >> np.uint64(1)) % np.uint64(size)).astype(np.int64), sign


def fit_pca(gradients: npt.NDArray[np.float32], components: int = 30) -> PcaProjection:
    """The leading min(components, rows) right singular vectors, signs fixed so that runs repeat."""
    _, _, rows = np.linalg.svd(gradients.astype(np.float64), full_matrices=False)
    kept = rows[: min(components, len(gradients))]
    largest = np.take_along_axis(kept, np.abs(kept).argmax(axis=1)[:, None], axis=1)
    signed = np.ascontiguousarray(kept * np.where(largest < 0, -1.0, 1.0), dtype=np.float32)
    signed.flags.writeable = False  # every node of a simulation shares the one array, and so does a checkpoint
    return PcaProjection(signed)
