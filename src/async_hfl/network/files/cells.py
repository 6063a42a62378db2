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


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_text(path: Path, remedy: str = "give the network's file with --set network.path=FILE") -> str:
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
        rows = [
            (reader.line_num, [cell.strip() for cell in row])
            for row in reader
            if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
        ]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
    if not rows:
        raise DataError(f"{path}: holds nothing but comments")
    (_, header), *lines = rows
    for number_of_line, row in lines:
        if len(row) != len(header):
            raise DataError(
                f"{path}, line {number_of_line}: {len(row)} cells, but its first line names {len(header)} columns"
            )
    twice = sorted({name for name in header if header.count(name) > 1 and not is_number(name)})
    if twice:
        raise DataError(f"{path}: two columns are called {twice[0]!r}; each needs a name of its own")
    return header, lines


def nearest(name: str, names: Sequence[str], cutoff: float = 0.5) -> str:
    """Return `; did you mean X?`, or the list of valid names."""
    found = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"; did you mean {found[0]}?" if found else f"; there is {', '.join(names)}"
