"""CIFAR-10: 50,000 and 10,000 colour images of 32 x 32 pixels in ten classes (Krizhevsky, 2009).

The binary version has records of a label byte and 1,024 red, 1,024 green and 1,024 blue bytes. Images are stored as
(row, column, colour) bytes; `Scaling` standardises each colour by the training set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.files.catalogue import CIFAR10
from async_hfl.learning.datasets.files.parsed_cache import Arrays, load_arrays
from async_hfl.learning.datasets.files.sources import Sources
from async_hfl.learning.datasets.samples import Dataset, Samples, Scaling

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)
_VERSION = "records1"
_SIDE = 32
_RECORD = 1 + 3 * _SIDE * _SIDE
_TEST_FILE = "test_batch.bin"


def load_cifar10(folder: Path | None = None) -> Dataset:
    """Read the data set. `folder` names files of your own in the same format, which are not checked against the
    published ones."""
    arrays = load_arrays(CIFAR10, _parse, version=_VERSION, folder=folder)
    scaling = Scaling(
        np.array([255 * mean for mean in MEAN], np.float32),
        np.array([1 / (255 * deviation) for deviation in DEVIATION], np.float32),
    )
    train, test = (
        Samples(arrays[f"{part}_images"], arrays[f"{part}_labels"].astype(np.int32), scaling=scaling)
        for part in ("train", "test")
    )
    return Dataset(CIFAR10.name, train, test, len(CLASS_NAMES), CLASS_NAMES)


def _parse(sources: Sources) -> Arrays:
    names = [file.name for file in CIFAR10.files]
    batches = dict(zip(names, sources.contents(names), strict=True))
    records = {name: _records(content, str(sources.paths[name])) for name, content in batches.items()}
    train = np.concatenate([batch for name, batch in records.items() if name != _TEST_FILE])
    arrays: Arrays = {}
    for part, rows in (("train", train), ("test", records[_TEST_FILE])):
        planes = rows[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
        arrays[f"{part}_images"] = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        arrays[f"{part}_labels"] = np.ascontiguousarray(rows[:, 0])
    return arrays


def _records(content: bytes, where: str) -> npt.NDArray[np.uint8]:
    if not content or len(content) % _RECORD:
        raise DataError(
            f"{where}: {len(content):,} bytes are not whole records of {_RECORD}; it is cut short or damaged"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    highest = int(rows[:, 0].max())
    if highest >= len(CLASS_NAMES):
        raise DataError(f"{where}: label {highest}, but there are only 0 to {len(CLASS_NAMES) - 1}")
    return rows
