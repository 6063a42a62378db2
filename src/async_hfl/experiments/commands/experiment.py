"""The result of `compare` and `sweep`: tables, data frames, a figure, the runs and the files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from async_hfl.api import Run, load_run
from async_hfl.core.errors import InternalError, UserError
from async_hfl.experiments.comparison.comparison import Panel, Row
from async_hfl.experiments.comparison.report import Report
from async_hfl.experiments.sweeps.sweep import SweepResult
from async_hfl.reports.export.optional_imports import needed
from async_hfl.reports.figures.learning_curves import groups_figure
from async_hfl.reports.tables.table import Table, as_rich
from async_hfl.reports.terminal.notebook import as_html


@dataclass(frozen=True, slots=True, repr=False)
class Experiment:
    """The runs of an experiment and their comparison. In a notebook it prints itself as tables."""

    name: str
    swept: SweepResult
    report: Report
    panels: tuple[Panel, ...]
    files: dict[str, str]
    """Tables, pictures and the page, by kind."""

    def __repr__(self) -> str:
        return f"<Experiment {self.path}: {self._state()}>"

    def _repr_html_(self) -> str:
        return as_html(Text(self._state()), *map(as_rich, self.tables))

    @property
    def path(self) -> Path:
        """The folder of the runs."""
        return self.swept.folder.path

    @property
    def complete(self) -> bool:
        return self.swept.complete

    @property
    def tables(self) -> tuple[Table, ...]:
        """One table for each problem: those that the command line prints."""
        return self.report.brief or self.report.page.tables

    @property
    def runs(self) -> list[Run]:
        """The runs that are complete and have not been discarded."""
        return [load_run(run) for group in self.report.groups for run in group.runs]

    def frame(self) -> Any:
        """Return a pandas data frame with a row for each method (needs async-hfl[frames]).

        Means are over seeds; there is none if a seed has not reached the target. `speed_up` has its 95 % interval;
        with a bound, ">" or "<", it is at least or at most that."""
        pandas = needed("pandas", "frames", "a data frame")
        return pandas.DataFrame([_of_group(panel, row) for panel in self.panels for row in panel.rows])

    def runs_frame(self) -> Any:
        """Return a pandas data frame with a row for each run (needs async-hfl[frames])."""
        pandas = needed("pandas", "frames", "a data frame")
        return pandas.DataFrame([one for panel in self.panels for row in panel.rows for one in _of_runs(panel, row)])

    def figure(self) -> Any:
        """Return the learning curves as a figure of matplotlib (needs async-hfl[plots])."""
        if not self.report.groups:
            raise UserError(f"{self.name}: no run directory is left to draw; the results alone were kept")
        return groups_figure(self.report.groups, self.report.page.title)

    def check(self) -> None:
        """Raise an error if a run failed."""
        if self.swept.failed:
            raise (UserError if self.swept.users_fault else InternalError)(self.failures())

    def failures(self) -> str:
        """Return the failed runs in words."""
        swept = self.swept
        reasons = list(dict.fromkeys(swept.failed.values()))
        text = f"{len(swept.failed)} of {swept.total} runs failed: {reasons[0]}"
        return text + (f"; and {len(reasons) - 1} other reasons in {self.path / 'failures'}" if reasons[1:] else "")

    def left(self, again: str) -> str:
        """Return in words which runs are left; nothing if none is. `again` continues."""
        swept = self.swept
        if not swept.left or swept.failed:
            return ""
        if swept.stopped == "kept":
            return f"{swept.left} of {swept.total} runs are not among the kept results"
        why = {"limit": "time limit reached", "interrupted": "interrupted", "": "not done"}[swept.stopped]
        return f"{why}: {swept.left} of {swept.total} runs left; {again} continues with them"

    def _state(self) -> str:
        if self.swept.failed:
            return self.failures()
        return self.left("the same call") or " ".join(self.report.page.summary)


def _of_group(panel: Panel, row: Row) -> dict[str, Any]:
    times, sent = (row.over_all_seeds(row.at_target(quantity)) for quantity in ("at", "bytes_total"))
    faster = row.speed_up
    return {
        "panel": panel.name,
        "method": row.group,
        "target": panel.target,
        "seeds": row.seeds,
        "reached": row.reached,
        "time_to_target_s": math.nan if times is None else times.mean,
        "bytes_to_target": math.nan if sent is None else sent.mean,
        "speed_up": math.nan if faster is None else faster.value,
        "speed_up_low": _number(None if faster is None else faster.low),
        "speed_up_high": _number(None if faster is None else faster.high),
        "speed_up_bound": "" if faster is None else faster.bound,
        "final_metric": math.nan if row.final is None else row.final.mean,
        "bandwidth_bound_share": _number(row.bound_share),
    }


def _of_runs(panel: Panel, row: Row) -> Iterator[dict[str, Any]]:
    for one in row.outcomes:
        held, end = one.held, one.result.end
        yield {
            "panel": panel.name,
            "method": row.group,
            "seed": one.seed,
            "target": panel.target,
            "time_to_target_s": math.nan if held is None else held.at,
            "bytes_to_target": math.nan if held is None else held.bytes_total,
            "virtual_s": end.at,
            "device_updates": int(end.updates),
            "final_metric": _number(one.result.final),
            "run": None if one.run is None else str(one.run),
        }


def _number(value: float | None) -> float:
    return math.nan if value is None else value
