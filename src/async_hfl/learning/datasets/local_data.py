"""A device's own samples from its own files: NumPy archives, CSV tables, or a folder of them.

An archive (`.npz`) holds the arrays `inputs` and `targets`, one row per sample. A table (`.csv`) holds one sample per
line, its target last; a first line that is not numeric is a header. Inputs are as the model takes them: in the form in
which the task's own samples are stored (bytes for images, which are then scaled in the same way), or floats that are
prepared already.
"""

from __future__ import annotations

import csv
from math import prod
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.samples import Samples

_KINDS = (".npz", ".csv")
Array = npt.NDArray[Any]


def read_local_samples(path: Path, like: Samples, classes: int) -> Samples:
    """Read samples of the same kind as those of the task. Every error names the file and the expected content."""
    files = _files(path)
    parts = [_checked(file, *_read(file), like, classes) for file in files]
    inputs = np.concatenate([part[0] for part in parts])
    targets = np.concatenate([part[1] for part in parts])
    if not len(inputs):
        raise DataError(f"{path}: no samples; a device needs at least one")
    return Samples(inputs, targets, scaling=like.scaling if inputs.dtype == like.inputs.dtype else None)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path}: there is no such file or folder; --data takes .npz, .csv, or a folder of them")
    found = sorted(file for file in path.iterdir() if file.suffix in _KINDS)
    if not found:
        raise DataError(f"{path}: no .npz and no .csv in this folder")
    return found


def _read(file: Path) -> tuple[Array, Array]:
    if file.suffix == ".npz":
        try:
            with np.load(file, allow_pickle=False) as archive:
                return np.asarray(archive["inputs"]), np.asarray(archive["targets"])
        except KeyError as error:
            raise DataError(f"{file}: has no array {error}; it needs `inputs` and `targets`") from error
        except (OSError, ValueError, BadZipFile) as error:
            raise DataError(f"{file}: cannot be read as a NumPy archive ({error})") from error
    if file.suffix == ".csv":
        return _table(file)
    raise DataError(f"{file}: neither .npz nor .csv")


def _table(file: Path) -> tuple[Array, Array]:
    rows: list[list[float]] = []
    try:
        with file.open(newline="", encoding="utf-8") as text:
            for number, row in enumerate(csv.reader(text), 1):
                if not row:
                    continue
                try:
                    rows.append([float(cell) for cell in row])
                except ValueError as error:
                    if number == 1:
                        continue
                    raise DataError(f"{file}, line {number}: {error}") from error
                if len(rows[-1]) != len(rows[0]):
                    cells = f"{len(rows[-1])} cells, the lines before have {len(rows[0])}"
                    raise DataError(f"{file}, line {number}: {cells}")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from error
    if not rows or len(rows[0]) < 2:
        raise DataError(f"{file}: a line holds the inputs and then the target; this table has neither")
    table = np.array(rows)
    return table[:, :-1], table[:, -1]


def _checked(file: Path, inputs: Array, targets: Array, like: Samples, classes: int) -> tuple[Array, Array]:
    shape = like.read(np.zeros(1, np.int64)).shape[1:]
    if inputs.shape[1:] != shape and inputs.ndim == 2 and inputs.shape[1] == prod(shape):
        inputs = inputs.reshape(len(inputs), *shape)  # a table has at most two axes
    if inputs.shape[1:] != shape:
        raise DataError(f"{file}: a sample's inputs have shape {inputs.shape[1:]}, the task's {shape}")
    if len(inputs) != len(targets):
        raise DataError(f"{file}: {len(inputs)} inputs but {len(targets)} targets")
    stored = like.inputs.dtype
    if inputs.dtype != stored or stored.kind == "f":
        inputs = _as(file, inputs, stored if stored.kind != "u" or inputs.dtype.kind == "u" else np.dtype(np.float32))
    if classes:
        numbers = targets.astype(np.int64)
        if targets.ndim != 1 or (numbers != targets).any() or (numbers < 0).any() or (numbers >= classes).any():
            raise DataError(f"{file}: targets must be class numbers from 0 to {classes - 1}, one a sample")
        return inputs, numbers.astype(np.int32)
    wanted = like.targets.shape[1:]
    if targets.ndim == 1 and wanted == (1,):
        targets = targets[:, None]
    if targets.shape[1:] != wanted:
        raise DataError(f"{file}: a sample's targets have shape {targets.shape[1:]}, the task's {wanted}")
    return inputs, _as(file, targets, np.dtype(np.float32))


def _as(file: Path, values: Array, kind: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(kind)
    if kind.kind == "f" and not np.isfinite(made).all():
        raise DataError(f"{file}: holds NaN or infinite values")
    if kind.kind in "iu" and (made != values).any():
        raise DataError(f"{file}: holds values that are no whole numbers of the task's kind ({kind})")
    return made
