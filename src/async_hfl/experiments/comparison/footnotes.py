"""The footnote on tuning below every table: settings, seeds and tuning file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from async_hfl.experiments.comparison.report import Report
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.results.kept_run import KeptRun
from async_hfl.experiments.tuning.tuned import Tuned
from async_hfl.reports.tables.table import Table


def tuning_notes(runs: Iterable[PlannedRun | KeptRun]) -> dict[str, str]:
    """Return the note of each panel in which a group is tuned."""
    panels: dict[str, dict[str, Tuned | None]] = {}
    for run in runs:
        panels.setdefault(run.panel, {}).setdefault(run.family, run.tuned)
    return {panel: _note(groups) for panel, groups in panels.items() if any(groups.values())}


def _note(groups: dict[str, Tuned | None]) -> str:
    tuned = {name: one for name, one in groups.items() if one is not None}
    seeds = sorted({seed for one in tuned.values() for seed in one.seeds})
    files = sorted({one.digest for one in tuned.values()})
    common = set.intersection(*(set(one.under) for one in tuned.values()))
    each = [f"{name}: {', '.join(one.overrides())}{_under(set(one.under) - common)}" for name, one in tuned.items()]
    others = [name for name, one in groups.items() if one is None]
    on = f"Tuned on seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"
    return (
        f"{on}, which {'is' if len(seeds) == 1 else 'are'} not reported (tuning file {', '.join(files)})"
        f"{_under(common)}: {'; '.join(each)}." + (f" With packaged settings: {', '.join(others)}." if others else "")
    )


def _under(settings: set[str]) -> str:
    """Name the settings with which the runs of the tuning differed from those of the table."""
    return f", by runs with {', '.join(sorted(settings))}" if settings else ""


def footnoted(report: Report, notes: dict[str, str]) -> Report:
    """Add the notes to each table: that of its panel if the title names one, or else all."""
    if not notes:
        return report

    def noted(table: Table) -> Table:
        own = [panel for panel in notes if table.title.startswith(f"{panel}: ")]
        several = len(notes) > 1 and not own
        chosen = [f"{panel}: {notes[panel]}" if several else notes[panel] for panel in own or notes]
        return replace(table, notes=(*table.notes, *chosen))

    page = replace(report.page, tables=tuple(map(noted, report.page.tables)))
    return replace(report, page=page, brief=tuple(map(noted, report.brief)))
