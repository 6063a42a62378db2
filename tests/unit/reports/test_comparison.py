"""The comparison of single runs."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from stored_runs import stored

from async_hfl.reports.tables.comparison import Row, compare, comparison_table
from async_hfl.reports.tables.table import as_rich


def printed(rows: list[Row], reference: str, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(as_rich(comparison_table(rows, reference, "Race to 90 %")))
    return file.getvalue()


def test_speed_ups_are_over_the_reference(tmp_path: Path) -> None:
    runs = [stored(tmp_path, "fast", 1000.0), stored(tmp_path, "base", 2500.0), stored(tmp_path, "slow", 5000.0)]
    rows = compare(runs, "base")
    assert [row.method for row in rows] == ["fast", "base", "slow"]
    assert [row.speed_up for row in rows] == [2.5, 1.0, 0.5]
    assert [row.time_to_target_s for row in rows] == [1000.0, 2500.0, 5000.0]
    assert rows[0].bytes_to_target == 123_456_789
    assert rows[0].models_uplink_bytes == 45_678_901
    assert rows[0].bound_share == 0.9876
    text = printed(rows, "base")
    assert "2.50x" in text
    assert "0.50x" in text
    assert "16 min 40 s" in text


def test_a_run_that_did_not_reach_its_target(tmp_path: Path) -> None:
    rows = compare([stored(tmp_path, "fast", 1000.0), stored(tmp_path, "stuck")], "fast")
    assert (rows[1].time_to_target_s, rows[1].speed_up, rows[1].bytes_to_target) == (None, None, None)
    assert "not reached" in printed(rows, "fast")
    # Without a reference that reached the target there is no speed-up.
    for reference in ("stuck", "absent"):
        assert [row.speed_up for row in compare([stored(tmp_path / reference, "fast", 1.0)], reference)] == [None]


def test_a_run_without_a_result_is_left_out(tmp_path: Path) -> None:
    runs = [stored(tmp_path, "fast", 1000.0), stored(tmp_path, "cut", 1.0, complete=False)]
    assert [row.method for row in compare(runs, "fast")] == ["fast"]


def test_nothing_is_cut_off_at_80_columns(tmp_path: Path) -> None:
    names = ("async-hfl-plus", "async-hfl", "async-random", "two-tier", "async-hfl-association")
    rows = compare([stored(tmp_path, name, 41_000.0 + 10 * len(name)) for name in names], "async-random")
    rows.append(Row("stuck", None, None, None, None, 0.1, 1_234_567, 0.5))
    text = printed(rows, "async-random")
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for word in ("11 h 25 min", "1.00x", "123.5 MB", "45.7 MB", "91.1 %", "12,345", "1,234,567", "not reached"):
        assert word in text
    for name in names[:4]:
        assert name in text
