"""A table as plain data, and its forms: terminal, CSV, LaTeX.

Cells stay numbers (seconds, bytes, joules, shares) until they are formatted; `Column.kind` says how.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from async_hfl.reports.output import writing
from async_hfl.reports.tables.formatting import duration, percent, size

Kind = Literal["text", "seconds", "bytes", "share", "metric", "number", "count", "ratio", "joules"]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind = "text"
    note: str = ""
    """The meaning of the column, if its name alone does not tell."""


BOUND = Column("bound", "share", "share of selections limited by the bandwidth")


@dataclass(frozen=True, slots=True)
class Spread:
    """A value with its interval; `text` follows it, or stands alone if there is no value."""

    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""
    bound: str = ""
    """">" or "<": the value is at least or at most this."""

    @classmethod
    def over(cls, values: Sequence[float], text: str = "") -> Self | None:
        """Return the mean with the range of the values; None without values and text."""
        if not values:
            return cls(None, text=text) if text else None
        mean, low, high = sum(values) / len(values), min(values), max(values)
        return cls(mean, low, high, text) if high > low else cls(mean, text=text)


Cell = str | float | int | bool | Spread | None


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    emphasised: tuple[int, ...] = ()
    """Indices of rows shown in bold."""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: row {number} has {len(row)} cells, there are {len(self.columns)}")


def without_empty(table: Table) -> Table:
    """Return the table without its empty columns."""
    kept = [
        place for place in range(len(table.columns)) if not place or any(row[place] is not None for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def shown(cell: Cell, kind: Kind) -> str:
    """Format a cell."""
    if isinstance(cell, Spread):
        parts = [] if cell.value is None else [cell.bound + shown(cell.value, kind)]
        if cell.value is not None and cell.low is not None and cell.high is not None:
            parts.append(f"({shown(cell.low, kind)} to {shown(cell.high, kind)})")
        return " ".join([*parts, *([cell.text] if cell.text else [])]) or "-"
    if cell is None or cell != cell:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    match kind:
        case "seconds":
            return duration(cell)
        case "bytes":
            return size(cell)
        case "share":
            return percent(cell)
        case "metric":
            return f"{cell:.4f}"
        case "count":
            return f"{cell:,.0f}"
        case "ratio":
            return f"{cell:.2f}x" if cell >= 0.1 else f"{cell:.2g}x"
        case "joules":
            return f"{cell / 1e3:,.1f} kJ" if abs(cell) >= 1e3 else f"{cell:.0f} J"
        case _:
            return str(cell) if isinstance(cell, int) else f"{cell:.4g}"


def write_csv(table: Table, path: Path) -> None:
    """Write unformatted numbers. A column of spreads becomes name, name low, name high and, if needed, name note."""
    with writing(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        spreads = [_spread_parts(table, place) for place in range(len(table.columns))]
        writer.writerow(
            [f"{column.name}{part}" for column, parts in zip(table.columns, spreads, strict=True) for part in parts]
        )
        for row in table.rows:
            writer.writerow([text for cell, parts in zip(row, spreads, strict=True) for text in _bare(cell, parts)])


def write_latex(table: Table, path: Path) -> None:
    """Write a LaTeX table in the style of booktabs."""
    numeric = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex(table.title)}}}",
        rf"  \begin{{tabular}}{{{numeric}}}",
        r"    \toprule",
        "    " + " & ".join(latex(column.name) for column in table.columns) + r" \\",
        r"    \midrule",
    ]
    for number, row in enumerate(table.rows):
        cells = [latex(shown(cell, column.kind)) for cell, column in zip(row, table.columns, strict=True)]
        if number in table.emphasised:
            cells = [rf"\textbf{{{cell}}}" for cell in cells]
        lines.append("    " + " & ".join(cells) + r" \\")
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    lines += [rf"  \par\smallskip\footnotesize {latex(note)}" for note in table.notes]
    lines.append(r"\end{table}")
    with writing(path):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def as_rich(table: Table) -> RichTable:
    """Return the table for a terminal, with its notes and the meaning of its columns as the caption."""
    notes = [f"{column.name}: {column.note}" for column in table.columns if column.note] + list(table.notes)
    made = RichTable(
        title=Text(table.title),
        title_justify="left",
        caption=Text("\n".join(notes)) if notes else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in table.columns:
        made.add_column(Text(column.name), overflow="fold", justify="left" if column.kind == "text" else "right")
    for number, row in enumerate(table.rows):
        cells = [Text(shown(cell, column.kind)) for cell, column in zip(row, table.columns, strict=True)]
        made.add_row(*cells, style="bold green" if number in table.emphasised else None)
    return made


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "·": r"$\cdot$",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    }
)


def latex(text: str) -> str:
    """Escape plain text for LaTeX."""
    return text.translate(_LATEX).replace("\n", " ")


def _spread_parts(table: Table, place: int) -> tuple[str, ...]:
    spreads = [row[place] for row in table.rows if isinstance(row[place], Spread)]
    if not spreads:
        return ("",)
    noted = any(isinstance(cell, Spread) and (cell.text or cell.bound) for cell in spreads)
    return ("", " low", " high", " note") if noted else ("", " low", " high")


def _bare(cell: Cell, parts: tuple[str, ...]) -> Iterator[Any]:
    if not isinstance(cell, Spread):
        yield "" if cell is None else repr(cell) if isinstance(cell, float) else cell
        yield from ("",) * (len(parts) - 1)
        return
    for value in (cell.value, cell.low, cell.high):
        yield "" if value is None else value
    if len(parts) == 4:
        yield f"{cell.bound} {cell.text}".strip()
