"""`async-hfl report`: a page, picture or table about runs, chosen by the ending of each file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from async_hfl.assembly.user_code.objects import shown
from async_hfl.core.errors import UserError
from async_hfl.core.extras import check_installed
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.experiment import Comparison, RunGroup
from async_hfl.reports.data.group_data import ComparedRun, read_panels
from async_hfl.reports.data.grouping import group_runs, panel_name
from async_hfl.reports.figures.learning_curves import PICTURES, draw_groups
from async_hfl.reports.pages.experiment_page import write_page
from async_hfl.reports.pages.run_page import write_run_page
from async_hfl.reports.tables.table import BOUND, Cell, Column, Spread, Table, write_csv, write_latex

ENDINGS = (".html", *PICTURES, ".csv", ".tex")


def write_reports(runs: Sequence[Path], files: Sequence[Path], command: str) -> None:
    """Write every file. A single run gets a page of its own; several runs are compared."""
    for file in files:
        if file.suffix not in ENDINGS:
            raise UserError(f"{file}: the name of a report must end in {', '.join(ENDINGS)}")
        if file.suffix in PICTURES:
            check_installed("plots", f"{file}: a picture")
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


def comparison_of(groups: Sequence[RunGroup], command: str) -> Comparison:
    panels = read_panels(groups)
    count = sum(len(group.runs) for group in groups)
    manifest = RunDirectory.open(groups[0].runs[0]).read_manifest()
    return Comparison(
        title=f"{shown(manifest['task'])}: {count} runs" if len(panels) == 1 else f"{count} runs compared",
        summary=(f"{count} runs in {len(groups)} groups. Runs that differ only in their seeds form one group.",),
        tables=tuple(_race(panel or panel_name(own[0][1][0].manifest), own) for panel, own in panels.items()),
        command=command,
    )


def _race(title: str, groups: Sequence[tuple[RunGroup, list[ComparedRun]]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    means = []
    for group, runs in groups:
        reached = [run.held for run in runs if run.held is not None]
        text = "" if len(reached) == len(runs) else f"{len(reached)} of {len(runs)} reached it"
        times = [state.at for state in reached]
        means.append(sum(times) / len(times) if times and not text else None)
        rows.append(
            (
                group.name,
                len(runs),
                Spread.over(times, text),
                Spread.over([float(state.bytes_total) for state in reached]),
                Spread.over([float(state.bytes_models_up) for state in reached]),
                Spread.over([float(state.updates) for state in reached]),
                Spread.over([float(run.curve.metric[-1]) for run in runs if len(run.curve)]),
                Spread.over([run.summary["bandwidth_bound_share"] for run in runs if run.summary is not None]),
            )
        )
    known = [mean for mean in means if mean is not None]
    target = groups[0][1][0].target
    reaching = f"{target.metric} {target.threshold:g}; without the runs that never reached it"
    return Table(
        title,
        (
            Column("group"),
            Column("runs", "count"),
            Column("to target", "seconds", reaching),
            Column("bytes", "bytes", "all bytes sent until then, over all links"),
            Column("uplink", "bytes", "models sent towards the cloud"),
            Column("updates", "count", "device updates until then"),
            Column(f"final {target.metric}", "metric"),
            BOUND,
        ),
        tuple(rows),
        ("Each cell is the mean over the runs, with the lowest and the highest value below it.",),
        tuple(place for place, mean in enumerate(means) if known and mean == min(known)),
    )
