"""The data's own owners: a person, a role, a station is a device.

Fewer devices than owners: the first ones, in the data's order. More devices than owners: an owner's samples are dealt
over several devices, as if one person had several phones; which owner has how many differs by at most one, the first
owners having more. A device never holds samples of two owners.
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
    even_parts,
    hands,
)


def natural_id(
    dataset: Dataset, devices: int, seed: int, *, samples_per_device: SamplesPerDevice = "all"
) -> tuple[Rows, ...]:
    """A number of samples is the most that a device keeps of its owner's; nobody is given another's."""
    check_devices(devices)
    if dataset.owner is None:
        raise DataError(f"{dataset.name} has no natural owners: use another partition than natural_id")
    most = check_samples_per_device(samples_per_device)
    random = stream(seed, "partition", "natural_id")
    # By number, not by name: an owner without a training sample (all in the test set) is passed over.
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
    return hands(shares, len(dataset.train))


def owners_test_rows(
    owned: Sequence[Rows], owner: npt.NDArray[np.int32], test_owner: npt.NDArray[np.int32]
) -> tuple[Rows, ...]:
    """The test samples of each device's natural owner, for a partition that kept owners apart.

    Devices that share an owner share the owner's test samples.
    """
    of_owner = {int(number): np.flatnonzero(test_owner == number) for number in np.unique(test_owner)}
    nothing = np.zeros(0, dtype=np.int64)
    return tuple(of_owner.get(int(owner[rows[0]]), nothing) for rows in owned)
