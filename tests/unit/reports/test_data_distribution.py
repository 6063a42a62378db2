"""The distribution of data over devices, counted and drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from async_hfl.core.data_distribution import DataDistribution, data_distribution
from async_hfl.reports.figures.data_distribution import distribution_lines, draw_distribution

TARGETS = np.array([0, 0, 1, 2, 2, 2, 0, 1])
OWNED = [np.array([0, 1, 3]), np.array([2]), np.array([3, 4, 5])]


def test_counts_by_hand() -> None:
    held = data_distribution("some/own.py:task", "iid", 1, OWNED, TARGETS, 4, ("cat", "dog"))
    assert held.counts.tolist() == [[2, 0, 1, 0], [0, 1, 0, 0], [0, 0, 3, 0]]
    assert held.class_names == ("cat", "dog", "2", "3")
    assert (held.samples, held.held) == (8, 6), "row 3 has two holders, rows 6 and 7 none"
    assert held.short_name == "own"
    assert held.by_device.tolist() == [3, 1, 3]
    assert held.as_json()["counts"] == held.counts.tolist()
    assert distribution_lines(held) == [
        "some/own.py:task over 3 devices, iid, seed 1",
        "1 to 3 samples per device, 7 in total; 6 of the 8 training samples are on a device",
        "1 to 2 of 4 classes per device, 0 to 2 devices per class",
    ]


def test_without_classes() -> None:
    held = data_distribution("weather", "natural_id", 1, OWNED, np.zeros((8, 2)), 0)
    assert held.counts.tolist() == [[3], [1], [3]]
    assert held.short_name == "weather"
    assert len(distribution_lines(held)) == 2


def many(devices: int, classes: int, most: int) -> DataDistribution:
    counts = np.random.default_rng(1).integers(0, most, (devices, classes))
    counts[:, 0] += 1
    names = tuple(map(str, range(classes))) if classes > 1 else ()
    return DataDistribution("made-up", "iid", 1, counts, names, int(counts.sum()), int(counts.sum()))


@pytest.mark.parametrize(
    ("devices", "classes", "most"), [(1, 2, 5), (12, 10, 90), (184, 10, 300), (143, 80, 30_000), (26, 1, 9000)]
)
def test_drawn(tmp_path: Path, devices: int, classes: int, most: int) -> None:
    file = tmp_path / "held.png"
    draw_distribution(many(devices, classes, most), file)
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert 900 <= width <= 2500
    assert 500 <= height <= 2500


def test_class_names_that_matplotlib_would_parse_as_formulas(tmp_path: Path) -> None:
    counts = np.ones((2, 4), dtype=np.int64)
    draw_distribution(DataDistribution("signs", "iid", 1, counts, ("$", "\n", " ", "_^"), 8, 8), tmp_path / "signs.svg")
    assert "<svg" in (tmp_path / "signs.svg").read_text()
