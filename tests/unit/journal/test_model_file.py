"""Model files in the safetensors format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from async_hfl.core.errors import DataError
from async_hfl.core.weights import Layout
from async_hfl.journal.model_file import load_model, save_model

LAYOUT = Layout(("w", "b"), ((2, 3), (3,)))
WEIGHTS = np.arange(9, dtype=np.float32)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, LAYOUT, WEIGHTS)
    found = load_model(path, LAYOUT)
    assert found.tolist() == WEIGHTS.tolist()
    assert found.dtype == np.float32
    assert not found.flags.writeable
    arrays = load_file(path)
    assert arrays["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["b"].tolist() == [6, 7, 8]
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_other_number_types_are_converted_to_float32(tmp_path: Path, dtype: type) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": np.arange(6).reshape(2, 3).astype(dtype), "b": np.arange(6, 9).astype(dtype)}, path)
    found = load_model(path, LAYOUT)
    assert found.dtype == np.float32
    assert found.tolist() == WEIGHTS.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e300])
def test_numbers_outside_float32_are_refused(tmp_path: Path, bad: float) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": np.full((2, 3), bad), "b": np.zeros(3)}, path)
    with pytest.raises(DataError, match=r"model\.safetensors: array 'w' holds NaN or infinite values"):
        load_model(path, LAYOUT)


def test_a_model_of_another_task_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, Layout(("w", "b"), ((3, 2), (3,))), WEIGHTS)
    with pytest.raises(DataError, match=r"array 'w' has shape \(3, 2\), this task's model wants \(2, 3\)"):
        load_model(path, LAYOUT)


def test_an_error_while_writing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        save_model(tmp_path / "none" / "model.safetensors", LAYOUT, WEIGHTS)
