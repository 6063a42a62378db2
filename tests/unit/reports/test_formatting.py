"""Formatting of durations, sizes and percentages."""

from __future__ import annotations

import pytest

from async_hfl.reports.tables.formatting import duration, percent, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.0 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (60, "1 min 00 s"),
        (200.4, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (3720, "1 h 02 min"),
        (360000, "100 h 00 min"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_940, "999.9 kB"),
        (999_960, "1.0 MB"),
        (12_345_678, "12.3 MB"),
        (999_999_999, "1.0 GB"),
        (2.5e12, "2.5 TB"),
        (2.5e15, "2500.0 TB"),
    ],
)
def test_size(count: float | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("share", "text"), [(None, "-"), (0.0, "0.0 %"), (0.9111, "91.1 %"), (1.0, "100.0 %")])
def test_percent(share: float | None, text: str) -> None:
    assert percent(share) == text
