"""What a worker does, be it a process here or Ray's somewhere: runs, begun or gone on with, one or many at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from async_hfl import api
from async_hfl.core.errors import AsyncHflError, UserError
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.simulation.recorded_run import Progress

_SECONDS_BETWEEN_NEWS = 0.2


@dataclass(frozen=True, slots=True)
class Assignment:
    """One run to do: plain data, so that it can travel."""

    id: str
    arguments: dict[str, Any]
    anew: bool = False
    """Resuming has failed before: begin from nothing."""


@dataclass(frozen=True, slots=True)
class News:
    """What becomes of a run."""

    run: str
    what: Literal["began", "epoch", "done", "paused", "failed", "elsewhere"]
    epoch: int = 0
    metric: float = 0.0
    at: float = 0.0
    """Virtual seconds."""
    updates_per_s: float = 0.0
    reached: bool = False
    reason: str = ""
    users: bool = False
    """The failure is the user's: trying again will not help."""
    resumed: bool = False


Tell = Callable[[News], None]


def do(
    assignments: Sequence[Assignment], folder: SweepFolder, tell: Tell, pause: Callable[[], bool], width: int
) -> None:
    """Do them, `width` at a time with one engine for all; every run's end is told, and none is raised."""
    with ExitStack() as claims:
        mine: list[tuple[Assignment, dict[str, Any]]] = []
        for one in assignments:
            if not claims.enter_context(folder.claimed(one.id)):
                tell(News(one.id, "elsewhere"))
                continue
            try:
                begun = _begin(one, folder)
            except (AsyncHflError, OSError) as error:
                _failed(one.id, error, folder, tell)
                continue
            if begun is None:
                tell(News(one.id, "done"))
            else:
                mine.append((one, begun))
                tell(News(one.id, "began", resumed="resume" in begun))
        if mine:
            _simulate(mine, folder, tell, pause, width)


def _begin(one: Assignment, folder: SweepFolder) -> dict[str, Any] | None:
    """How the run is to be called for; None where somebody has done it meanwhile."""
    if one.anew:
        folder.set_aside(one.id)
    match folder.state(one.id):
        case "done":
            return None
        case "cut":
            return {"resume": folder.run(one.id)}
        case _:
            folder.clear(one.id)
            return {**one.arguments, "out": folder.run(one.id)}


def _simulate(
    mine: Sequence[tuple[Assignment, dict[str, Any]]],
    folder: SweepFolder,
    tell: Tell,
    pause: Callable[[], bool],
    width: int,
) -> None:
    told: dict[int, float] = {}

    def epoch(number: int, progress: Progress) -> None:
        now = time.monotonic()
        if now - told.get(number, 0.0) < _SECONDS_BETWEEN_NEWS:
            return
        told[number] = now
        run = mine[number][0].id
        tell(News(run, "epoch", progress.epoch, progress.metric, progress.at, updates_per_s=progress.updates_per_s))

    def end(number: int, outcome: api.Run | BaseException) -> None:
        run = mine[number][0].id
        if isinstance(outcome, BaseException):
            _failed(run, outcome, folder, tell)
        elif not outcome.complete:
            tell(News(run, "paused"))
        else:
            result = outcome.summary
            there = result["target_reached"]
            at = result["time_to_target_s"] if there else result["virtual_s"]
            tell(News(run, "done", result["cloud_epochs"], result["final_metric"] or 0.0, at, reached=there))

    if width > 1:
        api.run_together([call for _, call in mine], width=width, on_epoch=epoch, on_end=end, pause=pause)
        return
    for number, (_, call) in enumerate(mine):
        try:
            end(number, _alone(call, partial(epoch, number), pause))
        except Exception as error:
            end(number, error)


def _alone(call: dict[str, Any], epoch: Callable[[Progress], None], pause: Callable[[], bool]) -> api.Run:
    if "resume" in call:
        return api.resume(call["resume"], on_epoch=epoch, pause=pause)
    return api.run(**call, on_epoch=epoch, pause=pause)


def _failed(run: str, error: BaseException, folder: SweepFolder, tell: Tell) -> None:
    reason = str(error) if isinstance(error, AsyncHflError) else f"{type(error).__name__}: {error}"
    folder.failed(run, reason)
    tell(News(run, "failed", reason=reason, users=isinstance(error, UserError)))


def folder_at(path: str) -> SweepFolder:
    folder = SweepFolder(Path(path))
    folder.make()
    return folder
