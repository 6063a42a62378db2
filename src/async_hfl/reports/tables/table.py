"""A table as plain data, written once and shown everywhere: terminal, CSV, LaTeX, page.

Numbers stay numbers (seconds, bytes, joules, shares) until they are shown; `Column.kind` says how.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from async_hfl.core.errors import UserError
from async_hfl.reports.tables.units import duration, percent, size

Kind = Literal["text", "seconds", "bytes", "share", "metric", "number", "count", "ratio", "joules"]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind = "text"
    note: str = ""
    """What the column means, where its name does not say it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A value with the interval it stands in; `text` follows it, or stands alone where there is no value."""

    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""


Cell = str | float | int | bool | Spread | None


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    emphasised: tuple[int, ...] = ()
    """Rows in bold."""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: row {number} has {len(row)} cells, there are {len(self.columns)}")


def without_empty(table: Table) -> Table:
    """The same without columns that say nothing."""
    kept = [
        place for place in range(len(table.columns)) if not place or any(row[place] is not None for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def shown(cell: Cell, kind: Kind) -> str:
    """A cell as people read it."""
    if isinstance(cell, Spread):
        return _shown_spread(cell, kind)
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    return _shown_number(cell, kind)


def _shown_spread(cell: Spread, kind: Kind) -> str:
    parts = []
    if cell.value is not None:
        parts.append(_shown_number(cell.value, kind))
        if cell.low is not None and cell.high is not None:
            parts.append(f"({_shown_number(cell.low, kind)} to {_shown_number(cell.high, kind)})")
    if cell.text:
        parts.append(cell.text)
    return " ".join(parts) or "-"


def _shown_number(value: float, kind: Kind) -> str:
    if value != value:
        return "-"
    match kind:
        case "seconds":
            return duration(value)
        case "bytes":
            return size(value)
        case "share":
            return percent(value)
        case "metric":
            return f"{value:.4f}"
        case "count":
            return f"{value:,.0f}"
        case "ratio":
            return f"{value:.2f}x" if value >= 0.1 else f"{value:.2g}x"
        case "joules":
            return f"{value / 1e3:,.1f} kJ" if abs(value) >= 1e3 else f"{value:.0f} J"
        case _:
            return str(value) if isinstance(value, int) else f"{value:.4g}"


def write_csv(table: Table, path: Path) -> None:
    """Bare numbers; a column with spreads becomes name, name low, name high (and name note, where there are any)."""
    with _opened(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        spreads = [_spread_parts(table, place) for place in range(len(table.columns))]
        writer.writerow(
            [f"{column.name}{part}" for column, parts in zip(table.columns, spreads, strict=True) for part in parts]
        )
        for row in table.rows:
            writer.writerow([text for cell, parts in zip(row, spreads, strict=True) for text in _bare(cell, parts)])


def write_latex(table: Table, path: Path) -> None:
    """For booktabs."""
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
    with _opened(path) as file:
        file.write("\n".join(lines) + "\n")


def as_rich(table: Table) -> RichTable:
    """For a terminal; notes and the meaning of columns stand below."""
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
        if column.kind == "text":
            made.add_column(Text(column.name), overflow="fold")
        else:
            made.add_column(Text(column.name), justify="right")
    for number, row in enumerate(table.rows):
        cells = [Text(shown(cell, column.kind)) for cell, column in zip(row, table.columns, strict=True)]
        made.add_row(*cells, style="bold green" if number in table.emphasised else None)
    return made


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "·": r"$\cdot$",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    }
)


def latex(text: str) -> str:
    """Plain text that LaTeX prints as it is."""
    return text.translate(_LATEX).replace("\n", " ")


def _opened(path: Path) -> Any:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); give another --out") from error


def _spread_parts(table: Table, place: int) -> tuple[str, ...]:
    spreads = [row[place] for row in table.rows if isinstance(row[place], Spread)]
    if not spreads:
        return ("",)
    noted = any(isinstance(cell, Spread) and cell.text for cell in spreads)
    return ("", " low", " high", " note") if noted else ("", " low", " high")


def _bare(cell: Cell, parts: tuple[str, ...]) -> Iterator[Any]:
    if not isinstance(cell, Spread):
        yield "" if cell is None else repr(cell) if isinstance(cell, float) else cell
        yield from ("",) * (len(parts) - 1)
        return
    for value in (cell.value, cell.low, cell.high):
        yield "" if value is None else value
    if len(parts) == 4:
        yield cell.text
