"""Sources of results for tables and figures: the run directories of a sweep's folder, or files of kept results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from async_hfl.core.errors import UserError
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.results.kept_run import KeptRun
from async_hfl.experiments.results.measured import Measured, measure
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.journal.run_directory import RunDirectory


class Results(Protocol):
    def of(self, run: PlannedRun) -> Measured | None:
        """Return the result of a run; None if it is not complete."""

    def directory(self, run: PlannedRun) -> Path | None:
        """Return the run directory of a complete run; None if only its result was kept."""


class FolderResults:
    """The complete runs in a sweep's folder."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder

    def of(self, run: PlannedRun) -> Measured | None:
        path = self.directory(run)
        return None if path is None else measure(RunDirectory(path), run.levels, parts=run.parts)

    def directory(self, run: PlannedRun) -> Path | None:
        return self._folder.run(run.id) if self._folder.state(run.id) == "done" else None


class KeptResults:
    """Kept results, found by the digest of the run's settings."""

    def __init__(self, rows: Iterable[KeptRun]) -> None:
        self._rows: dict[str, list[KeptRun]] = {}
        for row in rows:
            self._rows.setdefault(row.digest, []).append(row)

    def row(self, run: PlannedRun) -> KeptRun | None:
        """Return the newest row that has all that the plan wants to know of the run."""
        return next((row for row in reversed(self.rows(run)) if row.result.has(run.levels, parts=run.parts)), None)

    def rows(self, run: PlannedRun) -> Sequence[KeptRun]:
        """Return all rows of the run, whatever their labels."""
        return self._rows.get(run.digest, ())

    def of(self, run: PlannedRun) -> Measured | None:
        row = self.row(run)
        return None if row is None else row.result

    def directory(self, run: PlannedRun) -> Path | None:
        return None

    def check_any(self, runs: Sequence[PlannedRun], files: Sequence[Path]) -> None:
        """Raise UserError if there is no result of any of these runs."""
        if runs and not any(self.row(run) for run in runs):
            known = sorted({f"{row.task} {row.network} {row.preset}" for rows in self._rows.values() for row in rows})
            raise UserError(
                f"--from-results {' '.join(map(str, files))}: none of the {len(runs)} runs of this table is in there "
                f"with these settings; kept are: {'; '.join(known) or 'no runs'}"
            )
