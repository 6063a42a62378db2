"""The Python API: `run`, `resume`, `load_run`, `decide_selection`, `decide_association`. The command line is a thin
layer over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from async_hfl.assembly.build.simulation import Share
from async_hfl.assembly.runs import decide
from async_hfl.assembly.runs.provenance import check_seed, place_of, user_files, versions
from async_hfl.assembly.runs.simulated_run import PreparedRun, begin, begin_again, called, simulate
from async_hfl.assembly.settings.loading import compose
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.data_distribution import DataDistribution
from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.journal.events_file import read_events
from async_hfl.journal.model_file import save_model
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.recorded_run import Progress

_MANIFEST_FIELDS = (
    "task",
    "method",
    "network",
    "preset",
    "seed",
    "settings",
    "start_from",
    "user_files",
    "versions",
)
RESULT_FIELDS = (
    "run",
    "method",
    "task",
    "network",
    "seed",
    "target_reached",
    "time_to_target_s",
    "bytes_to_target",
    "final_metric",
    "cloud_epochs",
    "device_updates",
    "updates_dropped",
    "virtual_s",
    "wall_s",
    "digest",
    "order_digest",
)


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk, complete or not."""

    directory: RunDirectory

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def manifest(self) -> dict[str, Any]:
        return self.directory.read_manifest()

    @property
    def complete(self) -> bool:
        return self.directory.summary.is_file()

    @property
    def summary(self) -> dict[str, Any]:
        """The result. A run that was cut off has none: resume it."""
        found = self.directory.read_summary()
        if found is None:
            raise RunDirectoryError(f"{self.path}: not complete; go on with `async-hfl resume {self.path}`")
        return {**found, "run": str(self.path)}  # it may have been moved since

    @property
    def epochs(self) -> list[dict[str, float]]:
        """One row per evaluated cloud epoch."""
        return list(self.directory.read_epochs())

    def events(self, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The event stream: (kind, fields)."""
        return read_events(self.directory.events, *kinds)

    def frame(self, table: str) -> Any:
        """A table as a pandas data frame (async-hfl[frames]): epochs, classes, jobs, uploads, selections, associations,
        moves, life, messages, devices or settings."""
        from async_hfl.reports.export.table_formats import data_frame

        return data_frame(self.directory, table)

    def epochs_frame(self) -> Any:
        """One row per evaluated cloud epoch."""
        return self.frame("epochs")

    def jobs_frame(self) -> Any:
        """One row per job that ended: who, how, when, how stale."""
        return self.frame("jobs")

    def uploads_frame(self) -> Any:
        """One row per model that a gateway sent to the cloud."""
        return self.frame("uploads")

    def selections_frame(self) -> Any:
        """One row per selection at a gateway."""
        return self.frame("selections")

    def messages_frame(self) -> Any:
        """One row per message: the byte ledger, entry by entry."""
        return self.frame("messages")

    def devices_frame(self) -> Any:
        """One row per device: times, energy, the final model on its own data."""
        return self.frame("devices")

    @property
    def model(self) -> Path:
        """The newest global model as a safetensors file."""
        if not self.directory.model.is_file():
            raise RunDirectoryError(f"{self.path}: no model yet; it comes with the first checkpoint")
        return self.directory.model


def run(
    file: str | Path | None = None,
    *,
    task: str | None = None,
    method: str | None = None,
    network: str | None = None,
    preset: str | None = None,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    start_from: str | Path | None = None,
    on_start: Callable[[Run, Settings], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
    pause: Callable[[], bool] | None = None,
) -> Run:
    """Simulate one configuration to its target or its last epoch, into a new run directory.

    `overrides` are `section.key=value` texts, as for `--set`. `pause` is asked after every evaluation: where it says
    yes, the run saves a checkpoint and comes back incomplete, to be resumed.
    """
    begun = _begin(
        file,
        task=task,
        method=method,
        network=network,
        preset=preset,
        seed=seed,
        overrides=overrides,
        out=out,
        start_from=start_from,
    )
    return _go_on(begun, on_start, on_epoch, pause)


def _begin(
    file: str | Path | None = None,
    *,
    out: str | Path | None = None,
    start_from: str | Path | None = None,
    share: Share | None = None,
    **chosen: Any,
) -> PreparedRun:
    return begin(compose(None if file is None else Path(file), **chosen), out, start_from, share)


def _go_on(
    begun: PreparedRun,
    on_start: Callable[[Run, Settings], None] | None,
    on_epoch: Callable[[Progress], None] | None,
    pause: Callable[[], bool] | None,
) -> Run:
    made = Run(begun.directory)
    if on_start is not None and begun.world is not None:
        on_start(made, begun.settings)
    simulate(begun, on_epoch, pause)
    return made


@dataclass(frozen=True, slots=True)
class Central:
    """Centralised training, done: the upper bound that federated runs are compared with."""

    task: str
    metric: str
    curve: tuple[dict[str, float], ...]
    """One row an epoch: epoch, learning_rate, loss, metric, test_loss."""
    best: float
    final: float
    naive: float | None
    """What "the same as the last reading" reaches, where the inputs are series."""
    wall_s: float


def central(
    file: str | Path | None = None,
    *,
    task: str | None = None,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    model: str | Path | None = None,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
) -> Central:
    """Train a task as if all its data lay in one place, with the same model, loss and engine.

    How is in the settings' section [central]. `model` is a file to save the last weights to.
    """
    from async_hfl.assembly.runs.central_run import train_task_centrally

    composed = compose(None if file is None else Path(file), task=task, seed=seed, overrides=overrides)
    check_seed(composed.choice.seed)
    began = time.perf_counter()
    trained = train_task_centrally(composed.settings, composed.choice.seed, on_epoch)
    if model is not None:
        save_model(Path(model), trained.layout, trained.weights)
    values = [row["metric"] for row in trained.curve]
    return Central(
        task=composed.choice.task,
        metric=trained.metric,
        curve=tuple(trained.curve),
        best=max(values) if trained.higher_is_better else min(values),
        final=values[-1],
        naive=trained.naive,
        wall_s=time.perf_counter() - began,
    )


def data_distribution(
    file: str | Path | None = None, *, task: str | None = None, seed: int | None = None, overrides: Sequence[str] = ()
) -> DataDistribution:
    """Who holds what: samples by device and class, as a run with the same settings and seed would deal them."""
    from async_hfl.assembly.build.data_distribution import who_holds_what

    composed = compose(None if file is None else Path(file), task=task, seed=seed, overrides=overrides)
    check_seed(composed.choice.seed)
    return who_holds_what(composed.settings, composed.choice.seed)


def run_together(
    runs: Sequence[Mapping[str, Any]],
    *,
    width: int | None = None,
    on_epoch: Callable[[int, Progress], None] | None = None,
    on_end: Callable[[int, Run | BaseException], None] | None = None,
    pause: Callable[[], bool] | None = None,
) -> list[Run | BaseException]:
    """Several runs at once that share one engine: a GPU stays full though each run has few devices in flight.

    Each mapping holds the arguments of `run`, or {"resume": PATH}. `width` of them (default: all) go on at a time; when
    one has ended the next takes its place. Results are those of the runs alone: to the bit on CPU, but for rounding on
    a GPU. A run that fails leaves its exception in its place, the others go on.
    """
    from async_hfl.learning.engine.shared_engine import SharedEngine

    slots = min(len(runs), width or len(runs))
    together = SharedEngine(slots)
    waiting = iter(range(len(runs)))
    outcomes: dict[int, Run | BaseException] = {}
    # One after the other: whatever reads settings and data need not be safe among threads.
    preparing = Lock()

    def one(slot: int, number: int) -> Run:
        arguments, share = dict(runs[number]), Share(partial(together.trainer, slot), slots)
        with preparing:
            again = arguments.get("resume")
            found = _begin(**arguments, share=share) if again is None else begin_again(load_run(again).directory, share)
        return _go_on(found, None, None if on_epoch is None else partial(on_epoch, number), pause)

    def fill(slot: int) -> None:
        try:
            while (number := together.in_turn(slot, lambda: next(waiting, None))) is not None:
                try:
                    outcomes[number] = one(slot, number)
                except BaseException as error:
                    outcomes[number] = error
                if on_end is not None:
                    on_end(number, outcomes[number])
        finally:
            together.leave(slot)

    threads = [Thread(target=fill, args=(slot,), name=f"slot {slot}") for slot in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcomes[number] for number in range(len(runs))]


def cluster(
    file: str | Path | None = None,
    *,
    gateways: int = 2,
    devices: int | None = None,
    devices_per_process: int = 4,
    task: str | None = None,
    method: str | None = None,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    insecure: bool = False,
    proxies: bool = False,
    classes: Sequence[str] = (),
    on_start: Callable[[Run, Settings, Sequence[str]], None] | None = None,
    on_progress: Callable[[Any], None] | None = None,
) -> Run:
    """A real deployment on this machine: processes, sockets, certificates, state on disk; into a new run directory.

    `classes`: kinds of devices, "COUNT:SLOWDOWN[:BYTES/S[:DELAY_S]]". `on_start` is also told which settings were
    chosen for so small a network.
    """
    from async_hfl.assembly.deployments import cluster as local
    from async_hfl.assembly.deployments.device_classes import device_classes

    kinds = device_classes(classes, devices)
    options = local.ClusterOptions(gateways, len(kinds), devices_per_process, insecure, proxies, kinds)
    asked = None if file is None else Path(file)
    composed, sets, usual = local.composed_for(options, asked, task, method, seed, list(overrides))
    choice = composed.choice
    check_seed(choice.seed)
    where = place_of(out, choice, "cluster")
    files = user_files(composed.settings)
    manifest = {**local.manifest_of(composed, options), "user_files": files, "versions": versions()}
    made = Run(RunDirectory.create(where, manifest))
    if on_start is not None:
        on_start(made, composed.settings, usual)
    arguments = [*([] if asked is None else [str(asked.resolve())]), *local.arguments(composed, sets)]
    with made.directory.locked():
        result = local.run_cluster(options, made.directory, composed, arguments, on_progress)
        made.directory.amend_manifest(metric=local.metric_of(made.path))
        made.directory.write_summary({"run": str(made.path), **called(made.directory), **result})
    return made


def collect(out: str | Path, sources: Sequence[str | Path]) -> Run:
    """The journals of a deployment's nodes (state directories, or folders of them) as one run directory."""
    from async_hfl.assembly.deployments.collected_run import collected_run, states_under

    states = []
    for source in map(Path, sources):
        found = states_under(source)
        if not found:
            raise UserError(f"{source}: neither a node's state directory nor a folder of such")
        states += found
    return Run(collected_run(Path(out), states, versions()))


def resume(
    path: str | Path,
    *,
    on_start: Callable[[Run, Settings], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
    pause: Callable[[], bool] | None = None,
) -> Run:
    """Go on with a run that was cut off; a complete one is returned as it is."""
    return _go_on(begin_again(load_run(path).directory), on_start, on_epoch, pause)


def load_run(path: str | Path) -> Run:
    """A run that was made before, complete or not."""
    found = Run(RunDirectory.open(Path(path)))
    missing = [key for key in _MANIFEST_FIELDS if key not in found.manifest]
    if missing:
        raise RunDirectoryError(
            f"{found.directory.manifest}: has no {missing[0]!r}, so it was not written by async-hfl"
        )
    return found


def decide_selection(problem: str | Path | Mapping[str, Any], *, exact: bool = False) -> dict[str, Any]:
    """One selection (Eq. 10) from a file or as data: `selected`, `objective`, `bound`, `gap`, `seconds`."""
    return decide.decide_selection(problem, exact=exact)


def decide_association(problem: str | Path | Mapping[str, Any], *, exact: bool = False) -> dict[str, Any]:
    """One association (Eq. 11) from a file or as data: `association`, `objective`, `bound`, `gap`, `seconds`."""
    return decide.decide_association(problem, exact=exact)
