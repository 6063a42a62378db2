"""Partitions that ignore the content of samples: equal sizes, or sizes that grow with the device's number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.partition.dealing import (
    Deck,
    Rows,
    SamplesPerDevice,
    check_devices,
    check_samples_per_device,
    device_rows,
)

Sizes: TypeAlias = Literal["linear", "square", "exponential"] | Sequence[int]


def iid(dataset: Dataset, devices: int, seed: int, *, samples_per_device: SamplesPerDevice = "all") -> tuple[Rows, ...]:
    """Shuffle and divide evenly: sizes differ by at most one."""
    check_devices(devices)
    random = stream(seed, "partition", "iid")
    samples = len(dataset.train)
    rows = np.arange(samples, dtype=np.int64)
    wanted = check_samples_per_device(samples_per_device)
    if wanted is None:
        return device_rows([[part] for part in np.array_split(random.permutation(rows), devices)], samples)
    deck = Deck(rows, random)
    return device_rows([[deck.draw(wanted, "the training set")] for _ in range(devices)], samples)


def by_size(dataset: Dataset, devices: int, seed: int, *, partition_sizes: Sizes = "linear") -> tuple[Rows, ...]:
    """Shuffle and divide in proportion to (i + 1), (i + 1)^2 or e^i for device i, or in the given sizes.

    Proportions use every sample; given sizes may leave some out.
    """
    check_devices(devices)
    samples = len(dataset.train)
    sizes = _sizes(partition_sizes, devices, samples)
    shuffled = stream(seed, "partition", "by_size").permutation(samples)
    stops = np.cumsum(sizes)
    return device_rows([[shuffled[stop - size : stop]] for size, stop in zip(sizes, stops, strict=True)], samples)


def _sizes(given: Sizes, devices: int, samples: int) -> npt.NDArray[np.int64]:
    if isinstance(given, str):
        numbers = np.arange(1, devices + 1, dtype=np.float64)
        if given == "linear":
            return _in_proportion(numbers, samples)
        if given == "square":
            return _in_proportion(numbers**2, samples)
        if given == "exponential":
            return _in_proportion(np.exp(numbers - devices), samples)
        raise DataError(f"partition_sizes = {given!r}: there is linear, square, exponential, or a size for each device")
    sizes = np.asarray(given)
    if sizes.shape != (devices,) or sizes.dtype.kind not in "iu" or (sizes < 1).any():
        raise DataError(f"partition_sizes: give {devices} whole numbers from 1, one for each device; got {given!r}")
    if int(sizes.sum()) > samples:
        raise DataError(f"partition_sizes add up to {int(sizes.sum())}, and there are {samples} training samples")
    whole: npt.NDArray[np.int64] = sizes.astype(np.int64)
    return whole


def _in_proportion(weights: npt.NDArray[np.float64], samples: int) -> npt.NDArray[np.int64]:
    """Return whole numbers with the given sum, by the largest remainders."""
    exact = weights / weights.sum() * samples
    sizes: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    missing = samples - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:missing]] += 1
    return sizes
