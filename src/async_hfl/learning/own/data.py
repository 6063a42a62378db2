"""The data of a user's task, checked value by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError, SettingsError
from async_hfl.learning.datasets.samples import Dataset, Samples
from async_hfl.learning.own.task import UserTask
from async_hfl.learning.own.task_errors import TaskErrors
from async_hfl.learning.partition.dealing import Rows
from async_hfl.learning.partition.registry import PARTITIONERS, Partitioner, partition

_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class OwnData:
    train: Samples
    test: Samples
    owned: tuple[Rows, ...]
    classes: int
    """One more than the largest class number; 0 if targets are not class numbers."""


def checked_data(task: UserTask, devices: int, seed: int, errors: TaskErrors) -> OwnData:
    if (task.shards is None) == (task.train is None):
        raise errors.invalid("shards", "give either shards, or train with a partition")
    test = _samples(task.test, "test", errors)
    if task.shards is not None:
        train, owned = _from_shards(task.shards, devices, errors)
        classes = _classes(train, test, errors)
    else:
        train = _samples(task.train, "train", errors)
        classes = _classes(train, test, errors)
        owned = _partitioned(task, Dataset(errors.task, train, test, classes), devices, seed, errors)
    _check_alike(test, "test", train, "those to train on", errors)
    return OwnData(train, test, owned, classes)


def _partitioned(task: UserTask, dataset: Dataset, devices: int, seed: int, errors: TaskErrors) -> tuple[Rows, ...]:
    if task.partition in PARTITIONERS:
        _check_arguments(task, PARTITIONERS[task.partition], errors)
    try:
        return partition(task.partition, dataset, devices, seed, task.arguments)
    except (DataError, SettingsError) as error:
        raise errors.invalid("partition", str(error).removeprefix("task.partition = ")) from error
    except (TypeError, ValueError) as error:  # an argument that is no number; those of built-in tasks are settings
        raise errors.invalid("arguments", f"{task.partition} cannot use {dict(task.arguments)}: {error}") from error


def _check_arguments(task: UserTask, chosen: Partitioner, errors: TaskErrors) -> None:
    for name in task.arguments:
        if name not in chosen.names:
            known = ", ".join(f"{s} (or {a})" if a != s else s for s, a in chosen.arguments.items())
            raise errors.invalid("arguments", f"{task.partition} has no {name!r}; it has {known}")
    for setting, argument in chosen.arguments.items():
        if setting != argument and setting in task.arguments and argument in task.arguments:
            raise errors.invalid("arguments", f"{setting} and {argument} are the same; give one of them")


def _from_shards(shards: Sequence[Any], devices: int, errors: TaskErrors) -> tuple[Samples, tuple[Rows, ...]]:
    if not isinstance(shards, Sequence) or isinstance(shards, str):
        raise errors.invalid("shards", f"is a {type(shards).__name__}; give a list of (inputs, targets)")
    if len(shards) != devices:
        raise errors.invalid(
            "shards", f"{len(shards)} shards for {devices} devices; run it with --set task.devices={len(shards)}"
        )
    parts = [_samples(pair, f"shards[{device}]", errors) for device, pair in enumerate(shards)]
    for device, part in enumerate(parts):
        _check_alike(part, f"shards[{device}]", parts[0], "those of shards[0]", errors)
    joined = Samples(np.concatenate([part.inputs for part in parts]), np.concatenate([part.targets for part in parts]))
    stops = np.cumsum([len(part) for part in parts])
    return joined, tuple(np.split(np.arange(len(joined), dtype=np.int64), stops[:-1]))


def _check_alike(samples: Samples, where: str, first: Samples, others: str, errors: TaskErrors) -> None:
    for name in ("inputs", "targets"):
        one, other = getattr(samples, name), getattr(first, name)
        if one.shape[1:] != other.shape[1:] or one.dtype != other.dtype:
            raise errors.invalid(
                where,
                f"its {name} are {one.dtype} of shape {one.shape[1:]} a sample, {others} are {other.dtype} of shape "
                f"{other.shape[1:]}",
            )


def _samples(pair: object, where: str, errors: TaskErrors) -> Samples:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise errors.invalid(where, f"is {_kind(pair)}; give a pair (inputs, targets)")
    inputs, targets = _array(pair[0], f"{where}[0]", errors), _array(pair[1], f"{where}[1]", errors)
    if targets.dtype == np.uint8:
        targets = targets.astype(np.int32)
    if len(inputs) != len(targets):
        raise errors.invalid(where, f"{len(inputs)} inputs but {len(targets)} targets")
    if not len(inputs):
        raise errors.invalid(where, "is empty; every device needs a sample, and so does the test set")
    return Samples(inputs, targets)


def _array(given: object, where: str, errors: TaskErrors) -> npt.NDArray[Any]:
    """Return the values as float32, int32 or bytes."""
    with errors.during(where):
        array = np.asarray(given)
    if array.ndim == 0:
        raise errors.invalid(where, f"is {_kind(given)}; give an array with one row a sample")
    if array.dtype.kind not in "fiub":
        why = " (rows of unequal length?)" if array.dtype.kind == "O" else ""
        raise errors.invalid(where, f"holds {array.dtype} values{why}; give an array of real numbers")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # values that do not fit become infinite and are rejected below
            floats = array.astype(np.float32)
        if not np.isfinite(floats).all():
            row = int(np.flatnonzero(~np.isfinite(floats.reshape(len(floats), -1)).all(axis=1))[0])
            raise errors.invalid(where, f"holds NaN or infinite values (as float32), first in row {row}")
        return floats
    if array.dtype == np.uint8:
        return array
    if len(array) and array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
        raise errors.invalid(where, "holds whole numbers beyond 32 bits")
    return array.astype(np.int32)


def _classes(train: Samples, test: Samples, errors: TaskErrors) -> int:
    if train.targets.dtype != np.int32 or train.targets.ndim != 1:
        return 0
    least = int(train.targets.min())
    if least < 0:
        raise errors.invalid("targets", f"class {least}: classes are numbered from 0")
    most = int(train.targets.max())
    return 1 + (max(most, int(test.targets.max())) if test.targets.ndim == 1 else most)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
