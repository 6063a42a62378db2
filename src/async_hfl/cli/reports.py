"""Reports of runs, and their data for other tools."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from async_hfl.cli.common import Commands, finish, print_json
from async_hfl.core.errors import UserError

FORMATS = ("csv", "parquet", "tensorboard", "mlflow")


def add_commands(commands: Commands) -> None:
    report = commands.add_parser("report", help="a page about a run, or about several beside each other")
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, or directories of some")
    report.add_argument(
        "--out",
        action="append",
        type=Path,
        metavar="FILE",
        help="page (.html), picture of the curves (.png, .svg, .pdf) or table (.csv, .tex); may be given several times "
        "(report-NAME.html)",
    )
    finish(report, _report)
    export = commands.add_parser("export", help="everything a run wrote down, for other tools")
    export.add_argument("run", type=Path, metavar="RUN")
    export.add_argument("--format", choices=FORMATS, default="csv")
    export.add_argument("--out", required=True, metavar="DIR", help="where to; for mlflow a tracking URI")
    finish(export, _export)


def add_following(parser: argparse.ArgumentParser) -> None:
    """The options by which a run is followed elsewhere."""
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="follow it in TensorBoard, under DIR")
    parser.add_argument("--mlflow", metavar="URI", help="tell MLflow when it is over, such as sqlite:///mlflow.db")


def _report(options: argparse.Namespace) -> int:
    from async_hfl.reports.data.grouping import find_runs
    from async_hfl.reports.pages.report_files import write_reports

    runs = find_runs(options.runs)
    name = runs[0].resolve().name if len(runs) == 1 else "comparison"
    files = options.out or [Path(f"report-{name}.html")]
    given = ["async-hfl", "report", *map(str, options.runs), *(f"--out={file}" for file in options.out or ())]
    write_reports(runs, files, shlex.join(given))
    if options.json:
        print_json({"runs": [str(run) for run in runs], "files": [str(file) for file in files]})
    else:
        told = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        print("\n".join(f"{file}: {told}" for file in files))
    return 0


def _export(options: argparse.Namespace) -> int:
    from async_hfl.journal.run_directory import RunDirectory
    from async_hfl.reports.export.table_formats import export_csv, export_parquet
    from async_hfl.reports.export.trackers import export_mlflow, export_tensorboard

    directory = RunDirectory.open(options.run)
    made: dict[str, Any]
    if options.format == "mlflow":
        made = export_mlflow(directory, options.out)
    else:
        if "://" in options.out:
            raise UserError(f"--out {options.out}: {options.format} goes into a directory")
        write = {"csv": export_csv, "parquet": export_parquet, "tensorboard": export_tensorboard}[options.format]
        made = write(directory, Path(options.out))
    if options.json:
        print_json({"run": str(options.run), "format": options.format, "out": options.out, "written": made})
    else:
        told = ", ".join(f"{name} {count:,}" if isinstance(count, int) else str(count) for name, count in made.items())
        print(f"{options.out}: {told}")
    return 0
