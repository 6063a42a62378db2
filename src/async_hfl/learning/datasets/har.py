"""UCI HAR: 10,299 windows of smartphone motion with 561 features each, of 30 people and six activities (Anguita et al.,
2013).

The published split puts each person into either the training or the test set. Federated learning needs both for every
person, so all rows are joined and a tenth of each person's rows, drawn once and for all, is the test set. Each feature
is standardised by the training rows of all people.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.learning.datasets.files.catalogue import HAR
from async_hfl.learning.datasets.files.parsed_cache import Arrays, load_arrays
from async_hfl.learning.datasets.files.sources import Sources
from async_hfl.learning.datasets.samples import Dataset, Samples

FEATURES = 561
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")
TEST_SHARE = 0.1
_VERSION = "motion1"
_SPLIT_SEED = 0


def load_har(folder: Path | None = None) -> Dataset:
    """Read the data set, one owner per person. `folder` names files of your own in the same format, which are not
    checked."""
    arrays = load_arrays(HAR, _parse, version=_VERSION, folder=folder)
    inputs, targets = arrays["inputs"], arrays["activities"].astype(np.int32)
    people, owner = np.unique(arrays["subjects"], return_inverse=True)
    is_test = _test_rows(owner)
    return Dataset(
        HAR.name,
        Samples(inputs[~is_test], targets[~is_test]),
        Samples(inputs[is_test], targets[is_test]),
        len(ACTIVITIES),
        ACTIVITIES,
        owner=owner[~is_test].astype(np.int32),
        test_owner=owner[is_test].astype(np.int32),
        owner_names=tuple(f"person {number}" for number in people),
    )


def _test_rows(owner: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Draw the test rows, independently of the run's seed: runs must be judged on the same test set."""
    is_test = np.zeros(len(owner), dtype=bool)
    for person in range(int(owner.max()) + 1):
        rows = np.flatnonzero(owner == person)
        drawn = stream(_SPLIT_SEED, "har", "split", person).permutation(rows)
        is_test[drawn[: round(TEST_SHARE * len(rows))]] = True
    return is_test


def _parse(sources: Sources) -> Arrays:
    names = [f"{kind}_{part}.txt" for part in ("train", "test") for kind in ("X", "y", "subject")]
    texts = dict(zip(names, sources.contents(names), strict=True))
    parts = []
    for part in ("train", "test"):
        features = _numbers(texts, f"X_{part}.txt", sources, FEATURES)
        labels = _whole_numbers(texts, f"y_{part}.txt", sources, most=len(ACTIVITIES))
        subjects = _whole_numbers(texts, f"subject_{part}.txt", sources, most=255)
        if not len(features) == len(labels) == len(subjects):
            raise DataError(
                f"{sources.folder}: {part} has {len(features)} rows, {len(labels)} labels and {len(subjects)} subjects"
            )
        parts.append((features, labels, subjects))
    features, labels, subjects = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    subjects = subjects.astype(np.uint8)
    _, owner = np.unique(subjects, return_inverse=True)
    inputs = _standardised(features, features[~_test_rows(owner)])
    return {"inputs": inputs, "activities": (labels - 1).astype(np.uint8), "subjects": subjects}


def _numbers(texts: dict[str, bytes], name: str, sources: Sources, columns: int) -> npt.NDArray[np.float64]:
    if not texts[name].strip():
        raise DataError(f"{sources.paths[name]}: is empty")
    try:
        table: npt.NDArray[np.float64] = np.loadtxt(io.BytesIO(texts[name]), ndmin=2)
    except ValueError as problem:
        raise DataError(f"{sources.paths[name]}: {problem}; it is cut short or damaged") from problem
    if table.shape[1] != columns or not np.isfinite(table).all():
        raise DataError(f"{sources.paths[name]}: not a table of {columns} numbers a row")
    return table


def _whole_numbers(texts: dict[str, bytes], name: str, sources: Sources, most: int) -> npt.NDArray[np.int64]:
    column = _numbers(texts, name, sources, 1)[:, 0]
    wrong = column[(column < 1) | (column > most) | (column % 1 != 0)]
    if len(wrong):
        raise DataError(f"{sources.paths[name]}: {wrong[0]:g}, but there are only 1 to {most}")
    return column.astype(np.int64)


def _standardised(table: npt.NDArray[np.float64], train: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Standardise. Sums are taken row by row, in one order on every machine, so the inputs are the same to the bit."""
    mean = train.sum(axis=0) / len(train)
    deviation = np.sqrt(((train - mean) ** 2).sum(axis=0) / len(train))
    inputs: npt.NDArray[np.float32] = ((table - mean) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
    return inputs
