"""Options about the work of an experiment: its workers, its time limit, its folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported when a command runs, so that `async-hfl --help` starts fast
    from async_hfl.experiments.commands.work import Work


def add_work(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options about workers, time limit and output directory."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"the directory of runs and tables (default: {out})")
    parser.add_argument("--on", metavar="WHERE", default="processes", help="processes, here, ray or ray://HOST:PORT")
    workers = "workers (default: one per core, several per GPU)"
    parser.add_argument("--processes", "--workers", type=int, metavar="P", help=workers)
    parser.add_argument("--together", type=int, metavar="K", help="runs at once in a worker (default: 1; 6 on a GPU)")
    parser.add_argument("--limit-minutes", type=float, metavar="M", help="stop then; the same command continues later")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="keep the result of each run as a line of this file")
    discard = "with --rows: remove a run directory as soon as its result is kept"
    parser.add_argument("--discard-runs", action="store_true", help=discard)


def work_of(options: argparse.Namespace) -> Work:
    from async_hfl.experiments.commands.work import Work

    return Work.of(
        options.out,
        options.on,
        options.processes,
        options.together,
        options.limit_minutes,
        options.rows,
        options.discard_runs,
        getattr(options, "from_results", None) or (),
    )
