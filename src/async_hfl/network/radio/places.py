"""Places of radios, as columns in metres."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Places: x to the east, y to the north, and the height of the antenna above the ground."""

    x: Floats
    y: Floats
    height: Floats
    key: Ints
    """Permanent number of a place: random draws for a pair of places do not depend on the rest of the network."""

    def __post_init__(self) -> None:
        if not len(self.x) == len(self.y) == len(self.height) == len(self.key):
            raise DataError("places: x, y, height and key must be columns of one length")
        wrong = np.flatnonzero(~(np.isfinite(self.x) & np.isfinite(self.y) & np.isfinite(self.height)))
        if len(wrong):
            raise DataError(f"place {wrong[0]}: x, y or height is not a finite number")
        low = np.flatnonzero(self.height <= 0)
        if len(low):
            raise DataError(f"place {low[0]}: a height of {self.height[low[0]]} m; antennas stand above the ground")

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Ints | npt.NDArray[np.bool_] | slice) -> Places:
        """Return some of the places."""
        return Places(self.x[rows], self.y[rows], self.height[rows], self.key[rows])
