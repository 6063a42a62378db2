"""A simulated run, new or resumed, from its settings to the summary in its run directory."""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.build.task import EngineSharing
from async_hfl.assembly.runs.privacy_spent import privacy_spent
from async_hfl.assembly.runs.provenance import check_seed, place_of, user_files, user_objects, versions
from async_hfl.assembly.settings.loading import Composed, as_table, settings_from
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import fingerprint
from async_hfl.assembly.user_code.objects import give_again
from async_hfl.core.arrays import Floats
from async_hfl.core.errors import FULL_DISK, RunDirectoryError, UserError
from async_hfl.core.learner import Accelerated, Learner
from async_hfl.core.maths.quantiles import spread
from async_hfl.core.weights import Weights
from async_hfl.journal.model_file import load_model
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.accounting.stability import left_out, quickest_rounds
from async_hfl.simulation.recorded_run import UPDATES_PER_DEVICE, Progress, RecordedRun
from async_hfl.simulation.world import World

_ACCELERATOR_CHECKPOINT_FACTOR = 10
"""Factor on the updates between two checkpoints if vectors stay on an accelerator, where only updates are faster."""


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run directory with its manifest, and the world to simulate."""

    directory: RunDirectory
    settings: Settings
    world: World | None
    """None if the run is complete."""
    rounds: Floats | None = None
    """The expected round of each device, in seconds; None if the run is complete."""


def begin(
    composed: Composed,
    *,
    out: str | Path | None = None,
    start_from: str | Path | None = None,
    sharing: EngineSharing | None = None,
) -> PreparedRun:
    """Prepare a new run. `start_from` is a file with the initial model."""
    choice, settings = composed.choice, composed.settings
    check_seed(choice.seed)
    start = None if start_from is None else Path(start_from)
    built = build(settings, choice.seed, start_from=_model_loader(start), sharing=sharing)
    target = built.world.learner.target
    directory = RunDirectory.create(
        place_of(out, choice, choice.network),
        {
            **msgspec.structs.asdict(choice),
            "settings": as_table(settings),
            "devices": built.network.links.devices,
            "gateways": built.network.links.gateways,
            "model_bytes": built.world.model_bytes,
            "bandwidth": built.bandwidth.rate,
            "bandwidth_demand": built.bandwidth.demand,
            "warnings": [*built.network.warnings, *built.bandwidth.warnings],
            "metric": {"name": target.metric, "direction": target.direction},
            "evaluation": built.clock.manifest(),
            "start_from": None if start is None else str(start),
            "user_files": user_files(settings, start, choice.method),
            "user_objects": user_objects(settings),
            "versions": versions(),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
    return PreparedRun(directory, settings, built.world, quickest_rounds(built.network.links))


def begin_again(
    directory: RunDirectory, *, objects: Mapping[str, object] | None = None, sharing: EngineSharing | None = None
) -> PreparedRun:
    """Prepare the rest of a run that was interrupted. `objects` are those made in Python that the run needs again."""
    manifest = directory.read_manifest()
    settings = settings_from(manifest["settings"])
    if directory.summary.is_file():
        directory.check_lengths()
        return PreparedRun(directory, settings, None)
    give_again(directory.path, manifest.get("user_objects", {}), objects or {})
    for file, known in manifest["user_files"].items():
        if fingerprint(file) != known:
            raise UserError(f"{file}: has changed since the run began; restore it, or start a new run")
    then, now = manifest["versions"], versions()
    if then != now:
        changed = [
            f"{name} {then.get(name)} (now {now.get(name)})" for name in then | now if then.get(name) != now.get(name)
        ]
        raise UserError(f"the run began with other versions: {', '.join(changed)}; install those first")
    start = manifest["start_from"]
    load = _model_loader(None if start is None else Path(start))
    built = build(settings, manifest["seed"], start_from=load, sharing=sharing)
    return PreparedRun(directory, settings, built.world, quickest_rounds(built.network.links))


def recorded_run_for(world: World, directory: RunDirectory, settings: Settings) -> RecordedRun:
    """Return the recorded run of a world, with checkpoints at the configured interval."""
    every, learner = settings.simulation.checkpoint_epochs, world.learner
    fast = isinstance(learner, Accelerated) and learner.on_accelerator
    return RecordedRun(
        world,
        directory,
        checkpoint_epochs=None if every == "auto" else every,
        checkpoint_updates=UPDATES_PER_DEVICE * (_ACCELERATOR_CHECKPOINT_FACTOR if fast else 1),
        ladder=settings.task.ladder,
    )


def simulate(
    prepared: PreparedRun, on_epoch: Callable[[Progress], None] | None = None, pause: Callable[[], bool] | None = None
) -> None:
    """Simulate a run to its end, or until `pause` returns true."""
    world, directory, settings = prepared.world, prepared.directory, prepared.settings
    if world is None:
        return
    world.learner.compile()  # before the clock starts: compilation is not part of the simulation
    with directory.locked(), _room_for(directory):
        with closing(recorded_run_for(world, directory, settings)) as recorded:
            result = recorded.run(on_epoch, pause)
        if result is None:
            return
        if prepared.rounds is not None:
            result["left_out"] = left_out(prepared.rounds, recorded.tally.took_part, result["virtual_s"])
        result |= privacy_spent(settings, recorded.tally.participations)
        if not settings.warmup.charge:
            _subtract_warmup(result)
        details = _details(world.learner, world.cloud.state.weights)
        directory.write_summary({"run": str(directory.path), **choice_of(directory), **result, **details})


@contextmanager
def _room_for(directory: RunDirectory) -> Iterator[None]:
    """Turn a full disk into an error that says how the run goes on. The last checkpoint is whole."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        again = shlex.join(["async-hfl", "resume", str(directory.path)])
        text = (
            f"{directory.path}: no room to write ({error.strerror}); free some space, then `{again}` continues the run"
        )
        raise RunDirectoryError(text) from error


def choice_of(directory: RunDirectory) -> dict[str, Any]:
    """Return the part of the manifest that a summary repeats."""
    manifest = directory.read_manifest()
    return {key: manifest[key] for key in ("method", "task", "network", "preset", "seed")}


def _details(learner: Learner, weights: Weights) -> dict[str, Any]:
    """Return the final model's metric by class and by device."""
    by_device = [
        None if one is None or not math.isfinite(one.metric) else one.metric
        for one in learner.evaluate_by_device(weights)
    ]
    if not by_device:
        return {"by_class": {}, "by_device": None}
    by_class = dict(learner.evaluate(weights).details)
    return {"by_class": by_class, "by_device": {**spread(by_device, learner.target.direction), "values": by_device}}


def _subtract_warmup(result: dict[str, Any]) -> None:
    """Make times and bytes to the target count from the end of the warm-up (`warmup.charge = false`)."""
    for key, free in (
        ("time_to_target_s", "warmup_s"),
        ("first_crossing_s", "warmup_s"),
        ("bytes_to_target", "warmup_bytes"),
        ("models_uplink_bytes_to_target", "warmup_models_uplink_bytes"),
    ):
        if result[key] is not None:
            result[key] -= result[free]
    for step in result["ladder"]:
        for state in filter(None, (step["held"], step["first"])):
            state["time_s"] -= result["warmup_s"]
            state["bytes"] -= result["warmup_bytes"]
            state["models_uplink_bytes"] -= result["warmup_models_uplink_bytes"]


def _model_loader(path: Path | None) -> Callable[[Learner], Weights] | None:
    return None if path is None else lambda learner: load_model(path, learner.layout)
