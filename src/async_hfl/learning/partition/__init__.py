"""Partitions: the training set divided over the devices, usually non-iid.

There is one kind of partition per file; `registry` lists them by name, with the settings that each one reads. Every
partition is a function `(dataset, devices, seed, *, ...) -> rows of each device`: ascending row numbers, none of them
empty, the same for the same seed. Names and arguments are those of Flower Datasets.
"""

from async_hfl.learning.partition.by_class import deal_by_class, pathological
from async_hfl.learning.partition.by_size import by_size, iid
from async_hfl.learning.partition.dealing import Rows
from async_hfl.learning.partition.dirichlet import dirichlet
from async_hfl.learning.partition.natural import natural_id
from async_hfl.learning.partition.registry import PARTITIONERS, Partitioner, partition
from async_hfl.learning.partition.shards import shard

__all__ = [
    "PARTITIONERS",
    "Partitioner",
    "Rows",
    "by_size",
    "deal_by_class",
    "dirichlet",
    "iid",
    "natural_id",
    "partition",
    "pathological",
    "shard",
]
