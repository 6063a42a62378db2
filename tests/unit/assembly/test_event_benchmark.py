"""The benchmark of the simulator, on a small network."""

from __future__ import annotations

import pytest

from async_hfl.assembly.runs.event_benchmark import FULL, QUICK, Size, bench_events, print_row


def test_a_small_network(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = bench_events([Size(200, 2, 10)], print_row)
    assert (row["devices"], row["gateways"]) == (200, 2)
    assert row["updates"] >= 200 * 10
    assert row["updates_per_s"] == row["updates"] / row["wall_s"]
    assert row["bytes_per_device"] > 0
    line = capsys.readouterr().out
    assert line.startswith("     200 devices       2 gateways  ")
    assert " bytes a device  (" in line


def test_measured_sizes() -> None:
    assert [size.devices for size in FULL] == [1_000, 10_000, 100_000]
    assert [size.devices for size in QUICK] == [1_000, 10_000]
    assert all(size.devices == 100 * size.gateways for size in (*FULL, *QUICK))
