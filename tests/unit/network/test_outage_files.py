"""Outages from a schedule, a file or a trace; every error names its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from async_hfl.core.errors import DataError
from async_hfl.core.topology import feasible_links
from async_hfl.network.outages.plan import Change, checked_schedule
from async_hfl.network.outages.schedule_file import read_outage_file, read_schedule

LINKS = feasible_links(3, 2, np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]), np.full(4, 10.0))


def test_a_schedule_gives_time_node_and_change() -> None:
    lines = ["3600 gateway 1 dies", "0.5 link 1-1 down", "90 device 2 slow"]
    assert read_schedule(lines, LINKS) == [
        Change(3600.0, "gateway", 1, "dies"),
        Change(0.5, "link", 2, "down"),
        Change(90.0, "device", 2, "slow"),
    ]


def test_a_file_is_equivalent_to_a_schedule(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text("# a bad day\nwhat,number,turn,at\ndevice,0,down,10\n\ndevice,0,up,20\nlink,2-1,dies,5\n")
    assert read_outage_file(path, LINKS) == [
        Change(10.0, "device", 0, "down"),
        Change(20.0, "device", 0, "up"),
        Change(5.0, "link", 3, "dies"),
    ]


def test_outages_from_a_recorded_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "at,what,device,gateway,bytes,seconds\n"
        "1.0,download,0,0,1000,2.5\n5.0,device_down,2,1,,\n7.0,device_up,2,1,,\n8.0,gateway_down,,0,,\n"
    )
    assert read_outage_file(path, LINKS) == [
        Change(5.0, "device", 2, "down"),
        Change(7.0, "device", 2, "up"),
        Change(8.0, "gateway", 0, "down"),
    ]


def test_changes_are_sorted_and_a_gateway_that_never_comes_back_dies() -> None:
    given = [
        Change(50.0, "gateway", 0, "down"),
        Change(60.0, "gateway", 0, "up"),
        Change(40.0, "gateway", 1, "down"),
        Change(45.0, "device", 1, "down"),
    ]
    assert checked_schedule(given, LINKS) == (
        Change(40.0, "gateway", 1, "dies"),
        Change(45.0, "device", 1, "down"),
        Change(50.0, "gateway", 0, "down"),
        Change(60.0, "gateway", 0, "up"),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3600 gateway 2", "write it as SECONDS WHAT NUMBER TURN"),
        ("3600 gatway 1 dies", "'gatway' is not a kind of node or link; did you mean gateway?"),
        ("3600 gateway 1 die", "'die' is not a turn; did you mean dies?"),
        ("soon gateway 1 dies", "at is 'soon', which is not a number"),
        ("-1 gateway 1 dies", "must be a number of at least 0"),
        ("1 device 1.5 down", "must be a whole number"),
        ("1 link 1 down", "named by its two ends, DEVICE-GATEWAY"),
        ("1 link 0-1 down", "device 0 has no link to gateway 1"),
        ("1 link 9-1 down", "device 9 has no link to gateway 1"),
    ],
)
def test_mistakes_in_a_line(line: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_schedule([line], LINKS)
    assert message in str(error.value)


def test_mistakes_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    with pytest.raises(DataError, match=r"no such file; give it with --set outages\.file=FILE"):
        read_outage_file(path, LINKS)
    path.write_text("at,what,number\n1,device,0\n")
    with pytest.raises(DataError, match="has no column 'turn'"):
        read_outage_file(path, LINKS)
    path.write_text("at,what,number,turn\n1,device,0,down\n2,device,0,away\n")
    with pytest.raises(DataError, match=r"line 3: 'away' is not a turn"):
        read_outage_file(path, LINKS)


def test_missing_nodes_are_rejected() -> None:
    with pytest.raises(DataError, match=r"device 3 at 1 s: the network has devices 0\.\.2"):
        checked_schedule([Change(1.0, "device", 3, "down")], LINKS)
    with pytest.raises(DataError, match="a gateway at 1 s cannot become slow"):
        checked_schedule([Change(1.0, "gateway", 0, "slow")], LINKS)
