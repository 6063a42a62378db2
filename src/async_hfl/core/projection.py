"""Gradient compression as a linear projection that keeps inner products nearly right.

`none` sends gradients whole; `pca` projects on the leading right singular vectors of the warm-up gradients
(uncentred, so that dot products with the mean keep their meaning).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from async_hfl.core.plain import plain

Gradient = npt.NDArray[np.float32]


class GradientProjection(Protocol):
    @property
    def size(self) -> int:
        """Numbers per projected gradient."""
        ...

    @property
    def basis_bytes(self) -> int:
        """What sending the projection itself costs."""
        ...

    def project(self, gradient: Gradient) -> Gradient: ...


@plain
@dataclass(frozen=True, slots=True)
class NoProjection:
    size: int
    basis_bytes: int = 0

    def project(self, gradient: Gradient) -> Gradient:
        return gradient


@plain
@dataclass(frozen=True, slots=True)
class PcaProjection:
    components: Gradient
    """One orthonormal row per component."""

    @property
    def size(self) -> int:
        return int(self.components.shape[0])

    @property
    def basis_bytes(self) -> int:
        return int(self.components.nbytes)

    def project(self, gradient: Gradient) -> Gradient:
        return np.asarray(self.components @ gradient, dtype=np.float32)


def fit_pca(gradients: npt.NDArray[np.float32], components: int = 30) -> PcaProjection:
    """The leading min(components, rows) right singular vectors, signs fixed so that runs repeat."""
    _, _, rows = np.linalg.svd(gradients.astype(np.float64), full_matrices=False)
    kept = rows[: min(components, len(gradients))]
    largest = np.take_along_axis(kept, np.abs(kept).argmax(axis=1)[:, None], axis=1)
    return PcaProjection(np.ascontiguousarray(kept * np.where(largest < 0, -1.0, 1.0), dtype=np.float32))
