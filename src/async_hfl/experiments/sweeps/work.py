"""The work of a worker, in a local process or a Ray actor: start or resume runs, one or several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from async_hfl import api
from async_hfl.core.errors import AsyncHflError, UserError
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.simulation.recorded_run import Progress

_STATUS_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class Assignment:
    """One run to make, as plain data that can be sent to a worker."""

    id: str
    arguments: dict[str, Any]
    restart: bool = False
    """True if resuming has failed before, so that the run must start from the beginning."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run, as reported by a worker."""

    run: str
    what: Literal["began", "epoch", "done", "paused", "failed", "elsewhere"]
    epoch: int = 0
    metric: float = 0.0
    at: float = 0.0
    """Virtual seconds."""
    updates_per_s: float = 0.0
    reached: bool = False
    reason: str = ""
    users_mistake: bool = False
    """True if the failure is a mistake of the user, so that a retry would fail as well."""
    resumed: bool = False


ReportStatus = Callable[[RunStatus], None]


def epoch_status(run: str, now: Progress) -> RunStatus:
    return RunStatus(run, "epoch", now.epoch, now.metric, now.at, updates_per_s=now.updates_per_s)


def done_status(run: str, summary: dict[str, Any]) -> RunStatus:
    reached = summary["target_reached"]
    at = summary["time_to_target_s"] if reached else summary["virtual_s"]
    return RunStatus(run, "done", summary["cloud_epochs"], summary["final_metric"] or 0.0, at, reached=reached)


def make_runs(
    assignments: Sequence[Assignment], folder: SweepFolder, report: ReportStatus, pause: Callable[[], bool], width: int
) -> None:
    """Make the runs, `width` at a time on one engine. The end of every run is reported; no failure is raised."""
    with ExitStack() as claims:
        mine: list[tuple[Assignment, dict[str, Any]]] = []
        for one in assignments:
            if not claims.enter_context(folder.claimed(one.id)):
                report(RunStatus(one.id, "elsewhere"))
                continue
            try:
                call = _call(one, folder)
            except (AsyncHflError, OSError) as error:
                _failed(one.id, error, folder, report)
                continue
            if call is None:
                report(RunStatus(one.id, "done"))
            else:
                mine.append((one, call))
                report(RunStatus(one.id, "began", resumed="resume" in call))
        if mine:
            _simulate(mine, folder, report, pause, width)


def _call(one: Assignment, folder: SweepFolder) -> dict[str, Any] | None:
    """Return the arguments of `api.run_together` for the run; None if another process has completed it."""
    if one.restart:
        folder.set_aside(one.id)
    match folder.state(one.id):
        case "done":
            return None
        case "interrupted":
            return {"resume": folder.run(one.id)}
        case "damaged":
            folder.set_aside(one.id)
        case "missing":
            folder.clear(one.id)
    return {**one.arguments, "out": folder.run(one.id)}


def _simulate(
    mine: Sequence[tuple[Assignment, dict[str, Any]]],
    folder: SweepFolder,
    report: ReportStatus,
    pause: Callable[[], bool],
    width: int,
) -> None:
    reported_at: dict[int, float] = {}

    def epoch(number: int, progress: Progress) -> None:
        now = time.monotonic()
        if now - reported_at.get(number, 0.0) < _STATUS_INTERVAL_S:
            return
        reported_at[number] = now
        report(epoch_status(mine[number][0].id, progress))

    def end(number: int, outcome: api.Run | BaseException) -> None:
        run = mine[number][0].id
        if isinstance(outcome, BaseException):
            _failed(run, outcome, folder, report)
        elif not outcome.complete:
            report(RunStatus(run, "paused"))
        else:
            report(done_status(run, outcome.summary))

    if width > 1:
        api.run_together([call for _, call in mine], width=width, on_epoch=epoch, on_end=end, pause=pause)
        return
    for number, (_, call) in enumerate(mine):
        try:
            on_epoch = partial(epoch, number)
            if "resume" in call:
                end(number, api.resume(call["resume"], progress=False, on_epoch=on_epoch, pause=pause))
            else:
                end(number, api.run(**call, progress=False, on_epoch=on_epoch, pause=pause))
        except Exception as error:
            end(number, error)


def _failed(run: str, error: BaseException, folder: SweepFolder, report: ReportStatus) -> None:
    reason = str(error) if isinstance(error, AsyncHflError) else f"{type(error).__name__}: {error}"
    folder.record_failure(run, reason)
    report(RunStatus(run, "failed", reason=reason, users_mistake=isinstance(error, UserError)))
