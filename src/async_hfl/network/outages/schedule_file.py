"""Outages from a file: CSV with the columns at, what, number, turn, or the trace of a recorded run.

    at      seconds since the run began
    what    device, gateway or link
    number  number of the device or gateway, from 0; a link is given by its two ends: DEVICE-GATEWAY
    turn    down, up, dies (down for good) or slow (a device becomes slow)

A line of a schedule has the same four values in one string: "3600 gateway 2 dies".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from async_hfl.core.errors import DataError
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.files.cells import csv_lines, csv_table, integer, nearest, number, read_text
from async_hfl.network.files.traces import is_trace, read_trace
from async_hfl.network.outages.plan import COMPONENTS, TURNS, Change, Component

COLUMNS = ("at", "what", "number", "turn")


def read_outage_file(path: Path, links: FeasibleLinks) -> list[Change]:
    text = read_text(path, "give it with --set outages.file=FILE")
    if is_trace(csv_lines(path, text)[0]):
        return _of_trace(path, text)
    _, lines = csv_table(path, text, COLUMNS)
    return [_change([line.text(name) for name in COLUMNS], line.where, links) for line in lines]


def read_schedule(lines: Sequence[str], links: FeasibleLinks) -> list[Change]:
    changes = []
    for line in lines:
        words = line.split()
        if len(words) != len(COLUMNS):
            raise DataError(f"outages.schedule: {line!r}: write it as SECONDS WHAT NUMBER TURN, '3600 gateway 2 dies'")
        changes.append(_change(words, f"outages.schedule: {line!r}", links))
    return changes


def _change(words: Sequence[str], where: str, links: FeasibleLinks) -> Change:
    at, component, which, turn = words
    if component not in COMPONENTS:
        raise DataError(f"{where}: {component!r} is not a kind of node or link{nearest(component, COMPONENTS)}")
    if turn not in TURNS:
        raise DataError(f"{where}: {turn!r} is not a turn{nearest(turn, TURNS)}")
    place = _link(which, where, links) if component == "link" else integer(which, f"{where}: number")
    return Change(number(at, f"{where}: at", 0.0), component, place, turn)


def _link(which: str, where: str, links: FeasibleLinks) -> int:
    device, separator, gateway = which.partition("-")
    if not separator:
        raise DataError(f"{where}: a link is named by its two ends, DEVICE-GATEWAY (12-3), not {which!r}")
    ends = integer(device, f"{where}: device"), integer(gateway, f"{where}: gateway")
    place = links.find(*ends) if ends[0] < links.devices else -1
    if place < 0:
        raise DataError(f"{where}: device {ends[0]} has no link to gateway {ends[1]}")
    return place


def _of_trace(path: Path, text: str) -> list[Change]:
    changes = []
    for row in read_trace(path, text).outages:
        component: Component = "device" if row.what.startswith("device") else "gateway"
        node = row.device if component == "device" else row.gateway
        assert node is not None
        changes.append(Change(row.at, component, node, "up" if row.what.endswith("up") else "down"))
    return changes
