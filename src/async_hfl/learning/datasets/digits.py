"""The embedded data set: 1,797 handwritten digits of 8 x 8 pixels, so that a first run needs no download.

A fifth of each class is the test set. The split is fixed, whatever the run's seed: runs with different seeds must be
judged on the same test set.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.learning.samples import Dataset, Samples

CLASSES = 10
PIXELS = 64
TEST_SHARE = 0.2
_BRIGHTEST = 16
_SPLIT_SEED = 0


def load_digits() -> Dataset:
    """Pixels scaled to [0, 1], one flat row an image; 1,437 to train on, 360 to test on."""
    pixels, labels = _stored()
    inputs = pixels.astype(np.float32) / np.float32(_BRIGHTEST)
    targets = labels.astype(np.int32)
    test = _stratified_test_rows(targets)
    is_test = np.zeros(len(targets), dtype=bool)
    is_test[test] = True
    return Dataset(
        train=Samples(inputs[~is_test], targets[~is_test]),
        test=Samples(inputs[is_test], targets[is_test]),
        classes=CLASSES,
    )


def _stored() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    resource = files("async_hfl.learning.datasets").joinpath("digits.npz")
    try:
        with resource.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            pixels, labels = archive["pixels"], archive["labels"]
    except (OSError, KeyError, ValueError) as problem:
        raise DataError(
            f"the embedded data set {resource} cannot be read ({problem}): reinstall async-hfl"
        ) from problem
    if pixels.shape != (len(labels), PIXELS):
        raise DataError(f"the embedded data set {resource} has shape {pixels.shape}: reinstall async-hfl")
    return pixels, labels


def _stratified_test_rows(targets: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The same share of every class; the classes with the largest remainder make the total come out right."""
    counts = np.bincount(targets, minlength=CLASSES)
    exact = counts * TEST_SHARE
    wanted = np.floor(exact).astype(np.int64)
    missing = int(np.ceil(len(targets) * TEST_SHARE)) - int(wanted.sum())
    wanted[np.argsort(wanted - exact, kind="stable")[:missing]] += 1
    random = stream(_SPLIT_SEED, "digits", "split")
    rows = [random.permutation(np.flatnonzero(targets == label))[: wanted[label]] for label in range(CLASSES)]
    return np.sort(np.concatenate(rows))
