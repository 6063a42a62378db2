"""The data of a task of the user's own, checked value by value: what passes is safe to train on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError, SettingsError
from async_hfl.learning.datasets.samples import Dataset, Samples
from async_hfl.learning.own.task_errors import Blame
from async_hfl.learning.partition import PARTITIONERS, Rows, partition

_INT32 = np.iinfo(np.int32)


class HasData(Protocol):
    """The part of a task that is its data."""

    @property
    def shards(self) -> Sequence[tuple[Any, Any]] | None: ...
    @property
    def train(self) -> tuple[Any, Any] | None: ...
    @property
    def partition(self) -> str: ...
    @property
    def arguments(self) -> Mapping[str, Any]: ...
    @property
    def test(self) -> tuple[Any, Any]: ...


@dataclass(frozen=True, slots=True, eq=False)
class OwnData:
    train: Samples
    test: Samples
    owned: tuple[Rows, ...]
    classes: int
    """One more than the largest class number; 0 where targets are not class numbers."""


def checked_data(task: HasData, devices: int, seed: int, blame: Blame) -> OwnData:
    if (task.shards is None) == (task.train is None):
        raise blame.wrong("shards", "give either shards, or train with a partition")
    test = _samples(task.test, "test", blame)
    if task.shards is not None:
        train, owned = _from_shards(task.shards, devices, blame)
        classes = _classes(train, test, blame)
    else:
        train = _samples(task.train, "train", blame)
        classes = _classes(train, test, blame)
        owned = _dealt(task, Dataset(blame.task, train, test, classes), devices, seed, blame)
    for name in ("inputs", "targets"):
        here, there = getattr(train, name), getattr(test, name)
        if here.shape[1:] != there.shape[1:] or here.dtype != there.dtype:
            raise blame.wrong(
                "test",
                f"its {name} are {there.dtype} of shape {there.shape[1:]} a sample, those to train on are {here.dtype} "
                f"of shape {here.shape[1:]}",
            )
    return OwnData(train, test, owned, classes)


def _dealt(task: HasData, dataset: Dataset, devices: int, seed: int, blame: Blame) -> tuple[Rows, ...]:
    known = PARTITIONERS[task.partition].arguments if task.partition in PARTITIONERS else {}
    unknown = [name for name in task.arguments if known and name not in known]
    if unknown:
        raise blame.wrong("arguments", f"{task.partition} has no {unknown[0]!r}; it has {', '.join(known)}")
    try:
        return partition(task.partition, dataset, devices, seed, task.arguments)
    except (DataError, SettingsError) as error:
        raise blame.wrong("partition", str(error).removeprefix("task.partition = ")) from error


def _from_shards(shards: Sequence[Any], devices: int, blame: Blame) -> tuple[Samples, tuple[Rows, ...]]:
    if not isinstance(shards, Sequence) or isinstance(shards, str):
        raise blame.wrong("shards", f"is a {type(shards).__name__}; give a list of (inputs, targets)")
    if len(shards) != devices:
        raise blame.wrong(
            "shards", f"{len(shards)} shards for {devices} devices; run it with --set task.devices={len(shards)}"
        )
    parts = [_samples(pair, f"shards[{device}]", blame) for device, pair in enumerate(shards)]
    first = parts[0]
    for device, part in enumerate(parts):
        for name in ("inputs", "targets"):
            here, there = getattr(first, name), getattr(part, name)
            if here.shape[1:] != there.shape[1:] or here.dtype != there.dtype:
                raise blame.wrong(
                    f"shards[{device}]",
                    f"its {name} are {there.dtype} of shape {there.shape[1:]} a sample, those of shards[0] are "
                    f"{here.dtype} of shape {here.shape[1:]}",
                )
    stops = np.cumsum([len(part) for part in parts])
    owned = tuple(
        np.arange(stop - len(part), stop, dtype=np.int64) for part, stop in zip(parts, stops.tolist(), strict=True)
    )
    together = Samples(
        np.concatenate([part.inputs for part in parts]), np.concatenate([part.targets for part in parts])
    )
    return together, owned


def _samples(pair: object, where: str, blame: Blame) -> Samples:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise blame.wrong(where, f"is {_kind(pair)}; give a pair (inputs, targets)")
    inputs, targets = _array(pair[0], f"{where}[0]", blame), _array(pair[1], f"{where}[1]", blame)
    if targets.dtype == np.uint8:
        targets = targets.astype(np.int32)
    if len(inputs) != len(targets):
        raise blame.wrong(where, f"{len(inputs)} inputs but {len(targets)} targets")
    if not len(inputs):
        raise blame.wrong(where, "is empty; every device needs a sample, and so does the test set")
    return Samples(inputs, targets)


def _array(given: object, where: str, blame: Blame) -> npt.NDArray[Any]:
    """float32, int32 or bytes."""
    with blame.calling(where):
        array = np.asarray(given)
    if array.ndim == 0:
        raise blame.wrong(where, f"is {_kind(given)}; give an array with one row a sample")
    if array.dtype.kind not in "fiub":
        raise blame.wrong(where, f"holds {array.dtype} values (rows of unequal length?); give an array of numbers")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused just below
            floats = array.astype(np.float32)
        if not np.isfinite(floats).all():
            row = int(np.flatnonzero(~np.isfinite(floats.reshape(len(floats), -1)).all(axis=1))[0])
            raise blame.wrong(where, f"holds NaN or infinite values (as float32), first in row {row}")
        return floats
    if array.dtype == np.uint8:
        return array
    if len(array) and array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
        raise blame.wrong(where, "holds whole numbers beyond 32 bits")
    return array.astype(np.int32)


def _classes(train: Samples, test: Samples, blame: Blame) -> int:
    if train.targets.dtype != np.int32 or train.targets.ndim != 1:
        return 0
    least = int(train.targets.min())
    if least < 0:
        raise blame.wrong("targets", f"class {least}: classes are numbered from 0")
    most = int(train.targets.max())
    return 1 + (max(most, int(test.targets.max())) if test.targets.ndim == 1 else most)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
