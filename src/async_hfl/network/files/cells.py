"""Parsing of a user's text files. Every error names the file, the line and the remedy."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from async_hfl.core.errors import DataError


@dataclass(frozen=True, slots=True)
class Line:
    """The cells of one line by column, and the name of the line for error messages."""

    where: str
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def number(self, column: str, least: float = -math.inf, most: float = math.inf) -> float:
        return number(self.text(column), f"{self.where}: {column}", least, most)

    def integer(self, column: str, least: int = 0) -> int:
        return integer(self.text(column), f"{self.where}: {column}", least)


def number(text: str, what: str, least: float = -math.inf, most: float = math.inf) -> float:
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"{what} is {text!r}, which is not a number") from None
    if not math.isfinite(value) or not least <= value <= most:
        expected = {
            (True, True): f"from {least:g} to {most:g}",
            (True, False): f"of at least {least:g}",
            (False, False): "that is finite",
        }[(math.isfinite(least), math.isfinite(most))]
        raise DataError(f"{what} is {text}; it must be a number {expected}")
    return value


def integer(text: str, what: str, least: int = 0) -> int:
    value = number(text, what, least)
    if value != int(value):
        raise DataError(f"{what} is {text}; it must be a whole number")
    return int(value)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_text(path: Path, remedy: str = "give the path of the network's file, as --network FILE") -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte order mark
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {remedy}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not text in UTF-8 ({error.reason} at byte {error.start}); save it as such") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    if not text.strip():
        raise DataError(f"{path}: is empty")
    return text


def csv_lines(path: Path, text: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header and (line number, cells) of every other line, without empty lines and # comments."""
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        stripped = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
    rows = [(line, cells) for line, cells in stripped if any(cells) and not cells[0].startswith("#")]
    if not rows:
        raise DataError(f"{path}: holds nothing but comments")
    (_, header), *lines = rows
    for line, cells in lines:
        if len(cells) != len(header):
            raise DataError(f"{path}, line {line}: {len(cells)} cells, but its first line names {len(header)} columns")
    twice = sorted({name for name in header if header.count(name) > 1 and not is_number(name)})
    if twice:
        raise DataError(f"{path}: two columns are called {twice[0]!r}; each needs a name of its own")
    return header, lines


def csv_table(path: Path, text: str, required: Sequence[str] = ()) -> tuple[list[str], list[Line]]:
    """Return the header and the lines of a file that must have the `required` columns."""
    header, rows = csv_lines(path, text)
    for name in required:
        if name not in header:
            raise DataError(f"{path}: has no column {name!r}; it needs {', '.join(required)}")
    return header, [Line(f"{path}, line {line}", dict(zip(header, cells, strict=True))) for line, cells in rows]


def nearest(name: str, names: Sequence[str]) -> str:
    """Return `; did you mean X?`, or the list of valid names."""
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else f"; choose from {', '.join(names)}"
