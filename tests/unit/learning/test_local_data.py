"""A device's own files: accepted formats, and the errors for anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.local_data import read_local_samples
from async_hfl.learning.datasets.samples import Samples, Scaling

FLOATS = Samples(np.zeros((4, 6), np.float32), np.zeros(4, np.int32))
IMAGES = Samples(
    np.zeros((4, 2, 3), np.uint8),
    np.zeros(4, np.int32),
    scaling=Scaling(np.array([1.0], np.float32), np.array([0.5], np.float32)),
)
SERIES = Samples(np.zeros((4, 6), np.float32), np.zeros((4, 1), np.float32))


def archive(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_an_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "own.npz", inputs=np.arange(12.0).reshape(2, 6), targets=np.array([1, 2]))
    found = read_local_samples(path, FLOATS, 3)
    assert found.inputs.dtype == np.float32
    assert found.inputs[1].tolist() == [6, 7, 8, 9, 10, 11]
    assert found.targets.tolist() == [1, 2]
    assert found.targets.dtype == np.int32


def test_a_table_with_or_without_a_heading(tmp_path: Path) -> None:
    bare = tmp_path / "bare.csv"
    bare.write_text("1,2,3,4,5,6,0\n2,3,4,5,6,7,1\n")
    headed = tmp_path / "headed.csv"
    headed.write_text("a,b,c,d,e,f,target\n1,2,3,4,5,6,0\n\n2,3,4,5,6,7,1\n")
    for path in (bare, headed):
        found = read_local_samples(path, FLOATS, 2)
        assert found.inputs.tolist() == [[1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7]]
        assert found.targets.tolist() == [0, 1]


def test_a_folder_in_the_order_of_names(tmp_path: Path) -> None:
    archive(tmp_path / "b.npz", inputs=np.full((1, 6), 2.0), targets=np.array([1]))
    (tmp_path / "a.csv").write_text("1,1,1,1,1,1,0\n")
    (tmp_path / "notes.txt").write_text("not data")
    found = read_local_samples(tmp_path, FLOATS, 2)
    assert found.inputs[:, 0].tolist() == [1.0, 2.0]


def test_bytes_stay_bytes_and_are_scaled_as_the_tasks_own(tmp_path: Path) -> None:
    path = archive(tmp_path / "i.npz", inputs=np.full((2, 6), 5, np.uint8), targets=np.array([0, 1]))
    found = read_local_samples(path, IMAGES, 2)
    assert found.inputs.dtype == np.uint8
    assert found.inputs.shape == (2, 2, 3)
    assert found.read([0]).tolist() == [[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]]
    prepared = archive(tmp_path / "f.npz", inputs=np.full((2, 2, 3), 0.5), targets=np.array([0, 1]))
    assert read_local_samples(prepared, IMAGES, 2).scaling is None


def test_a_regression_takes_one_value_or_several(tmp_path: Path) -> None:
    path = archive(tmp_path / "r.npz", inputs=np.zeros((2, 6)), targets=np.array([0.5, -1.5]))
    assert read_local_samples(path, SERIES, 0).targets.tolist() == [[0.5], [-1.5]]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"inputs": np.zeros((2, 5)), "targets": np.zeros(2)}, r"shape \(5,\), the task's \(6,\)"),
        ({"inputs": np.zeros((2, 6)), "targets": np.zeros(3)}, "2 inputs but 3 targets"),
        ({"inputs": np.zeros((2, 6)), "targets": np.array([0, 3])}, "class numbers from 0 to 2"),
        ({"inputs": np.zeros((2, 6)), "targets": np.array([0, 0.5])}, "class numbers"),
        ({"inputs": np.full((2, 6), np.nan), "targets": np.zeros(2)}, "NaN"),
        ({"inputs": np.full((2, 6), 1e300), "targets": np.zeros(2)}, "infinite"),
        ({"inputs": np.zeros((2, 6))}, "targets"),
        ({"inputs": np.zeros((0, 6)), "targets": np.zeros(0)}, "no samples"),
    ],
)
def test_errors_of_archives(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_local_samples(archive(tmp_path / "w.npz", **arrays), FLOATS, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,3\n1,2\n", "line 2: 2 cells"),
        ("1,2,3,4,5,6,0\n1,2,x,4,5,6,0\n", "line 2"),
        ("", "neither"),
        ("1\n2\n", "neither"),
    ],
)
def test_errors_of_tables(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_local_samples(path, FLOATS, 3)


def test_invalid_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_local_samples(tmp_path / "nowhere", FLOATS, 3)
    with pytest.raises(DataError, match=r"no \.npz and no \.csv"):
        read_local_samples(tmp_path, FLOATS, 3)
    wrong = tmp_path / "x.npz"
    wrong.write_bytes(b"no archive")
    with pytest.raises(DataError, match="NumPy archive"):
        read_local_samples(wrong, FLOATS, 3)
