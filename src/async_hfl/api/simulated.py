"""Simulated runs: one, several at once on one engine, and the rest of one that was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from async_hfl.api.arguments import Network, Task, composed_of, named, objects_of
from async_hfl.api.stored_run import Run, load_run
from async_hfl.assembly.build.task import EngineSharing
from async_hfl.assembly.runs.simulated_run import PreparedRun, begin, begin_again, simulate
from async_hfl.assembly.settings.overrides import Overrides
from async_hfl.assembly.settings.schema import Settings
from async_hfl.reports.export.trackers import RunTracker
from async_hfl.reports.terminal.notebook import in_notebook
from async_hfl.reports.terminal.run_view import RunView
from async_hfl.simulation.recorded_run import Progress


def run(
    file: str | Path | None = None,
    *,
    task: Task | None = None,
    method: str | None = None,
    network: Network | None = None,
    preset: str | None = None,
    seed: int | None = None,
    overrides: Overrides = (),
    out: str | Path | None = None,
    start_from: str | Path | None = None,
    tensorboard: str | Path | None = None,
    mlflow: str | None = None,
    progress: bool | None = None,
    on_start: Callable[[Run, Settings], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
    pause: Callable[[], bool] | None = None,
) -> Run:
    """Simulate one configuration until its target or its last epoch, into a new run directory.

    `file` is a run file (TOML), and `overrides` changes settings, as `--set` does. A task, a network and the values of
    policies and aggregation rules may be objects made in Python; the manifest records their code and their digest.
    `progress` shows a line of progress (default: in notebooks). `tensorboard` is a directory, `mlflow` a tracking URI.

    `on_start` is called before the first event and `on_epoch` after every evaluation. If `pause` returns True then, the
    run saves a checkpoint and is returned incomplete, to be resumed. A `PauseRequest`
    (`async_hfl.simulation.pausing`), made by a signal handler, pauses it within seconds.

    >>> run = async_hfl.run(task="null", network="uniform", overrides={"task.devices": 20, "cloud.epochs": 3})
    >>> run.summary["cloud_epochs"], run.complete
    (3, True)
    """
    tracker = RunTracker(None if tensorboard is None else Path(tensorboard), mlflow)
    given = named(task, network, overrides)
    chosen = {"method": method, "preset": preset, "seed": seed}
    composed = composed_of(file, given.task, given.network, overrides=given.overrides, **chosen)
    prepared = begin(composed, out=out, start_from=start_from)

    def started(run: Run, settings: Settings) -> None:
        if on_start is not None:
            on_start(run, settings)
        tracker.started(run.path.name, run.manifest)

    def epoch(now: Progress) -> None:
        if on_epoch is not None:
            on_epoch(now)
        tracker.epoch(now)

    made = None
    try:
        made = _shown(prepared, progress, started, epoch, pause)
    finally:
        tracker.ended(None if made is None or not made.complete else made.directory)
    return made


def resume(
    path: str | Path,
    *,
    task: Task | None = None,
    network: Network | None = None,
    overrides: Mapping[str, object] | None = None,
    progress: bool | None = None,
    on_start: Callable[[Run, Settings], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
    pause: Callable[[], bool] | None = None,
) -> Run:
    """Continue an interrupted run; a complete one is returned unchanged.

    A run whose task, network, policies or aggregation rules were made in Python needs the same objects again, under the
    names that they had in `run`: `task`, `network`, and those in `overrides`. Their digests are compared.
    """
    given = objects_of(task, network, overrides or {})
    prepared = begin_again(load_run(path).directory, objects=given)
    return _shown(prepared, progress, on_start, on_epoch, pause)


def _shown(
    prepared: PreparedRun,
    progress: bool | None,
    on_start: Callable[[Run, Settings], None] | None,
    on_epoch: Callable[[Progress], None] | None,
    pause: Callable[[], bool] | None,
) -> Run:
    """Simulate a run; on demand with a line of progress."""
    if not (in_notebook() if progress is None else progress):
        return _simulate(prepared, on_start, on_epoch, pause)
    with RunView(quiet=False) as view:

        def started(made: Run, settings: Settings) -> None:
            view.started(made, settings)
            if on_start is not None:
                on_start(made, settings)

        def epoch(now: Progress) -> None:
            view.epoch(now)
            if on_epoch is not None:
                on_epoch(now)

        return _simulate(prepared, started, epoch, pause)


def _simulate(
    prepared: PreparedRun,
    on_start: Callable[[Run, Settings], None] | None,
    on_epoch: Callable[[Progress], None] | None,
    pause: Callable[[], bool] | None,
) -> Run:
    made = Run(prepared.directory)
    if on_start is not None and prepared.world is not None:
        on_start(made, prepared.settings)
    simulate(prepared, on_epoch, pause)
    return made


def run_together(
    runs: Sequence[Mapping[str, Any]],
    *,
    width: int | None = None,
    on_epoch: Callable[[int, Progress], None] | None = None,
    on_end: Callable[[int, Run | BaseException], None] | None = None,
    pause: Callable[[], bool] | None = None,
) -> list[Run | BaseException]:
    """Simulate several runs at once on one engine, which keeps a GPU busy even if each run has few jobs in flight.

    Each mapping holds the arguments of `run`, or {"resume": PATH}. `width` runs (default: all) are in progress at a
    time. Results are the same as those of separate runs: to the bit on a CPU, up to rounding on a GPU. A run that fails
    leaves its exception in its place in the result; the others continue.
    """
    from async_hfl.learning.engine.shared_engine import SharedEngine

    slots = min(len(runs), width or len(runs))
    engine = SharedEngine(slots)
    waiting = iter(range(len(runs)))
    outcomes: dict[int, Run | BaseException] = {}
    # Settings and data are read by one thread at a time, because that code is not thread-safe.
    preparing = Lock()

    def one(slot: int, number: int) -> Run:
        arguments, share = dict(runs[number]), EngineSharing(partial(engine.trainer, slot), slots)
        with preparing:
            if (path := arguments.pop("resume", None)) is not None:
                prepared = begin_again(load_run(path).directory, sharing=share)
            else:
                out, start_from = arguments.pop("out", None), arguments.pop("start_from", None)
                task, network = arguments.pop("task", None), arguments.pop("network", None)
                given = named(task, network, arguments.pop("overrides", ()))
                file = arguments.pop("file", None)
                composed = composed_of(file, given.task, given.network, overrides=given.overrides, **arguments)
                prepared = begin(composed, out=out, start_from=start_from, sharing=share)
        return _simulate(prepared, None, None if on_epoch is None else partial(on_epoch, number), pause)

    def fill(slot: int) -> None:
        try:
            while (number := engine.in_turn(slot, lambda: next(waiting, None))) is not None:
                try:
                    outcomes[number] = one(slot, number)
                except BaseException as error:
                    outcomes[number] = error
                if on_end is not None:
                    on_end(number, outcomes[number])
        finally:
            engine.leave(slot)

    threads = [Thread(target=fill, args=(slot,), name=f"slot {slot}") for slot in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcomes[number] for number in range(len(runs))]
