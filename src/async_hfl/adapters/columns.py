"""`columns(dataset, ...)`: a table of another library as the pair of arrays that a task takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from async_hfl.adapters.arrays import Array
from async_hfl.core.errors import DataError


def columns(dataset: Any, inputs: str | Sequence[str] = "image", targets: str = "label") -> tuple[Array, Array]:
    """Return (inputs, targets) of a Hugging Face `Dataset` or a pandas data frame, for `train=` and `test=` of a task.

    Several columns of numbers as `inputs` become the columns of one matrix.
    """
    names = [inputs] if isinstance(inputs, str) else list(inputs)
    table = _table(dataset, [*names, targets])
    parts = [_stacked(name, table[name]) for name in names]
    if not isinstance(inputs, str):
        parts = [np.stack(parts, axis=1)]
    return parts[0], _stacked(targets, table[targets])


def _table(dataset: Any, wanted: Sequence[str]) -> dict[str, Any]:
    if hasattr(dataset, "with_format") and hasattr(dataset, "column_names"):
        known = dataset.column_names
        if isinstance(known, dict):
            raise DataError(f"this is a DatasetDict with the splits {', '.join(known)}; give one of them")
    elif hasattr(dataset, "columns") and hasattr(dataset, "to_numpy"):
        known = [str(name) for name in dataset.columns]
    else:
        raise DataError(f"a {type(dataset).__name__} has no columns; give a Dataset, a data frame, or a pair of arrays")
    for name in wanted:
        if name not in known:
            raise DataError(f"there is no column {name!r}; there is {', '.join(known)}")
    if hasattr(dataset, "with_format"):
        found: dict[str, Any] = dataset.with_format("numpy", columns=list(wanted))[:]
        return found
    return {name: dataset[name].to_numpy() for name in wanted}


def _stacked(name: str, values: Any) -> Array:
    """Return one array; rows of unequal shape cannot be stacked."""
    array = np.asarray(values)
    if array.dtype == object:
        try:
            array = np.stack([np.asarray(value) for value in values])
        except ValueError as error:
            raise DataError(f"column {name!r} has rows of unequal shape; crop or pad them") from error
    if array.dtype.kind not in "fiub":
        raise DataError(f"column {name!r} holds {array.dtype} values; a task takes numbers")
    return array
