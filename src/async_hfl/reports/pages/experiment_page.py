"""Many runs as one page: tables, figures, curves with their spread over seeds, settings and versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from async_hfl.reports.data.curves import significant
from async_hfl.reports.data.experiment import Comparison, Figure, RunGroup
from async_hfl.reports.data.group_data import Panel, group_data, read_panels
from async_hfl.reports.pages.page import table_data, write_html
from async_hfl.reports.tables.formatting import held_text
from async_hfl.reports.tables.group_tables import detail_tables, panel_tables
from async_hfl.reports.tables.run_names import clock_name

MOST_NUMBERS = 240_000
"""The most numbers in the curves of one page, about 2 MB."""
_PER_POINT = 6


def write_page(comparison: Comparison, groups: Sequence[RunGroup], out: Path) -> None:
    """Write one self-contained file. Incomplete runs are drawn as far as they got."""
    count = sum(len(group.runs) for group in groups)
    points = max(48, min(400, MOST_NUMBERS // max(1, count * _PER_POINT)))
    names = list(dict.fromkeys(group.name for group in groups))
    panels = read_panels(groups)
    every = [run for parts in panels.values() for _, members in parts for run in members]
    data = {
        "title": comparison.title,
        "clock": clock_name([run.manifest for run in every]),
        "summary": list(comparison.summary),
        "tables": [table_data(table) for table in comparison.tables],
        "figures": [_figure(figure) for figure in comparison.figures],
        "command": comparison.command,
        "reference": comparison.reference,
        "panels": [_panel(name, parts, names, points) for name, parts in panels.items()],
        "details": [table_data(table) for table in detail_tables(every)],
    }
    write_html(out, ("comparison.js",), data)


def _panel(name: str, parts: Panel, names: list[str], points: int) -> dict[str, Any]:
    first = next((run for _, members in parts for run in members), None)
    target = next((group.target for group, _ in parts if group.target is not None), None)
    return {
        "name": name,
        "metric": "metric" if first is None else first.target.metric,
        "direction": "at_least" if first is None else first.target.direction,
        "held": "" if first is None else held_text(first.target.window),
        "target": first.target.threshold if target is None and first is not None else target,
        "groups": [
            {"name": group.name, "number": names.index(group.name), **group_data(members, points)}
            for group, members in parts
        ],
        "tables": [table_data(table) for table in panel_tables([(group.name, members) for group, members in parts])],
    }


def _figure(figure: Figure) -> dict[str, Any]:
    data = asdict(figure)
    for line in data["lines"]:
        for part in ("y", "low", "high"):
            line[part] = [None if value is None else significant([value])[0] for value in line[part]]
    return data
