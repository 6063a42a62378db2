"""MNIST and Fashion-MNIST: 60,000 and 10,000 images of 28 x 28 grey pixels in ten classes.

Both come as IDX files: a big-endian header (two zero bytes, the type of the values, the number of axes, the length of
each axis), then the values. Pixels are stored as bytes; `Scaling` standardises them by the mean and deviation of the
training set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.files.catalogue import FASHION_MNIST, MNIST
from async_hfl.learning.datasets.files.parsed_cache import Arrays, load_arrays
from async_hfl.learning.datasets.files.published import PublishedSet
from async_hfl.learning.datasets.files.sources import Sources
from async_hfl.learning.datasets.samples import Dataset, Samples, Scaling

CLASSES = 10
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_VERSION = "idx1"
_UNSIGNED_BYTE = 8
_PARTS = {"train": "train", "test": "t10k"}


def load_mnist(folder: Path | None = None) -> Dataset:
    """Read the handwritten digits. `folder` names files of your own in the same format, which are not checked."""
    return _load(MNIST, folder, tuple("0123456789"), mean=0.1307, deviation=0.3081)


def load_fashion_mnist(folder: Path | None = None) -> Dataset:
    """Read the pieces of clothing, in the format of MNIST."""
    return _load(FASHION_MNIST, folder, CLOTHES, mean=0.2860, deviation=0.3530)


def _load(
    published: PublishedSet, folder: Path | None, class_names: tuple[str, ...], *, mean: float, deviation: float
) -> Dataset:
    arrays = load_arrays(published, _parse, version=_VERSION, folder=folder)
    scaling = Scaling(np.array([255 * mean], np.float32), np.array([1 / (255 * deviation)], np.float32))
    train, test = (
        Samples(arrays[f"{part}_images"], arrays[f"{part}_labels"].astype(np.int32), scaling=scaling) for part in _PARTS
    )
    return Dataset(published.name, train, test, CLASSES, class_names)


def _parse(sources: Sources) -> Arrays:
    arrays: Arrays = {}
    for part, prefix in _PARTS.items():
        image_file, label_file = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
        image_bytes, label_bytes = sources.contents([image_file, label_file])
        images = parse_idx(image_bytes, 3, str(sources.paths[image_file]))
        labels = parse_idx(label_bytes, 1, str(sources.paths[label_file]))
        if len(images) != len(labels):
            raise DataError(f"{sources.folder}: {len(images)} images but {len(labels)} labels in {prefix}-*")
        if len(labels) == 0:
            raise DataError(f"{sources.paths[image_file]}: holds no images")
        if labels.max() >= CLASSES:
            raise DataError(f"{sources.paths[label_file]}: label {labels.max()}, but there are only 0 to {CLASSES - 1}")
        arrays[f"{part}_images"] = images[..., None]
        arrays[f"{part}_labels"] = labels
    return arrays


def parse_idx(content: bytes, axes: int, where: str) -> npt.NDArray[np.uint8]:
    """Return the array in an IDX file of bytes."""
    header = 4 + 4 * axes
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTE, axes]):
        raise DataError(f"{where}: not an IDX file of {axes} axes of bytes (it begins with {content[:4].hex()})")
    if len(content) < header:
        raise DataError(f"{where}: {len(content)} bytes are less than its header; it is cut short")
    shape: tuple[Any, ...] = tuple(int(length) for length in np.frombuffer(content[4:header], ">u4"))
    if len(content) != header + int(np.prod(shape, dtype=np.int64)):
        raise DataError(f"{where}: {len(content):,} bytes do not fit its header {shape}; it is cut short or damaged")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
