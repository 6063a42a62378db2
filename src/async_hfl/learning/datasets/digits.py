"""The embedded data set of 1,797 handwritten digits of 8 x 8 pixels, with which a first run needs no download.

A fifth of each class is the test set. The split does not depend on the run's seed, since runs with different seeds must
be judged on the same test set. Pixels are standardised: the mean image of the training set is subtracted, and all
pixels are divided by one standard deviation. With two classes per device, inputs that are all positive let every device
push all hidden units in the same direction; centred inputs need about half of the rounds. One scale for all pixels is
used because border pixels are almost always blank, and a scale of their own would amplify their noise.
"""

from __future__ import annotations

from importlib.resources import files
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.learning.datasets.samples import Dataset, Samples

CLASSES = 10
PIXELS = 64
TEST_SHARE = 0.2
_SPLIT_SEED = 0


def load_digits() -> Dataset:
    """Read the data set: one flat row per image; 1,437 for training, 360 for testing."""
    pixels, labels = _stored()
    targets = labels.astype(np.int32)
    is_test = np.zeros(len(targets), dtype=bool)
    is_test[_stratified_test_rows(targets)] = True
    inputs = _standardised(pixels, pixels[~is_test])
    return Dataset(
        name="digits",
        train=Samples(inputs[~is_test], targets[~is_test]),
        test=Samples(inputs[is_test], targets[is_test]),
        classes=CLASSES,
    )


def _stored() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    resource = files("async_hfl.learning.datasets").joinpath("digits.npz")
    try:
        with resource.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            pixels, labels = archive["pixels"], archive["labels"]
    except (OSError, KeyError, ValueError, BadZipFile) as problem:
        raise DataError(f"the embedded data set {resource} cannot be read: reinstall async-hfl") from problem
    if pixels.shape != (len(labels), PIXELS):
        raise DataError(f"the embedded data set {resource} has shape {pixels.shape}: reinstall async-hfl")
    return pixels, labels


def _stratified_test_rows(targets: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Split off the same share of every class; the classes with the largest remainders make up the total."""
    exact = np.bincount(targets, minlength=CLASSES) * TEST_SHARE
    wanted = np.floor(exact).astype(np.int64)
    missing = int(np.ceil(len(targets) * TEST_SHARE)) - int(wanted.sum())
    wanted[np.argsort(wanted - exact, kind="stable")[:missing]] += 1
    random = stream(_SPLIT_SEED, "digits", "split")
    rows = [random.permutation(np.flatnonzero(targets == label))[: wanted[label]] for label in range(CLASSES)]
    return np.sort(np.concatenate(rows))


def _standardised(pixels: npt.NDArray[np.uint8], train: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Standardise by the training part alone. Sums are of integers, hence exact: the inputs are the same on every
    machine."""
    whole = train.astype(np.int64)
    mean_image = whole.sum(axis=0) / len(whole)
    mean = int(whole.sum()) / whole.size
    deviation = (int((whole * whole).sum()) / whole.size - mean * mean) ** 0.5
    inputs: npt.NDArray[np.float32] = ((pixels - mean_image) / deviation).astype(np.float32)
    return inputs
