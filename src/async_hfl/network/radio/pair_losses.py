"""Path loss of pairs listed in a file: each device at its coordinates, the gateway at x = y = 0.

The file is a CSV whose first line names the columns. Required: device_x_m, device_y_m, device_z_m, gateway_z_m
(metres). A column `pair` names the rows; otherwise they are numbered from 0. Other columns and lines that begin with #
are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.network.files.cells import csv_lines, number, read_text
from async_hfl.network.radio.propagation.hybrid_buildings import path_loss, straight_line
from async_hfl.network.radio.propagation.surroundings import Surroundings

COLUMNS = ("device_x_m", "device_y_m", "device_z_m", "gateway_z_m")
NAME = "pair"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    names: list[str]
    device_x: Floats
    device_y: Floats
    device_z: Floats
    gateway_z: Floats


def read_pairs(path: Path) -> Pairs:
    """Read and check the file. Every error names the line."""
    header, rows = csv_lines(path, read_text(path, "give a CSV file of pairs"))
    for name in COLUMNS:
        if name not in header:
            raise DataError(f"{path}: has no column {name!r}; it needs {', '.join(COLUMNS)}")
    places = [header.index(name) for name in COLUMNS]
    try:
        table = np.array([[float(cells[place]) for place in places] for _, cells in rows], np.float64)
        finite = bool(np.isfinite(table).all())
    except ValueError:
        finite = False
    if not finite:  # look for the place only now: naming it for every number would take longer than all the rest
        for line, cells in rows:
            for name, place in zip(COLUMNS, places, strict=True):
                number(cells[place], f"{path}, line {line}: {name}")
    x, y, device_z, gateway_z = table.reshape(-1, len(COLUMNS)).T
    for wrong, what in (
        ((device_z <= 0.0) | (gateway_z <= 0.0), "a height is not above the ground; give more than 0"),
        ((x == 0.0) & (y == 0.0) & (device_z == gateway_z), "the device is where the gateway is"),
    ):
        if wrong.any():
            raise DataError(f"{path}, line {rows[int(wrong.argmax())][0]}: {what}")
    named = header.index(NAME) if NAME in header else None
    names = [str(count) if named is None else cells[named] for count, (_, cells) in enumerate(rows)]
    return Pairs(names, x, y, device_z, gateway_z)


def pair_losses(pairs: Pairs, around: Surroundings) -> Floats:
    """Return the path loss in decibels, both radios outdoors, without shadowing."""
    distance = straight_line(pairs.device_x, pairs.device_y, pairs.device_z - pairs.gateway_z)
    return path_loss(distance, pairs.device_z, pairs.gateway_z, around)


def loss_lines(pairs: Pairs, losses: Floats) -> Iterator[str]:
    """Yield the losses as CSV, with all digits."""
    yield f"{NAME},path_loss_db"
    for name, loss in zip(pairs.names, losses.tolist(), strict=True):
        yield f"{_quoted(name)},{loss!r}"


def _quoted(name: str) -> str:
    if not any(sign in name for sign in ',"'):
        return name
    return '"' + name.replace('"', '""') + '"'
