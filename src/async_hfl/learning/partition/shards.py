"""Sorted by class and cut into equal shards, some of which go to each device: McMahan et al.'s own recipe."""

from __future__ import annotations

import numpy as np

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.partition.dealing import Rows, check_devices, device_rows, labels_of


def shard(
    dataset: Dataset,
    devices: int,
    seed: int,
    *,
    num_shards_per_partition: int | None = None,
    shard_size: int | None = None,
    keep_incomplete_shard: bool = False,
) -> tuple[Rows, ...]:
    """Assign shards at random.

    `num_shards_per_partition` alone: shards are as large as possible. `shard_size` alone: all shards are dealt in turn.
    Both: that many shards of that size each. Samples that do not fill a shard are left out; `keep_incomplete_shard`
    keeps them as a smaller shard if the number of shards is not given.
    """
    check_devices(devices)
    targets = labels_of(dataset, "shard")
    for name, value in (("num_shards_per_partition", num_shards_per_partition), ("shard_size", shard_size)):
        if value is not None and value < 1:
            raise DataError(f"{name} = {value}: must be at least 1")
    samples = len(targets)
    random = stream(seed, "partition", "shard")
    if num_shards_per_partition is None and shard_size is None:
        raise DataError("partition 'shard': give num_shards_per_partition (task.shards_per_device), shard_size or both")
    if num_shards_per_partition is not None:
        used = devices * num_shards_per_partition
        size = samples // used if shard_size is None else shard_size
        if not size or used * size > samples:
            raise DataError(
                f"{used} shards of {max(size, 1)} samples want more than the {samples} there are: use fewer devices or "
                "shards, or smaller ones"
            )
        whole = samples // size
    else:
        assert shard_size is not None
        size = shard_size
        used = whole = -(-samples // size) if keep_incomplete_shard else samples // size
        if used < devices:
            raise DataError(f"{used} shards of {size} samples for {devices} devices: use a smaller shard_size")
    by_label = np.argsort(targets, kind="stable")
    chosen = random.permutation(whole)[:used]
    # If the shards do not divide evenly, devices with small numbers get one more.
    dealt = np.array_split(chosen, devices)
    return device_rows([[by_label[s * size : (s + 1) * size] for s in shards] for shards in dealt], samples)
