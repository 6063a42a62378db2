"""What an experiment says in the end, and the files that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from async_hfl.experiments.comparison import Panel
from async_hfl.experiments.comparison_table import cost_table, time_table
from async_hfl.reports.tables import Table, shown, write_csv, write_latex


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    tables: tuple[Table, ...]
    summary: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    command: str = ""
    reference: str = ""
    brief: tuple[Table, ...] = ()
    """The same tables for a terminal, where they do not fit there."""


def write_report(report: Report, out: Path) -> dict[str, str]:
    """Every file, by what it is."""
    files = {}
    for number, table in enumerate(report.tables, 1):
        stem = "table" if len(report.tables) == 1 else f"table-{number}"
        write_csv(table, out / f"{stem}.csv")
        write_latex(table, out / f"{stem}.tex")
        files[stem] = str(out / f"{stem}.csv")
    text = out / "tables.md"
    text.write_text(markdown(report), encoding="utf-8")
    files["markdown"] = str(text)
    return files


def markdown(report: Report) -> str:
    parts = [f"# {report.title}", *report.summary]
    if report.command:
        parts.append(f"```sh\n{report.command}\n```")
    for table in report.tables:
        parts += [f"## {table.title}", markdown_table(table)]
        remarks = [f"{column.name}: {column.note}." for column in table.columns if column.note] + list(table.notes)
        if remarks:
            parts.append("\n".join(f"* {remark}" for remark in remarks))
    if report.notes:
        parts.append("\n".join(f"* {note}" for note in report.notes))
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    lines = [line([column.name for column in table.columns]), line(["---"] * len(table.columns))]
    for number, row in enumerate(table.rows):
        cells = [shown(cell, column.kind) for cell, column in zip(row, table.columns, strict=True)]
        lines.append(line([f"**{cell}**" for cell in cells] if number in table.emphasised else cells))
    return "\n".join(lines)


def comparison_report(title: str, panels: Sequence[Panel], command: str) -> Report:
    tables = [table for panel in panels for table in (time_table(panel), cost_table(panel))]
    brief = [table for panel in panels for table in (time_table(panel, brief=True), cost_table(panel, brief=True))]
    return Report(title, tuple(tables), command=command, reference=panels[0].reference, brief=tuple(brief))
