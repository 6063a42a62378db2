"""A report in whatever forms are asked for, by the endings of the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from async_hfl.core.errors import UserError
from async_hfl.reports.data.grouping import comparison_of, group_runs
from async_hfl.reports.figures.learning_curves import PICTURES, draw_groups
from async_hfl.reports.pages.experiment_page import write_page
from async_hfl.reports.pages.run_page import write_run_page
from async_hfl.reports.tables.table import write_csv, write_latex

ENDINGS = (".html", *PICTURES, ".csv", ".tex")


def write_reports(runs: Sequence[Path], files: Sequence[Path], command: str) -> None:
    """One run gets a page of its own; several stand beside each other."""
    for file in files:
        if file.suffix not in ENDINGS:
            raise UserError(f"{file}: a report ends in {', '.join(ENDINGS)}")
    groups = group_runs(runs)
    comparison = comparison_of(groups, command)
    for file in files:
        if file.suffix == ".html" and len(runs) == 1:
            write_run_page(runs[0], file)
        elif file.suffix == ".html":
            write_page(comparison, groups, file)
        elif file.suffix in PICTURES:
            draw_groups(groups, file, comparison.title)
        else:
            write = write_csv if file.suffix == ".csv" else write_latex
            for number, table in enumerate(comparison.tables, 1):
                write(table, file if number == 1 else file.with_stem(f"{file.stem}-{number}"))
