"""The Python API: `run`, `resume`, `load_run`, `decide_selection`, `decide_association`. The command line is a thin
layer over it."""

from __future__ import annotations

import datetime
import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from async_hfl.assembly import deciding
from async_hfl.assembly.build import Share, build
from async_hfl.assembly.loading import as_table, compose, settings_from
from async_hfl.assembly.settings import RunChoice, Settings
from async_hfl.assembly.user_code import file_of, fingerprint, is_user_code
from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.core.holdings import Holdings
from async_hfl.core.learner import Learner
from async_hfl.core.spread import spread
from async_hfl.core.weights import Weights
from async_hfl.journal.events_file import read_events
from async_hfl.journal.model_file import load_model, save_model
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.session import Progress, Session
from async_hfl.simulation.world import World

_VERSIONED = ("async-hfl", "numpy", "jax", "jaxlib", "highspy")
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
        from async_hfl.reports.frames import frame

        return frame(self.directory, table)

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
    made, world, settings = _prepare(
        None,
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
    if on_start is not None:
        on_start(made, settings)
    return _simulate(made, world, settings, on_epoch, pause)


def _prepare(
    share: Share | None,
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
) -> tuple[Run, World, Settings]:
    """A run directory with its manifest, and the world to simulate."""
    composed = compose(
        None if file is None else Path(file),
        task=task,
        method=method,
        network=network,
        preset=preset,
        seed=seed,
        overrides=overrides,
    )
    choice, settings = composed.choice, composed.settings
    check_seed(choice.seed)
    start = None if start_from is None else Path(start_from)
    built = build(settings, choice.seed, None if start is None else _starter(start), share)
    target = built.world.learner.target
    where = _place(out, choice, choice.network)
    directory = RunDirectory.create(
        where,
        {
            "task": choice.task,
            "method": choice.method,
            "network": choice.network,
            "preset": choice.preset,
            "seed": choice.seed,
            "settings": as_table(settings),
            "devices": built.network.links.devices,
            "gateways": built.network.links.gateways,
            "model_bytes": built.world.model_bytes,
            "bandwidth": built.bandwidth,
            "warnings": list(built.network.warnings),
            "metric": {"name": target.metric, "direction": target.direction, "window": target.window},
            "start_from": None if start is None else str(start),
            "user_files": user_files(settings, start),
            "versions": versions(),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
    return Run(directory), built.world, settings


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
    from async_hfl.assembly.centralised import train_task_centrally

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


def holdings(
    file: str | Path | None = None, *, task: str | None = None, seed: int | None = None, overrides: Sequence[str] = ()
) -> Holdings:
    """Who holds what: samples by device and class, as a run with the same settings and seed would deal them."""
    from async_hfl.assembly.holdings import who_holds_what

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
    from async_hfl.learning.together import Together

    slots = min(len(runs), width or len(runs))
    together = Together(slots)
    waiting = iter(range(len(runs)))
    outcomes: dict[int, Run | BaseException] = {}
    # One after the other: whatever reads settings and data need not be safe among threads.
    preparing = Lock()

    def one(slot: int, number: int) -> Run:
        arguments, share = dict(runs[number]), partial(together.trainer, slot)
        with preparing:
            again = arguments.get("resume")
            made, world, settings = _prepare(share, **arguments) if again is None else _prepare_again(again, share)
        if world is None:
            return made
        return _simulate(made, world, settings, None if on_epoch is None else partial(on_epoch, number), pause)

    def simulate(slot: int) -> None:
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

    threads = [Thread(target=simulate, args=(slot,), name=f"slot {slot}") for slot in range(slots)]
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
    from async_hfl.assembly import cluster as local
    from async_hfl.assembly.device_classes import device_classes

    kinds = device_classes(classes, devices)
    options = local.ClusterOptions(gateways, len(kinds), devices_per_process, insecure, proxies, kinds)
    asked = None if file is None else Path(file)
    composed, sets, usual = local.composed_for(options, asked, task, method, seed, list(overrides))
    choice = composed.choice
    check_seed(choice.seed)
    where = _place(out, choice, "cluster")
    files = user_files(composed.settings)
    manifest = {**local.manifest_of(composed, options), "user_files": files, "versions": versions()}
    made = Run(RunDirectory.create(where, manifest))
    if on_start is not None:
        on_start(made, composed.settings, usual)
    arguments = [*([] if asked is None else [str(asked.resolve())]), *local.arguments(composed, sets)]
    with made.directory.locked():
        result = local.run_cluster(options, made.directory, composed, arguments, on_progress)
        made.directory.amend_manifest(metric=local.metric_of(made.path))
        named = {key: manifest[key] for key in ("method", "task", "network", "preset", "seed")}
        made.directory.write_summary({"run": str(made.path), **named, **result})
    return made


def collect(out: str | Path, sources: Sequence[str | Path]) -> Run:
    """The journals of a deployment's nodes (state directories, or folders of them) as one run directory."""
    from async_hfl.assembly.collected_run import collected_run, states_under

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
    found, world, settings = _prepare_again(path, None)
    if world is None:
        return found
    if on_start is not None:
        on_start(found, settings)
    return _simulate(found, world, settings, on_epoch, pause)


def _prepare_again(path: str | Path, share: Share | None) -> tuple[Run, World | None, Settings]:
    """The same of a run that was begun before; no world where it is complete."""
    found = load_run(path)
    manifest = found.manifest
    settings = settings_from(manifest["settings"])
    if found.complete:
        return found, None, settings
    for file, known in manifest["user_files"].items():
        if fingerprint(file) != known:
            raise UserError(f"{file}: has changed since the run began; put it back, or begin a new run")
    if manifest["versions"] != versions():
        changed = {k: v for k, v in versions().items() if manifest["versions"].get(k) != v}
        raise UserError(
            f"the run began under other versions ({manifest['versions']}); now: {changed}: install those first"
        )
    start = manifest["start_from"]
    built = build(settings, manifest["seed"], None if start is None else _starter(Path(start)), share)
    return found, built.world, settings


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
    return deciding.decide_selection(problem, exact=exact)


def decide_association(problem: str | Path | Mapping[str, Any], *, exact: bool = False) -> dict[str, Any]:
    """One association (Eq. 11) from a file or as data: `association`, `objective`, `bound`, `gap`, `seconds`."""
    return deciding.decide_association(problem, exact=exact)


def _simulate(
    made: Run,
    world: World,
    settings: Settings,
    on_epoch: Callable[[Progress], None] | None,
    pause: Callable[[], bool] | None,
) -> Run:
    world.learner.compile()  # before the clock starts: compiling is not simulating
    with made.directory.locked():
        every = settings.simulation.checkpoint_epochs
        session = Session(world, made.directory, checkpoint_epochs=None if every == "auto" else every)
        try:
            result = session.run(on_epoch, pause)
        finally:
            session.close()
        if result is None:
            return made
        manifest = made.manifest
        if not settings.warmup.charge:
            _take_off_warmup(result)
        named = {key: manifest[key] for key in ("method", "task", "network", "preset", "seed")}
        finer = _finer(world.learner, world.cloud.state.weights)
        made.directory.write_summary({"run": str(made.path), **named, **result, **finer})
    return made


def _finer(learner: Learner, weights: Weights) -> dict[str, Any]:
    """What the mean over everybody hides: the final model by class and by device."""
    by_device = [
        None if one is None or not math.isfinite(one.metric) else one.metric
        for one in learner.evaluate_by_device(weights)
    ]
    if not by_device:
        return {"by_class": {}, "by_device": None}
    by_class = dict(learner.evaluate(weights).details)
    return {"by_class": by_class, "by_device": {**spread(by_device, learner.target.direction), "values": by_device}}


def _take_off_warmup(result: dict[str, Any]) -> None:
    """`warmup.charge = false`: times and bytes to the target are counted from the end of the warm-up."""
    for key, free in (
        ("time_to_target_s", "warmup_s"),
        ("first_crossing_s", "warmup_s"),
        ("bytes_to_target", "warmup_bytes"),
        ("models_uplink_bytes_to_target", "warmup_models_uplink_bytes"),
    ):
        if result[key] is not None:
            result[key] -= result[free]


def _starter(path: Path) -> Callable[[Learner], Weights]:
    return lambda learner: load_model(path, learner.layout)


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise UserError(f"seed {seed}: must be a whole number from 0 to 2^63 - 1")


def _fresh_path(name: str) -> Path:
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = Path("runs") / f"{name}-{stamp}"
    number = 1
    while path.exists():
        number += 1
        path = path.with_name(f"{name}-{stamp}-{number}")
    return path


def _place(out: str | Path | None, choice: RunChoice, network: str) -> Path:
    if out is not None:
        return Path(out)
    task = Path(file_of(choice.task)).stem if is_user_code(choice.task) else choice.task
    return _fresh_path(f"{task}-{choice.method}-{network}-s{choice.seed}")


def user_files(settings: Settings, start: Path | None = None) -> dict[str, str]:
    """What a run was given from outside and cannot go on without, with its fingerprint."""
    named = (settings.task.name, settings.selection.policy, settings.association.policy)
    network = settings.network
    files = [network.path, network.download_path, network.fleet if network.fleet.endswith(".csv") else ""]
    files.append(settings.life.file)
    if settings.association.policy == "fixed":
        files.append(settings.association.file)
    given = [
        *(file_of(name) for name in named if is_user_code(name)),
        *(file for file in files if file),
        *([] if start is None else [str(start)]),
    ]
    return {file: fingerprint(file) for file in given}


@cache
def _installed() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a source tree that was never installed
            found[package] = "not installed"
    return found


def versions() -> dict[str, str]:
    """What the bits of a result may depend on besides its settings."""
    return dict(_installed())
