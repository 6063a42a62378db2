"""Tables of other libraries as pairs of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from async_hfl.adapters import columns
from async_hfl.core.errors import DataError


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "label": [0, 1], "name": ["x", "y"]})


def test_a_data_frame() -> None:
    x, y = columns(frame(), inputs=["a", "b"])
    np.testing.assert_array_equal(x, [[1.0, 3.0], [2.0, 4.0]])
    np.testing.assert_array_equal(y, [0, 1])
    np.testing.assert_array_equal(columns(frame(), "b")[0], [3.0, 4.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "there is no column 'image'; there is a, b, label, name"),
        ({"inputs": "name"}, "column 'name' holds"),
    ],
)
def test_columns_that_do_not_suit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        columns(frame(), **options)
    with pytest.raises(DataError, match="a list has no columns"):
        columns([1, 2])


def test_a_dataset_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    images = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    table = datasets.Dataset.from_dict({"image": list(images), "label": [1, 0]}, features=features)
    x, y = columns(table)
    np.testing.assert_array_equal(x, images)
    np.testing.assert_array_equal(y, [1, 0])
    with pytest.raises(DataError, match="splits train"):
        columns(datasets.DatasetDict({"train": table}))
