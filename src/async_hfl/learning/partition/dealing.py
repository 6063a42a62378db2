"""Helpers of all partitions: shuffled decks of samples, and the check of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.samples import Dataset

Rows: TypeAlias = npt.NDArray[np.int64]
SamplesPerDevice: TypeAlias = int | Literal["all"]
"""A number: each device draws that many samples, and devices may share samples. "all": every sample has one owner."""


class Deck:
    """A shuffled deck of samples, reshuffled whenever it runs out.

    Each pass deals every sample once, so over many draws the counts of two samples differ by at most one. A single draw
    contains no sample twice: samples drawn from the end of one pass are put last in the next.
    """

    def __init__(self, rows: Rows, random: np.random.Generator) -> None:
        self._rows = rows
        self._random = random
        self._left = random.permutation(rows)

    def draw(self, count: int, what: str) -> Rows:
        if count > len(self._rows):
            raise DataError(
                f"a device wants {count} samples of {what}, which has {len(self._rows)}: use fewer samples per device"
            )
        drawn, self._left = self._left[:count], self._left[count:]
        missing = count - len(drawn)
        if missing:
            fresh = self._random.permutation(self._rows)
            again = np.isin(fresh, drawn)
            fresh = np.concatenate([fresh[~again], fresh[again]])
            drawn, self._left = np.concatenate([drawn, fresh[:missing]]), fresh[missing:]
        return drawn


def labels_of(dataset: Dataset, name: str) -> npt.NDArray[np.integer[Any]]:
    """Return the class of each training sample."""
    if not dataset.classes:
        raise DataError(
            f"partition {name!r} deals by class, but {dataset.name} has no classes: use iid, by_size or natural_id"
        )
    return dataset.train.targets


def check_devices(devices: int) -> None:
    if devices < 1:
        raise DataError(f"the training set cannot be dealt over {devices} devices; use at least 1")


def check_samples_per_device(wanted: SamplesPerDevice) -> int | None:
    """Return the number; None for "all"."""
    if wanted == "all":
        return None
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
        raise DataError(f"samples_per_device = {wanted!r}: a whole number from 1, or 'all'")
    return wanted


def even_parts(total: int, parts: int) -> list[int]:
    """Divide a whole number into parts that differ by at most one, the larger ones first."""
    return [total // parts + (index < total % parts) for index in range(parts)]


def device_rows(shares: Sequence[Sequence[Rows]], samples: int) -> tuple[Rows, ...]:
    """Return each device's samples as ascending rows; no device may be without samples."""
    dealt = tuple(
        np.sort(np.concatenate(parts)).astype(np.int64) if parts else np.zeros(0, np.int64) for parts in shares
    )
    empty = sum(1 for rows in dealt if len(rows) == 0)
    if empty:
        raise DataError(
            f"{empty} of {len(dealt)} devices got no sample: {samples} training samples are too few for so many "
            f"devices; use fewer devices"
        )
    return dealt
