"""Pages, pictures and tables about runs, and the export of their records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from async_hfl.api.stored_run import Run
from async_hfl.core.errors import UserError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.grouping import find_runs
from async_hfl.reports.export.table_formats import export_csv, export_parquet
from async_hfl.reports.export.trackers import export_mlflow, export_tensorboard
from async_hfl.reports.pages.report_files import write_reports

Runs: TypeAlias = Run | str | Path
Format = Literal["csv", "parquet", "tensorboard", "mlflow"]
_WRITERS = {"csv": export_csv, "parquet": export_parquet, "tensorboard": export_tensorboard}


def report(
    runs: Runs | Sequence[Runs], out: str | Path | Sequence[str | Path] = (), *, command: str = "async_hfl.report(...)"
) -> list[Path]:
    """Write a page about one run, or a comparison of several (`async-hfl report`); return the files.

    `runs` are runs, run directories or directories of them. Each file of `out` is a page (.html), a picture (.png,
    .svg, .pdf) or a table (.csv, .tex); by default one page, report-NAME.html.

    >>> short = {"task.devices": 20, "cloud.epochs": 3}
    >>> run = async_hfl.run(task="null", network="uniform", overrides=short, out="one")
    >>> [file.name for file in async_hfl.report(run)]
    ['report-one.html']
    """
    given = [runs] if isinstance(runs, Run | str | Path) else runs
    found = find_runs([one.path if isinstance(one, Run) else Path(one) for one in given])
    name = found[0].resolve().name if len(found) == 1 else "comparison"
    files = [Path(file) for file in ([out] if isinstance(out, str | Path) else out)] or [Path(f"report-{name}.html")]
    write_reports(found, files, command)
    return files


def export(run: Runs, out: str | Path, *, format: Format = "csv") -> dict[str, Any]:
    """Export all records of a run to other tools (`async-hfl export`); return the rows by table.

    `out` is a directory, or MLflow's tracking URI.
    """
    directory = run.directory if isinstance(run, Run) else RunDirectory.open(Path(run))
    if format == "mlflow":
        return export_mlflow(directory, str(out))
    if format not in _WRITERS:
        raise UserError(f"format = {format!r}: must be one of {', '.join([*_WRITERS, 'mlflow'])}")
    if "://" in str(out):
        raise UserError(f"--out {out}: {format} needs a directory")
    return dict(_WRITERS[format](directory, Path(out)))
