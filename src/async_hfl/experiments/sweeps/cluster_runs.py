"""The runs of a plan, made by real processes on this machine, one after the other to leave each run all processors.

As in a sweep, the folder alone holds the state: complete runs are kept, and interrupted or damaged runs are set aside
and made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from async_hfl import api
from async_hfl.core.errors import AsyncHflError, UserError
from async_hfl.deployment.processes.main_loop import Interrupted
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.sweep import SweepResult, View
from async_hfl.experiments.sweeps.work import RunStatus, done_status, epoch_status
from async_hfl.experiments.sweeps.worker_pool import PoolShape
from async_hfl.simulation.recorded_run import Progress

Make = Callable[[PlannedRun, Path, Callable[[Progress], None]], api.Run]
"""Makes the run in the directory and reports its progress."""


def make_cluster_runs(
    runs: Sequence[PlannedRun], folder: SweepFolder, make: Make, view: View, *, limit_s: float | None = None
) -> SweepResult:
    """Make the missing runs; after `limit_s` no other run is started."""
    folder.make()
    began = time.monotonic()
    result = SweepResult(folder, len(runs), already_complete=sum(folder.state(run.id) == "done" for run in runs))
    view.began(len(runs), result.already_complete, PoolShape(0, 1))
    for run in runs:
        if folder.state(run.id) == "done":
            continue
        if limit_s is not None and time.monotonic() - began >= limit_s:
            result.stopped = "limit"
            break
        with folder.claimed(run.id) as claimed:
            if not claimed:
                view.note(f"{run.name}: another process is working on it")
                continue
            try:
                _make_one(run, folder, make, view)
                result.done += 1
            except (Interrupted, KeyboardInterrupt):
                result.stopped = "interrupted"
                break
            except AsyncHflError as error:
                folder.record_failure(run.id, str(error))
                result.failed[run.id] = str(error)
                result.users_fault |= isinstance(error, UserError)
                view.note(f"{run.name}: failed: {error}")
    result.wall_s = time.monotonic() - began
    return result


def _make_one(run: PlannedRun, folder: SweepFolder, make: Make, view: View) -> None:
    state = folder.state(run.id)
    if state in ("interrupted", "damaged"):
        note = folder.replacing(run.id) if state == "damaged" else f"{run.name}: was interrupted; starting again"
        view.note(note)
        folder.set_aside(run.id)
    folder.clear(run.id)

    def report(status: RunStatus) -> None:
        view.status(run, asdict(status))

    report(RunStatus(run.id, "began"))
    made = make(run, folder.run(run.id), lambda progress: report(epoch_status(run.id, progress)))
    report(done_status(run.id, made.summary))
