"""Runs of a plan made by real processes on this machine, one after the other: they would take each other's processors.

As with a sweep the folder alone remembers. What is done is not done again; what was cut off is put aside and begun
anew.
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
from async_hfl.experiments.sweeps.sweep import Swept, View
from async_hfl.experiments.sweeps.work import News
from async_hfl.experiments.sweeps.worker_pool import Shape
from async_hfl.simulation.recorded_run import Progress

Make = Callable[[PlannedRun, Path, Callable[[Progress], None]], api.Run]
"""Makes that run in that directory, and tells how far it is."""


def deploy(
    runs: Sequence[PlannedRun], folder: SweepFolder, make: Make, view: View, *, limit_s: float | None = None
) -> Swept:
    """After `limit_s` no other run is begun."""
    folder.make()
    began = time.monotonic()
    swept = Swept(folder, len(runs), there=sum(folder.state(run.id) == "done" for run in runs))
    view.began(len(runs), swept.there, Shape(0, 1))
    for run in runs:
        if folder.state(run.id) == "done":
            continue
        if limit_s is not None and time.monotonic() - began >= limit_s:
            swept.stopped = "limit"
            break
        with folder.claimed(run.id) as ours:
            if not ours:
                view.note(f"{run.name}: another process works on it")
                continue
            try:
                _one(run, folder, make, view)
                swept.done += 1
            except (Interrupted, KeyboardInterrupt):
                swept.stopped = "interrupted"
                break
            except AsyncHflError as error:
                folder.failed(run.id, str(error))
                swept.failed[run.id] = str(error)
                swept.users_fault |= isinstance(error, UserError)
                view.note(f"{run.name}: failed: {error}")
    swept.wall_s = time.monotonic() - began
    return swept


def _one(run: PlannedRun, folder: SweepFolder, make: Make, view: View) -> None:
    if folder.state(run.id) == "cut":
        view.note(f"{run.name}: was cut off; begun anew")
        folder.set_aside(run.id)
    folder.clear(run.id)

    def tell(news: News) -> None:
        view.news(run, asdict(news))

    def progress(now: Progress) -> None:
        tell(News(run.id, "epoch", now.epoch, now.metric, now.at, updates_per_s=now.updates_per_s))

    tell(News(run.id, "began"))
    made = make(run, folder.run(run.id), progress).summary
    reached = made["target_reached"]
    at = made["time_to_target_s"] if reached else made["virtual_s"]
    tell(News(run.id, "done", made["cloud_epochs"], made["final_metric"] or 0.0, at, reached=reached))
