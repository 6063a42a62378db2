"""Natural owners: each person, role or station is a device.

With fewer devices than owners, the first owners in the data's order are used. With more, an owner's samples are divided
over several devices, as if one person had several phones; the numbers of devices per owner differ by at most one, the
first owners having more. A device never holds samples of two owners.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.partition.dealing import (
    Rows,
    SamplesPerDevice,
    check_devices,
    check_samples_per_device,
    device_rows,
    even_parts,
)


def natural_id(
    dataset: Dataset, devices: int, seed: int, *, samples_per_device: SamplesPerDevice = "all"
) -> tuple[Rows, ...]:
    """Partition by owner. A number of samples is the most that a device keeps of its owner's."""
    check_devices(devices)
    if dataset.owner is None:
        raise DataError(f"{dataset.name} has no natural owners: use another partition than natural_id")
    most = check_samples_per_device(samples_per_device)
    random = stream(seed, "partition", "natural_id")
    # By number, not by name: an owner without training samples (all in the test set) is skipped.
    owners = np.unique(dataset.owner)[:devices]
    shares: list[list[Rows]] = []
    for owner, holders in zip(owners, even_parts(devices, len(owners)), strict=True):
        rows = np.flatnonzero(dataset.owner == owner)
        if holders > len(rows):
            raise DataError(
                f"{devices} devices for {len(owners)} owners: owner {owner} has {len(rows)} samples, too few for "
                f"{holders} devices; use fewer devices"
            )
        parts = [rows] if holders == 1 else np.array_split(random.permutation(rows), holders)
        for part in parts:
            kept = part if most is None or len(part) <= most else random.choice(part, most, replace=False)
            shares.append([kept])
    return device_rows(shares, len(dataset.train))


def owners_test_rows(
    owned: Sequence[Rows], owner: npt.NDArray[np.int32], test_owner: npt.NDArray[np.int32]
) -> tuple[Rows, ...]:
    """Return the test samples of each device's natural owner, for a partition by owner.

    Devices with the same owner share its test samples.
    """
    of_owner = {int(number): np.flatnonzero(test_owner == number) for number in np.unique(test_owner)}
    nothing = np.zeros(0, dtype=np.int64)
    return tuple(of_owner.get(int(owner[rows[0]]), nothing) for rows in owned)
