"""The keeper of results during a sweep: it appends a row as each run ends, and knows the runs that have one already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from async_hfl.core.errors import UserError
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.results.kept_run import keep, labels, relabelled
from async_hfl.experiments.results.rows_file import append_row, read_rows
from async_hfl.experiments.results.sources import KeptResults
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.journal.run_directory import RunDirectory


class Keeper:
    """Keeps the results of a sweep in a rows file. Its runs need not be in the folder any more."""

    def __init__(self, file: Path, folder: SweepFolder, *, discard: bool = False) -> None:
        """With `discard` a run directory is removed as soon as its row is on the disk."""
        if not file.parent.is_dir():
            raise UserError(f"--rows {file}: there is no directory {file.parent}; create it, or give another file")
        self._file, self._folder, self._discard = file, folder, discard
        self._read: tuple[int, KeptResults] | None = None

    @property
    def results(self) -> KeptResults:
        """All rows of the file, with those that other sweeps have added."""
        length = self._file.stat().st_size if self._file.exists() else 0
        if self._read is None or self._read[0] != length:
            self._read = length, KeptResults(read_rows([self._file] if length else []))
        return self._read[1]

    def has(self, run: PlannedRun) -> bool:
        return self.results.row(run) is not None

    def begin(self, runs: Sequence[PlannedRun]) -> None:
        """Keep the runs that are complete already.

        A run that an earlier plan had under other labels gets another row under its labels of today.
        """
        results = self.results
        for run in runs:
            row = results.row(run)
            if row is None:
                self.done(run)
                continue
            if labels(run) not in {labels(other) for other in results.rows(run)}:
                append_row(self._file, relabelled(row, run))
            if self._discard:
                self._folder.remove(run.id)

    def done(self, run: PlannedRun) -> None:
        """Keep the result of a run if it is complete."""
        if self._folder.state(run.id) != "done":
            return
        append_row(self._file, keep(run, RunDirectory(self._folder.run(run.id))))
        if self._discard:
            self._folder.remove(run.id)
