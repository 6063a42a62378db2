"""The Python API. The command line is a thin layer over it.

`file` is a run file (TOML); `overrides` are texts `section.key=value`, as for `--set`; `on_start` is called before the
first event and `on_epoch` after every evaluation of a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from async_hfl.assembly.build.task import EngineSharing
from async_hfl.assembly.runs.provenance import check_seed, place_of, user_files, versions
from async_hfl.assembly.runs.simulated_run import PreparedRun, begin, begin_again, choice_of, simulate
from async_hfl.assembly.settings.loading import Composed, compose
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.data_distribution import DataDistribution
from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.core.extras import check_installed
from async_hfl.journal.model_file import save_model
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.recorded_run import Progress

_MANIFEST_FIELDS = ("task", "method", "network", "preset", "seed", "settings", "start_from", "user_files", "versions")
RESULT_FIELDS = (
    *("run", "method", "task", "network", "seed", "target_reached", "time_to_target_s", "bytes_to_target"),
    *("final_metric", "cloud_epochs", "device_updates", "updates_dropped"),
    *("virtual_s", "wall_s", "digest", "order_digest"),
)
"""The part of a run's summary that `--json` prints."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory, complete or not."""

    directory: RunDirectory

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def manifest(self) -> dict[str, Any]:
        return self.directory.read_manifest()

    @property
    def complete(self) -> bool:
        """True if the run is over and its journal has all its bytes."""
        return self.directory.summary.is_file() and self.directory.damage() is None

    @property
    def summary(self) -> dict[str, Any]:
        """The result of a run that is over, even if its journal has lost data since."""
        found = self.directory.read_summary()
        if found is None:
            raise RunDirectoryError(f"{self.path}: not complete; `async-hfl resume {self.path}` continues it")
        return {**found, "run": str(self.path)}  # the directory may have been moved

    @property
    def epochs(self) -> list[dict[str, float]]:
        """One row per evaluated cloud epoch."""
        return list(self.directory.read_epochs())

    def events(self, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Iterate over the records as (kind, fields)."""
        return self.directory.read_events(*kinds)

    def frame(self, table: str) -> Any:
        """Return a table as a pandas data frame (needs async-hfl[frames]): epochs, classes, jobs, uploads, selections,
        associations, moves, life, messages, devices or settings."""
        from async_hfl.reports.export.table_formats import data_frame

        return data_frame(self.directory, table)

    def epochs_frame(self) -> Any:
        """One row per evaluated cloud epoch."""
        return self.frame("epochs")

    def jobs_frame(self) -> Any:
        """One row per finished job: device, times, staleness, reason of its end."""
        return self.frame("jobs")

    def uploads_frame(self) -> Any:
        """One row per model that a gateway sent to the cloud."""
        return self.frame("uploads")

    def selections_frame(self) -> Any:
        """One row per selection at a gateway."""
        return self.frame("selections")

    def messages_frame(self) -> Any:
        """One row per message, with its bytes by kind."""
        return self.frame("messages")

    def devices_frame(self) -> Any:
        """One row per device: times, energy, metric of the final model on its own data."""
        return self.frame("devices")

    @property
    def model(self) -> Path:
        """The newest global model as a safetensors file."""
        if not self.directory.model.is_file():
            raise RunDirectoryError(f"{self.path}: no model yet; the first checkpoint writes it")
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
    """Simulate one configuration until its target or its last epoch, into a new run directory.

    If `pause` returns True after an evaluation, the run saves a checkpoint and is returned incomplete, to be resumed.
    A `PauseRequest` (`async_hfl.simulation.pausing`), made by a signal handler, pauses it within seconds.
    """
    chosen = {"task": task, "method": method, "network": network, "preset": preset, "seed": seed}
    composed = _composed(file, **chosen, overrides=overrides)
    return _simulate(begin(composed, out=out, start_from=start_from), on_start, on_epoch, pause)


def _composed(file: str | Path | None, **chosen: Any) -> Composed:
    composed = compose(None if file is None else Path(file), **chosen)
    check_seed(composed.choice.seed)
    return composed


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


@dataclass(frozen=True, slots=True)
class Central:
    """The result of centralised training: the upper bound for federated runs."""

    task: str
    metric: str
    curve: tuple[dict[str, float], ...]
    """One row per epoch: epoch, learning_rate, loss, metric, test_loss."""
    best: float
    final: float
    naive: float | None
    """The metric of predicting the last reading again, for tasks whose inputs are time series."""
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
    """Train a task on all its data in one place, with the same model, loss and engine (settings: [central]).

    `model` is a file for the final weights.
    """
    from async_hfl.assembly.runs.central_run import train_task_centrally

    composed = _composed(file, task=task, seed=seed, overrides=overrides)
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
    """Return the number of samples by device and class that a run with the same settings and seed would have."""
    from async_hfl.assembly.build.task import build_data_distribution

    composed = _composed(file, task=task, seed=seed, overrides=overrides)
    return build_data_distribution(composed.settings, composed.choice.seed)


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
                prepared = begin(
                    _composed(arguments.pop("file", None), **arguments), out=out, start_from=start_from, sharing=share
                )
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
    """Run a real deployment on this machine, with processes, sockets and certificates, into a new run directory.

    `classes` are kinds of devices, "COUNT:SLOWDOWN[:BYTES/S[:DELAY_S]]". `on_start` also gets the settings that were
    adapted to the size of the cluster.
    """
    check_installed("deployment", "a cluster")
    from async_hfl.assembly.deployments import cluster as local
    from async_hfl.assembly.deployments.device_classes import device_classes

    kinds = device_classes(classes, devices)
    options = local.ClusterOptions(gateways, len(kinds), devices_per_process, insecure, proxies, kinds)
    asked = None if file is None else Path(file)
    composed, sets, usual = local.composed_for(options, asked, task, method, seed, list(overrides))
    choice = composed.choice
    check_seed(choice.seed)
    where = place_of(out, choice, "cluster")
    files = user_files(composed.settings, method=choice.method)
    manifest = {**local.manifest_of(composed, options), "user_files": files, "versions": versions()}
    made = Run(RunDirectory.create(where, manifest))
    if on_start is not None:
        on_start(made, composed.settings, usual)
    arguments = [*([] if asked is None else [str(asked.resolve())]), *local.arguments(composed, sets)]
    with made.directory.locked():
        result = local.run_cluster(options, made.directory, composed, arguments, on_progress)
        made.directory.amend_manifest(**local.facts_for_manifest(made.path))
        made.directory.write_summary({"run": str(made.path), **choice_of(made.directory), **result})
    return made


def collect(out: str | Path, sources: Sequence[str | Path]) -> Run:
    """Merge the journals of a deployment's nodes (state directories, or folders of them) into one run directory."""
    check_installed("deployment", "collecting journals")
    from async_hfl.assembly.deployments.collected_run import collected_run, states_under

    states = []
    for source in map(Path, sources):
        found = states_under(source)
        if not found:
            raise UserError(f"{source}: neither the state directory of a node nor a folder of them")
        states += found
    return Run(collected_run(Path(out), states, versions()))


def resume(
    path: str | Path,
    *,
    on_start: Callable[[Run, Settings], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
    pause: Callable[[], bool] | None = None,
) -> Run:
    """Continue an interrupted run; a complete one is returned unchanged."""
    return _simulate(begin_again(load_run(path).directory), on_start, on_epoch, pause)


def load_run(path: str | Path) -> Run:
    """Open a run directory, complete or not."""
    found = Run(RunDirectory.open(Path(path)))
    missing = [key for key in _MANIFEST_FIELDS if key not in found.manifest]
    if missing:
        raise RunDirectoryError(
            f"{found.directory.manifest}: has no {missing[0]!r}, so it was not written by async-hfl"
        )
    return found
