"""The Python API: `run`, `resume`, `load_run`, `decide_selection`, `decide_association`. The command line is a thin
layer over it."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from async_hfl.assembly import deciding
from async_hfl.assembly.build import build
from async_hfl.assembly.loading import as_table, compose, settings_from
from async_hfl.assembly.settings import Settings
from async_hfl.assembly.user_code import file_of, fingerprint, is_user_code
from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.core.learner import Learner
from async_hfl.core.weights import Weights
from async_hfl.journal.events_file import read_events
from async_hfl.journal.model_file import load_model
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.session import Progress, Session
from async_hfl.simulation.simulator import World

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
) -> Run:
    """Simulate one configuration to its target or its last epoch, into a new run directory.

    `overrides` are `section.key=value` texts, as for `--set`.
    """
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
    built = build(settings, choice.seed, None if start is None else _starter(start))
    where = (
        Path(out) if out is not None else _fresh_path(f"{choice.task}-{choice.method}-{choice.network}-s{choice.seed}")
    )
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
            "start_from": None if start is None else str(start),
            "user_files": {file: fingerprint(file) for file in _user_files(settings, start)},
            "versions": _versions(),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
    made = Run(directory)
    if on_start is not None:
        on_start(made, settings)
    return _simulate(made, built.world, settings, on_epoch)


def resume(
    path: str | Path,
    *,
    on_start: Callable[[Run, Settings], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> Run:
    """Go on with a run that was cut off; a complete one is returned as it is."""
    found = load_run(path)
    if found.complete:
        return found
    manifest = found.manifest
    settings = settings_from(manifest["settings"])
    for file, known in manifest["user_files"].items():
        if fingerprint(file) != known:
            raise UserError(f"{file}: has changed since the run began; put it back, or begin a new run")
    if manifest["versions"] != _versions():
        changed = {k: v for k, v in _versions().items() if manifest["versions"].get(k) != v}
        raise UserError(
            f"the run began under other versions ({manifest['versions']}); now: {changed}: install those first"
        )
    start = manifest["start_from"]
    built = build(settings, manifest["seed"], None if start is None else _starter(Path(start)))
    if on_start is not None:
        on_start(found, settings)
    return _simulate(found, built.world, settings, on_epoch)


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


def _simulate(made: Run, world: World, settings: Settings, on_epoch: Callable[[Progress], None] | None) -> Run:
    world.learner.compile()  # before the clock starts: compiling is not simulating
    with made.directory.locked():
        every = settings.simulation.checkpoint_epochs
        session = Session(world, made.directory, checkpoint_epochs=None if every == "auto" else every)
        try:
            result = session.run(on_epoch)
        finally:
            session.close()
        manifest = made.manifest
        if not settings.warmup.charge:
            _take_off_warmup(result)
        named = {key: manifest[key] for key in ("method", "task", "network", "preset", "seed")}
        made.directory.write_summary({"run": str(made.path), **named, **result})
    return made


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


def _user_files(settings: Settings, start: Path | None) -> list[str]:
    """What a run was given from outside, and cannot go on without."""
    policies = (settings.selection.policy, settings.association.policy)
    files = [file_of(name) for name in policies if is_user_code(name)]
    if settings.association.policy == "fixed":
        files.append(settings.association.file)
    return files + ([] if start is None else [str(start)])


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a source tree that was never installed
            found[package] = "not installed"
    return found
