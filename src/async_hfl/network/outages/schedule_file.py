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
from async_hfl.network.files.cells import csv_lines, nearest, number, read_text
from async_hfl.network.files.traces import is_trace, read_trace
from async_hfl.network.outages.plan import THINGS, TURNS, Change

COLUMNS = ("at", "what", "number", "turn")


def read_outage_file(path: Path, links: FeasibleLinks) -> list[Change]:
    text = read_text(path, "give it with --set outages.file=FILE")
    header, lines = csv_lines(path, text)
    if is_trace(header):
        return _of_trace(path, text)
    for name in COLUMNS:
        if name not in header:
            raise DataError(f"{path}: has no column {name!r}; outages have {', '.join(COLUMNS)}")
    places = [header.index(name) for name in COLUMNS]
    return [_change([cells[place] for place in places], f"{path}, line {line}", links) for line, cells in lines]


def read_schedule(lines: Sequence[str], links: FeasibleLinks) -> list[Change]:
    changes = []
    for line in lines:
        words = line.split()
        if len(words) != len(COLUMNS):
            raise DataError(f"outages.schedule: {line!r}: write it as SECONDS WHAT NUMBER TURN, '3600 gateway 2 dies'")
        changes.append(_change(words, f"outages.schedule: {line!r}", links))
    return changes


def _change(words: Sequence[str], where: str, links: FeasibleLinks) -> Change:
    at, thing, which, turn = words
    if thing not in THINGS:
        raise DataError(f"{where}: {thing!r} does not go down{nearest(thing, THINGS)}")
    if turn not in TURNS:
        raise DataError(f"{where}: {turn!r} is not a turn{nearest(turn, TURNS)}")
    place = _link(which, where, links) if thing == "link" else _whole(which, f"{where}: number")
    return Change(number(at, f"{where}: at", 0.0), thing, place, turn)


def _link(which: str, where: str, links: FeasibleLinks) -> int:
    device, separator, gateway = which.partition("-")
    if not separator:
        raise DataError(f"{where}: a link is named by its two ends, DEVICE-GATEWAY (12-3), not {which!r}")
    ends = _whole(device, f"{where}: device"), _whole(gateway, f"{where}: gateway")
    place = links.find(*ends) if ends[0] < links.devices else -1
    if place < 0:
        raise DataError(f"{where}: device {ends[0]} has no link to gateway {ends[1]}")
    return place


def _whole(text: str, what: str) -> int:
    value = number(text, what, 0)
    if value != int(value):
        raise DataError(f"{what} is {text}; it must be a whole number")
    return int(value)


def _of_trace(path: Path, text: str) -> list[Change]:
    changes = []
    for row in read_trace(path, text).life:
        if row.what.startswith("device"):
            assert row.device is not None
            changes.append(Change(row.at, "device", row.device, "up" if row.what == "device_up" else "down"))
        else:
            assert row.gateway is not None
            changes.append(Change(row.at, "gateway", row.gateway, "up" if row.what == "gateway_up" else "down"))
    return changes
