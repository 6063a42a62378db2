"""The report of an experiment and its files: tables (CSV, LaTeX, Markdown), pictures, page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from async_hfl.experiments.comparison.comparison import Panel
from async_hfl.experiments.comparison.tables import (
    brief_table,
    cost_table,
    fastest,
    over_seeds,
    time_table,
    two_figures,
)
from async_hfl.reports.data.experiment import Comparison, Figure, FigureLine, RunGroup
from async_hfl.reports.figures.learning_curves import draw_figure, draw_groups
from async_hfl.reports.figures.pictures import can_draw
from async_hfl.reports.pages.experiment_page import write_page
from async_hfl.reports.tables.table import Cell, Column, Spread, Table, shown, write_csv, write_latex


@dataclass(frozen=True, slots=True)
class Report:
    """The content of the page, its groups of runs, and the tables for a terminal."""

    page: Comparison
    groups: tuple[RunGroup, ...] = ()
    brief: tuple[Table, ...] = ()
    """Tables that are narrow enough for a terminal; if empty, those of the page are shown."""


def write_report(report: Report, out: Path) -> dict[str, str]:
    """Write all files and return their paths by kind."""
    page, files = report.page, {}
    for number, table in enumerate(page.tables, 1):
        stem = "table" if len(page.tables) == 1 else f"table-{number}"
        write_csv(table, out / f"{stem}.csv")
        write_latex(table, out / f"{stem}.tex")
        files[stem] = str(out / f"{stem}.csv")
    text = out / "tables.md"
    text.write_text(markdown(page), encoding="utf-8")
    files["markdown"] = str(text)
    if report.groups and can_draw():
        draw_groups(report.groups, out / "curves.png", page.title)
        files["curves"] = str(out / "curves.png")
    for number, figure in enumerate(page.figures if can_draw() else (), 1):
        picture = out / ("figure.png" if len(page.figures) == 1 else f"figure-{number}.png")
        draw_figure(figure, picture)
        files[picture.stem] = str(picture)
    write_page(page, report.groups, out / "report.html")
    files["report"] = str(out / "report.html")
    return files


def as_json(table: Table) -> dict[str, Any]:
    """Return the table with unformatted numbers; a spread becomes an object."""

    def plain(cell: Cell) -> Any:
        return asdict(cell) if isinstance(cell, Spread) else cell

    rows = [{column.name: plain(cell) for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]
    return {"title": table.title, "rows": rows, "notes": list(table.notes)}


def markdown(report: Comparison) -> str:
    parts = [f"# {report.title}", *report.summary]
    if report.command:
        parts.append(f"```sh\n{report.command}\n```")
    for table in report.tables:
        parts += [f"## {table.title}", markdown_table(table)]
        remarks = [f"{column.name}: {column.note}." for column in table.columns if column.note] + list(table.notes)
        if remarks:
            parts.append("\n".join(f"* {remark}" for remark in remarks))
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
    groups = groups_of(panels)
    page = Comparison(
        title,
        summary=tuple(winner(panel) for panel in panels),
        tables=tuple(tables),
        figures=() if groups else tuple(kept_curves(panel) for panel in panels),
        command=command,
        reference=panels[0].reference,
    )
    return Report(page, groups, tuple(brief_table(panel) for panel in panels))


def with_page(report: Report, tables: tuple[Table, ...], figures: tuple[Figure, ...]) -> Report:
    """Put tables and figures before those of the comparison; the terminal shows only these tables."""
    page = replace(report.page, tables=(*tables, *report.page.tables), figures=(*figures, *report.page.figures))
    return replace(report, page=page, brief=tuple(narrow(table) for table in tables))


def narrow(table: Table) -> Table:
    """Shorten the cells for a terminal."""
    rows = [tuple(_narrow(cell, column) for cell, column in zip(row, table.columns, strict=True)) for row in table.rows]
    return replace(table, rows=tuple(rows))


def _narrow(cell: Cell, column: Column) -> Cell:
    kind = column.kind
    if kind == "ratio" and isinstance(cell, float):
        return shown(cell, kind).removesuffix("x")
    if not isinstance(cell, Spread) or cell.value is None:
        return cell
    value = cell.bound + shown(cell.value, kind).removesuffix("x" if kind == "ratio" else "")
    if kind != "ratio" or cell.low is None or cell.high is None or column.name == "first":
        return f"{value} {cell.text}".strip()
    return f"{value} ({two_figures(cell.low)}-{two_figures(cell.high)}) {cell.text}".strip()


def kept_curves(panel: Panel) -> Figure:
    """Return the learning curves of a panel whose runs are gone: the kept points of each group's first seed."""
    lines = []
    for row in panel.rows:
        if row.outcomes:
            curve = row.outcomes[0].result.curve
            lines.append(FigureLine(row.group, tuple(at / 3600 for at in curve.at), tuple(curve.metric)))
    return Figure(f"{panel.name}: learning curves of the first seed", "virtual hours", "metric", tuple(lines))


def groups_of(panels: Sequence[Panel]) -> tuple[RunGroup, ...]:
    """Return the complete runs as groups for the curves of the page."""
    several = len(panels) > 1
    return tuple(
        RunGroup(row.group, runs, panel.name if several else "", panel.target)
        for panel in panels
        for row in panel.rows
        if (runs := tuple(one.run for one in row.outcomes if one.run is not None))
    )


def winner(panel: Panel) -> str:
    """Name the fastest method in one sentence."""
    best = fastest(panel)
    if best is None:
        return f"{panel.name}: no method reached {panel.target:g} with every seed."
    when = over_seeds(best, best.at_target(), "seconds")
    failed = [row.group for row in panel.rows if row.outcomes and row.reached < len(row.outcomes)]
    others = f" Did not reach it with every seed: {', '.join(failed)}." if failed else ""
    return f"{panel.name}: {best.group} was the fastest to reach {panel.target:g}, in {shown(when, 'seconds')}.{others}"
