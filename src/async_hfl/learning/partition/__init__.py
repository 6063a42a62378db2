"""Who owns which samples: the training set dealt over the devices, unevenly on purpose.

One kind of partition a file; `registry` names them all, with the settings each one reads. Every partition is a function
`(dataset, devices, seed, *, ...) -> rows of each device`: ascending row numbers, none of them empty, the same for the
same seed. Names and arguments are those of Flower Datasets, so that whoever comes from there need not look them up.
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
