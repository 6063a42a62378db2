"""Writes the network delays in a run's journal as a trace (`async-hfl network record`)."""

from __future__ import annotations

from pathlib import Path

from async_hfl.core.errors import DataError, RunDirectoryError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.network.files.traces import RECORDED, trace_rows, write_trace


def record_network(run: str | Path, out: str | Path) -> dict[str, int]:
    """Write the trace of a run, which `--network file --set network.path=OUT` replays; return its rows by kind."""
    directory, file = RunDirectory.open(Path(run)), Path(out)
    if file.suffix != ".csv":
        raise DataError(f"{file}: a trace is CSV; give it a name that ends in .csv")
    if not directory.events.is_file():
        raise RunDirectoryError(f"{directory.path}: has no events.jsonl, so there is nothing to write")
    rows = list(trace_rows(directory.read_events(*RECORDED)))
    if not rows:
        raise RunDirectoryError(f"{directory.path}: its journal has no transfers yet; resume the run first")
    try:
        with file.open("w", newline="", encoding="utf-8") as opened:
            return write_trace(opened, rows)
    except OSError as error:
        raise DataError(
            f"{file}: cannot be written ({error.strerror or error}); give a file in a directory that exists"
        ) from error
