"""Gradient compression: linear projections that approximately preserve inner products.

* `none` sends whole gradients.
* `pca` projects on the leading right singular vectors of the warm-up gradients. They are not centred, so that dot
  products with the mean keep their meaning.
* `sketch` adds each number, with a random sign, to one of a few sums (count-sketch, Charikar et al. 2002). Inner
  products are unbiased, with a standard error of about |x| |y| / sqrt(size). The projection depends on a seed alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.randomness import scramble_many
from async_hfl.core.serialization import value
from async_hfl.core.vectors import HostVector, Vector

Gradient: TypeAlias = Vector
Components: TypeAlias = npt.NDArray[np.float32]


class GradientProjection(Protocol):
    """A linear map from whole gradients to short vectors."""

    @property
    def size(self) -> int:
        """Length of a projected gradient."""

    def project(self, gradient: Gradient) -> HostVector: ...


@value
class PcaProjection:
    """The projection on the principal components of the warm-up gradients."""

    components: Components
    """One orthonormal row per component."""

    @property
    def size(self) -> int:
        return int(self.components.shape[0])

    def project(self, gradient: Gradient) -> HostVector:
        return np.asarray(self.components @ np.asarray(gradient), dtype=np.float32)


@value
class CountSketch:
    """(S g)_b = sum over the j with h(j) = b of sign(j) g_j, where the seed determines h and sign."""

    seed: int
    size: int

    def project(self, gradient: Gradient) -> HostVector:
        bucket, sign = _hashes(self.seed, self.size, len(gradient))
        return np.bincount(bucket, np.asarray(gradient) * sign, self.size).astype(np.float32)


@lru_cache(maxsize=4)
def _hashes(seed: int, size: int, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the bucket and sign of each position; cached, since they are the same for every gradient of a run."""
    bits = scramble_many(np.arange(length, dtype=np.uint64) ^ np.uint64(seed))
    sign = np.where(bits & np.uint64(1), 1.0, -1.0)
    return ((bits >> np.uint64(1)) % np.uint64(size)).astype(np.int64), sign


def fit_pca(gradients: npt.NDArray[np.float32], components: int = 30) -> PcaProjection:
    """Return the leading min(components, rows) right singular vectors, with their signs fixed for reproducibility."""
    _, _, rows = np.linalg.svd(gradients.astype(np.float64), full_matrices=False)
    kept = rows[: min(components, len(gradients))]
    largest = np.take_along_axis(kept, np.abs(kept).argmax(axis=1)[:, None], axis=1)
    signed = np.ascontiguousarray(kept * np.where(largest < 0, -1.0, 1.0), dtype=np.float32)
    signed.flags.writeable = False  # all nodes of a simulation share this array, and a checkpoint stores it once
    return PcaProjection(signed)
