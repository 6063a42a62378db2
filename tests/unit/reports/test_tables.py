"""Tables in a terminal, as CSV and as LaTeX."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from async_hfl.core.errors import UserError
from async_hfl.reports.tables.table import (
    Column,
    Spread,
    Table,
    as_rich,
    latex,
    shown,
    without_empty,
    write_csv,
    write_latex,
)

TABLE = Table(
    "Race & target",
    (Column("method"), Column("to target", "seconds", "mean"), Column("gain", "ratio"), Column("nothing", "share")),
    (
        ("async_hfl", Spread(3600.0, 3000.0, 4000.0), 1.25, None),
        ("two-tier", Spread(None, text="not reached"), None, None),
    ),
    ("50 % of B",),
    (0,),
)


@pytest.mark.parametrize(
    ("cell", "kind", "text"),
    [
        (None, "seconds", "-"),
        (float("nan"), "number", "-"),
        (True, "text", "yes"),
        ("a [b]", "text", "a [b]"),
        (3720.0, "seconds", "1 h 02 min"),
        (1_234_567, "bytes", "1.2 MB"),
        (0.1234, "share", "12.3 %"),
        (0.95, "metric", "0.9500"),
        (1234.6, "count", "1,235"),
        (1.307, "ratio", "1.31x"),
        (1500.0, "joules", "1.5 kJ"),
        (15.0, "joules", "15 J"),
        (0.00012345, "number", "0.0001234"),
        (7, "number", "7"),
        (Spread(60.0, 30.0, 90.0, "2 of 3"), "seconds", "1 min 00 s (30.0 s to 1 min 30 s) 2 of 3"),
        (Spread(None, text="not reached"), "seconds", "not reached"),
        (Spread(None), "seconds", "-"),
    ],
)
def test_a_formatted_cell(cell: object, kind: str, text: str) -> None:
    assert shown(cell, kind) == text  # type: ignore[arg-type]


def test_a_row_has_a_cell_for_every_column() -> None:
    with pytest.raises(ValueError, match="row 0 has 1 cells, there are 2"):
        Table("t", (Column("a"), Column("b")), (("x",),))


def test_csv_has_unformatted_numbers(tmp_path: Path) -> None:
    write_csv(TABLE, tmp_path / "new" / "t.csv")
    with (tmp_path / "new" / "t.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["method", "to target", "to target low", "to target high", "to target note", "gain", "nothing"],
        ["async_hfl", "3600.0", "3000.0", "4000.0", "", "1.25", ""],
        ["two-tier", "", "", "", "not reached", "", ""],
    ]


def test_latex_escapes(tmp_path: Path) -> None:
    write_latex(TABLE, tmp_path / "t.tex")
    text = (tmp_path / "t.tex").read_text()
    assert r"\caption{Race \& target}" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert (
        r"\textbf{async\_hfl} & \textbf{1 h 00 min (50 min 00 s to 1 h 06 min)} & \textbf{1.25x} & \textbf{-} \\"
        in text
    )
    assert r"two-tier & not reached & - & - \\" in text
    assert r"50 \% of B" in text
    assert latex("a\\b{$}^~#<") == r"a\textbackslash{}b\{\$\}\textasciicircum{}\textasciitilde{}\#\textless{}"


def test_markup_is_not_interpreted() -> None:
    file = io.StringIO()
    Console(width=120, file=file).print(as_rich(Table("[b]x", (Column("a[/]"),), (("[red]b, quite long",),), ("[n]",))))
    for part in ("[b]x", "a[/]", "[red]b, quite long", "[n]"):
        assert part in file.getvalue()


def test_empty_columns_are_left_out() -> None:
    assert [column.name for column in without_empty(TABLE).columns] == ["method", "to target", "gain"]
    assert without_empty(TABLE).rows[1] == ("two-tier", Spread(None, text="not reached"), None)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        write_csv(TABLE, tmp_path / "file" / "t.csv")
