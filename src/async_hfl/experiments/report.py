"""What an experiment says in the end, and the files that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from async_hfl.experiments.comparison import Panel
from async_hfl.experiments.comparison_table import brief_table, cost_table, fastest, over_seeds, time_table
from async_hfl.reports.experiment_page import Comparison, RunGroup, write_page
from async_hfl.reports.tables import Table, shown, write_csv, write_latex


@dataclass(frozen=True, slots=True)
class Report:
    """What the page shows, its runs, and what a terminal shows in its stead."""

    page: Comparison
    groups: tuple[RunGroup, ...] = ()
    brief: tuple[Table, ...] = ()
    """Tables narrow enough for a terminal; none: those of the page."""


def write_report(report: Report, out: Path) -> dict[str, str]:
    """Every file, by what it is."""
    page, files = report.page, {}
    for number, table in enumerate(page.tables, 1):
        stem = "table" if len(page.tables) == 1 else f"table-{number}"
        write_csv(table, out / f"{stem}.csv")
        write_latex(table, out / f"{stem}.tex")
        files[stem] = str(out / f"{stem}.csv")
    text = out / "tables.md"
    text.write_text(markdown(page), encoding="utf-8")
    files["markdown"] = str(text)
    write_page(page, report.groups, out / "report.html")
    files["report"] = str(out / "report.html")
    return files


def markdown(report: Comparison) -> str:
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
    page = Comparison(
        title,
        summary=tuple(winner(panel) for panel in panels),
        tables=tuple(tables),
        command=command,
        reference=panels[0].reference,
    )
    return Report(page, groups_of(panels), tuple(brief_table(panel) for panel in panels))


def groups_of(panels: Sequence[Panel]) -> tuple[RunGroup, ...]:
    """The runs that are done, as the page's curves take them."""
    several = len(panels) > 1
    return tuple(
        RunGroup(row.group, tuple(one.run for one in row.outcomes), panel.name if several else "", panel.target)
        for panel in panels
        for row in panel.rows
        if row.outcomes
    )


def winner(panel: Panel) -> str:
    """Who was first, in one sentence."""
    best = fastest(panel)
    if best is None:
        return f"{panel.name}: no method reached {panel.target:g} with every seed."
    when = over_seeds(best, best.held(lambda r: r.at), "seconds")
    never = [row.group for row in panel.rows if row.outcomes and row.reached < len(row.outcomes)]
    others = f" Not with every seed: {', '.join(never)}." if never else ""
    return f"{panel.name}: {best.group} was the first to hold {panel.target:g}, after {shown(when, 'seconds')}.{others}"
