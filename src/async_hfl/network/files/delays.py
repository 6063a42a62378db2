"""Measured delays from the user's file: a CSV table with one line per device and one column per gateway.

    device,compute_s,north,south
    pump-1,42,12.5,
    pump-2,38,60.1,9.8

A cell is the time of one model over that link in seconds; an empty cell or 0 means that there is no link. `compute_s`
(seconds of one local training) is optional. A file that contains only numbers has neither names nor compute times.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.network.files.cells import csv_lines, is_number, number


@dataclass(frozen=True, slots=True, eq=False)
class DelayMatrix:
    path: str
    seconds: Floats
    """A devices x gateways array; 0 means no link."""
    device_names: tuple[str, ...]
    gateway_names: tuple[str, ...]
    compute: Floats | None


def delay_matrix(path: Path, text: str) -> DelayMatrix:
    header, rows = csv_lines(path, text)
    named = not all(is_number(cell) for cell in header)
    if not named:
        rows = [(1, header), *rows]
        header = ["device", *(f"gateway {number}" for number in range(len(header)))]
        rows = [(line, [f"device {position}", *cells]) for position, (line, cells) in enumerate(rows)]
    if header[0] != "device":
        raise DataError(f"{path}: its first column is called {header[0]!r}; in a table of delays it is 'device'")
    if not rows:
        raise DataError(f"{path}: has no device; a network needs at least one")
    timed = "compute_s" in header
    gateways = [name for name in header[1:] if name != "compute_s"]
    if not gateways:
        raise DataError(f"{path}: has no gateway; each is a column after 'device'")
    if "" in gateways:
        raise DataError(f"{path}: column {header.index('') + 1} has no name; write the gateway's")
    seconds = np.zeros((len(rows), len(gateways)))
    compute = np.zeros(len(rows))
    names: dict[str, int] = {}
    for row, (line, cells) in enumerate(rows):
        where = f"{path}, line {line}"
        of = dict(zip(header, cells, strict=True))
        name = of["device"] or f"device {row}"
        if name in names:
            raise DataError(f"{where}: the device {name!r} has a line already (line {names[name]})")
        names[name] = line
        for column, gateway in enumerate(gateways):
            if of[gateway]:
                seconds[row, column] = number(of[gateway], f"{where}: the delay to {gateway}", 0)
        if timed:
            compute[row] = number(of["compute_s"], f"{where}: compute_s", 0)
        if not seconds[row].any():
            raise DataError(f"{where}: {name} has no link; give it a delay to at least one gateway, or leave it out")
    return DelayMatrix(str(path), seconds, tuple(names), tuple(gateways), compute if timed else None)
