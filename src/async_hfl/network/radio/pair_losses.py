"""Path loss of pairs listed in a file: each device at its coordinates, the gateway at x = y = 0.

The file is a CSV whose first line names the columns. Required: device_x_m, device_y_m, device_z_m, gateway_z_m
(metres). A column `pair` names the rows; otherwise they are numbered from 0. Other columns and lines that begin with #
are ignored.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.network.radio.propagation.hybrid_buildings import path_loss, straight_line
from async_hfl.network.radio.propagation.surroundings import Surroundings

COLUMNS = ("device_x_m", "device_y_m", "device_z_m", "gateway_z_m")
NAME = "pair"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    names: list[str]
    lines: list[int]
    """Line of each pair in the file."""
    device_x: Floats
    device_y: Floats
    device_z: Floats
    gateway_z: Floats


def read_pairs(path: Path) -> Pairs:
    """Read and check the file. Every error names the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({error})") from error
    lines = [(line, words) for line, words in enumerate(text.splitlines(), 1) if words.strip() and not _comment(words)]
    rows = list(csv.reader(f"{words}\n" for _, words in lines))  # parsing all lines at once takes half the time
    if len(rows) < len(lines):
        at = next((at for at, row in enumerate(rows) if any("\n" in cell for cell in row)), len(rows) - 1)
        raise DataError(f"{path}, line {lines[at][0]}: a quotation mark is not closed")
    numbers = [line for line, _ in lines]
    header = [name.strip() for name in rows[0]] if rows else []
    for name in COLUMNS:
        if header.count(name) != 1:
            many = "no" if name not in header else "more than one"
            place = f"{path}, line {numbers[0] if numbers else 1}"
            raise DataError(f"{place}: there is {many} column {name}; needed are {', '.join(COLUMNS)}")
    del rows[:1], numbers[:1]
    for line, row in zip(numbers, rows, strict=True):
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} values for {len(header)} columns")
    wanted = [header.index(name) for name in COLUMNS]
    try:
        columns = [np.array([float(row[at]) for row in rows], np.float64) for at in wanted]
    except ValueError:
        raise DataError(f"{path}, {_first_wrong(numbers, rows, wanted)}") from None
    named = header.index(NAME) if NAME in header else None
    names = [str(count) if named is None else row[named].strip() for count, row in enumerate(rows)]
    pairs = Pairs(names, numbers, *columns)
    _check(path, pairs)
    return pairs


def pair_losses(pairs: Pairs, around: Surroundings) -> Floats:
    """Return the path loss in decibels, both radios outdoors, without shadowing."""
    distance = straight_line(pairs.device_x, pairs.device_y, pairs.device_z - pairs.gateway_z)
    return path_loss(distance, pairs.device_z, pairs.gateway_z, around)


def loss_lines(pairs: Pairs, losses: Floats) -> Iterator[str]:
    """Yield the losses as CSV, with all digits."""
    yield f"{NAME},path_loss_db"
    for name, loss in zip(pairs.names, losses.tolist(), strict=True):
        yield f"{_quoted(name)},{loss!r}"


def _comment(words: str) -> bool:
    return words.lstrip().startswith("#")


def _first_wrong(numbers: list[int], rows: list[list[str]], wanted: list[int]) -> str:
    for line, row in zip(numbers, rows, strict=True):
        for name, at in zip(COLUMNS, wanted, strict=True):
            try:
                float(row[at])
            except ValueError:
                return f"line {line}: {name} = {row[at].strip()!r} is not a number"
    return "a value is not a number"


def _check(path: Path, pairs: Pairs) -> None:
    columns = (pairs.device_x, pairs.device_y, pairs.device_z, pairs.gateway_z)
    for name, values in zip(COLUMNS, columns, strict=True):
        low = 0.0 if name.endswith("_z_m") else -np.inf
        wrong = np.flatnonzero(~((values > low) & (values < np.inf)))
        if len(wrong):
            must = "a finite number" if low < 0.0 else "a height above the ground, more than 0"
            raise DataError(f"{path}, line {pairs.lines[wrong[0]]}: {name} = {values[wrong[0]]} must be {must}")
    same = np.flatnonzero((pairs.device_x == 0.0) & (pairs.device_y == 0.0) & (pairs.device_z == pairs.gateway_z))
    if len(same):
        raise DataError(f"{path}, line {pairs.lines[same[0]]}: the device is where the gateway is")


def _quoted(name: str) -> str:
    if not any(sign in name for sign in ',"'):
        return name
    return '"' + name.replace('"', '""') + '"'
