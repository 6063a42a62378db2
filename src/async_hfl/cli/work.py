"""Options about the workers of a sweep, and the worker pool that they describe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from async_hfl.core.errors import UserError

if TYPE_CHECKING:  # imported when a command runs, so that `async-hfl --help` starts fast
    from async_hfl.experiments.sweeps.folder import SweepFolder
    from async_hfl.experiments.sweeps.worker_pool import WorkerPool


def add_work(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options about workers, time limit and output directory."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"the directory of runs and tables (default: {out})")
    parser.add_argument("--on", metavar="WHERE", default="processes", help="processes, ray or ray://HOST:PORT")
    workers = "workers (default: one per core, several per GPU)"
    parser.add_argument("--processes", "--workers", type=int, metavar="P", help=workers)
    parser.add_argument("--together", type=int, metavar="K", help="runs at once in a worker (default: 1; 6 on a GPU)")
    parser.add_argument("--limit-minutes", type=float, metavar="M", help="stop then; the same command continues later")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="keep the result of each run as a line of this file")
    discard = "with --rows: remove a run directory as soon as its result is kept"
    parser.add_argument("--discard-runs", action="store_true", help=discard)


def limit_s(options: argparse.Namespace) -> float | None:
    """Return the seconds of --limit-minutes."""
    minutes: float | None = options.limit_minutes
    if minutes is not None and not minutes > 0:
        raise UserError(f"--limit-minutes {minutes:g}: must be more than 0")
    return None if minutes is None else minutes * 60


def worker_pool(options: argparse.Namespace, folder: SweepFolder) -> WorkerPool:
    from async_hfl.experiments.sweeps.process_workers import ProcessPool

    if options.on == "processes":
        return ProcessPool(folder.path, options.processes, options.together)
    if options.on == "ray" or options.on.startswith("ray://"):
        from async_hfl.experiments.sweeps.ray_workers import RayPool

        address = None if options.on == "ray" else options.on
        return RayPool(folder.path, address, options.processes, options.together)
    raise UserError(f"--on {options.on}: must be processes, ray (on this machine) or ray://HOST:PORT")
