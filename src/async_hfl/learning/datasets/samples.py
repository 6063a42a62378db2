"""Samples as arrays: the output of a reader and the input of the engine.

Samples are stored compactly. Images stay bytes and are scaled when a batch is gathered, and a series is stored once
although every sample is a window of it. Both save memory on every device, and gathering moves at most a quarter of the
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """A sample's input is (stored - offset) * factor, broadcast over the last axes."""

    offset: npt.NDArray[np.float32]
    factor: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Inputs and targets, one row per sample; or, with `starts`, one series whose windows are the samples."""

    inputs: npt.NDArray[Any]
    """Shape (samples, ...), or (time, ...) with `starts`. Floats, bytes (with `scaling`) or symbol numbers."""
    targets: npt.NDArray[Any]
    """(samples,) class numbers (int32), or (samples, values) float32 for a regression."""
    starts: npt.NDArray[np.int32] | None = None
    """(samples,): sample i is inputs[starts[i] : starts[i] + window]."""
    window: int = 0
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        if len(self) != len(self.targets):
            raise DataError(f"{len(self)} inputs but {len(self.targets)} targets")
        if self.starts is not None and len(self.starts):
            if self.window < 1:
                raise DataError(f"a window of {self.window} readings holds nothing")
            first, last = int(self.starts.min()), int(self.starts.max())
            if first < 0 or last + self.window > len(self.inputs):
                raise DataError(f"windows reach from {first} to {last + self.window} in a series of {len(self.inputs)}")

    def __len__(self) -> int:
        return len(self.inputs if self.starts is None else self.starts)

    def rows(self, rows: npt.NDArray[np.integer[Any]]) -> Samples:
        """Return only these samples."""
        if self.starts is None:
            return replace(self, inputs=self.inputs[rows], targets=self.targets[rows])
        return replace(self, targets=self.targets[rows], starts=self.starts[rows])

    def read(self, rows: npt.NDArray[np.integer[Any]] | Sequence[int]) -> npt.NDArray[np.float32]:
        """Return the inputs of these samples as a model sees them (in numpy; the engine gathers on its device)."""
        index = np.asarray(rows)
        if self.starts is None:
            stored = self.inputs[index]
        else:
            stored = self.inputs[self.starts[index][:, None] + np.arange(self.window)]
        if self.scaling is None:
            return stored  # type: ignore[no-any-return]
        scaled: npt.NDArray[np.float32] = (stored.astype(np.float32) - self.scaling.offset) * self.scaling.factor
        return scaled


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A data set, the same for every seed and every number of devices."""

    name: str
    train: Samples
    test: Samples
    classes: int = 0
    """Number of classes; 0 for a regression."""
    class_names: tuple[str, ...] = ()
    owner: npt.NDArray[np.int32] | None = None
    """(training samples,): the owner of each sample, if the data has natural owners (a person, a role, a station)."""
    test_owner: npt.NDArray[np.int32] | None = None
    owner_names: tuple[str, ...] = ()
