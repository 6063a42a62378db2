"""Samples as arrays: what a reader gives and what the engine trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Inputs and targets, one row a sample."""

    inputs: npt.NDArray[np.float32]
    targets: npt.NDArray[Any]
    """Class numbers (int32), or values (float32) where the task is a regression."""

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise DataError(f"{len(self.inputs)} inputs but {len(self.targets)} targets")

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    train: Samples
    test: Samples
    classes: int
    """How many classes the targets name."""
