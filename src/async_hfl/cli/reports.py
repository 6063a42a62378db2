"""Reports about runs, and export of their data to other tools."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from async_hfl.cli.common import Commands, add_command, add_run, answer

FORMATS = ("csv", "parquet", "tensorboard", "mlflow")


def add_commands(commands: Commands) -> None:
    report = add_command(commands, "report", _report, "make a page about one run, or a comparison of several")
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, or directories of them")
    files = "a page (.html), picture (.png, .svg, .pdf) or table (.csv, .tex); repeatable (default: report-NAME.html)"
    report.add_argument("--out", action="append", type=Path, metavar="FILE", help=files)
    export = add_command(commands, "export", _export, "export all records of a run to other tools")
    add_run(export)
    export.add_argument("--format", choices=FORMATS, default="csv", help="the format")
    export.add_argument("--out", required=True, metavar="DIR", help="the directory to write, or MLflow's tracking URI")


def add_trackers(parser: argparse.ArgumentParser) -> None:
    """Add the options that send a run to experiment trackers."""
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="write the progress for TensorBoard under DIR")
    parser.add_argument("--mlflow", metavar="URI", help="log the finished run to MLflow, such as sqlite:///mlflow.db")


def _report(options: argparse.Namespace) -> int:
    from async_hfl.api.reporting import report
    from async_hfl.reports.data.grouping import find_runs

    runs = find_runs(options.runs)
    given = ["async-hfl", "report", *map(str, options.runs), *(f"--out={file}" for file in options.out or ())]
    files = report(runs, options.out or (), command=shlex.join(given))
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    made = {"runs": [str(run) for run in runs], "files": [str(file) for file in files]}
    return answer(options, made, [f"{file}: {count}" for file in files])


def _export(options: argparse.Namespace) -> int:
    from async_hfl.api.reporting import export

    made = export(options.run, options.out, format=options.format)
    counts = ", ".join(f"{name} {count:,}" if isinstance(count, int) else str(count) for name, count in made.items())
    result = {"run": str(options.run), "format": options.format, "out": options.out, "written": made}
    return answer(options, result, [f"{options.out}: {counts}"])
