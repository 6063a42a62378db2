"""The partitions by name, with a description and the settings that each one reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from async_hfl.core.errors import SettingsError
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.partition.by_class import by_class, pathological
from async_hfl.learning.partition.by_size import by_size, iid
from async_hfl.learning.partition.dealing import Rows
from async_hfl.learning.partition.dirichlet import dirichlet
from async_hfl.learning.partition.natural import natural_id
from async_hfl.learning.partition.shards import shard


@dataclass(frozen=True, slots=True)
class Partitioner:
    deal: Callable[..., tuple[Rows, ...]]
    description: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Setting (task.NAME) -> argument, which has Flower's name."""

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that an argument may be called: as its setting, or as in Flower Datasets."""
        return tuple(dict.fromkeys([*self.arguments, *self.arguments.values()]))


_SAMPLES = {"samples_per_device": "samples_per_device"}

PARTITIONERS: dict[str, Partitioner] = {
    "iid": Partitioner(iid, "shuffled and dealt evenly", _SAMPLES),
    "by_class": Partitioner(
        by_class,
        "a few classes a device, dealt in turn: every class has nearly equally many owners",
        {"classes_per_device": "num_classes_per_partition", **_SAMPLES},
    ),
    "pathological": Partitioner(
        pathological,
        "a few classes a device, each device drawing its own",
        {
            "classes_per_device": "num_classes_per_partition",
            "class_assignment_mode": "class_assignment_mode",
            **_SAMPLES,
        },
    ),
    "dirichlet": Partitioner(
        dirichlet,
        "class proportions drawn from a Dirichlet distribution",
        {
            "dirichlet_alpha": "alpha",
            "min_samples_per_device": "min_partition_size",
            "self_balancing": "self_balancing",
            **_SAMPLES,
        },
    ),
    "shard": Partitioner(
        shard,
        "sorted by class, cut into shards, a few of them a device",
        {
            "shards_per_device": "num_shards_per_partition",
            "shard_size": "shard_size",
            "keep_incomplete_shard": "keep_incomplete_shard",
        },
    ),
    "natural_id": Partitioner(natural_id, "the data's own owners: a person, a role, a station", _SAMPLES),
    "by_size": Partitioner(by_size, "sizes that grow with the device's number", {"device_sizes": "partition_sizes"}),
}


def partition(name: str, dataset: Dataset, devices: int, seed: int, settings: Mapping[str, Any]) -> tuple[Rows, ...]:
    """Return the rows of the training set of each device.

    `settings` are those of the task, or arguments by Flower's names; a partition reads those it knows. A value that is
    None counts as not given, so that the partition's own default holds.
    """
    if name not in PARTITIONERS:
        raise SettingsError(f"task.partition = {name!r}: there is {', '.join(PARTITIONERS)}")
    chosen = PARTITIONERS[name]
    given = {
        argument: settings[called]
        for setting, argument in chosen.arguments.items()
        for called in dict.fromkeys((setting, argument))
        if settings.get(called) is not None
    }
    return chosen.deal(dataset, devices, seed, **given)
