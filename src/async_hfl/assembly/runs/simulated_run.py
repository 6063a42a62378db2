"""One simulated run, from its settings to its summary, in a directory; begun, or gone on with."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_hfl.assembly.build.simulation import Share, build
from async_hfl.assembly.runs.provenance import check_seed, place_of, user_files, versions
from async_hfl.assembly.settings.loading import Composed, as_table, settings_from
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import fingerprint
from async_hfl.core.errors import UserError
from async_hfl.core.learner import Accelerated, Learner
from async_hfl.core.maths.quantiles import spread
from async_hfl.core.weights import Weights
from async_hfl.journal.model_file import load_model
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.recorded_run import UPDATES_PER_DEVICE, Progress, RecordedRun
from async_hfl.simulation.world import World

_MORE_UPDATES = 10
"""Times as many between checkpoints, where vectors stay on an accelerator."""


@dataclass(frozen=True, slots=True)
class PreparedRun:
    directory: RunDirectory
    settings: Settings
    world: World | None
    """What is to be simulated; none where the run is complete."""


def begin(
    composed: Composed, out: str | Path | None = None, start_from: str | Path | None = None, share: Share | None = None
) -> PreparedRun:
    """A new run directory with its manifest, and the world to simulate."""
    choice, settings = composed.choice, composed.settings
    check_seed(choice.seed)
    start = None if start_from is None else Path(start_from)
    built = build(settings, choice.seed, None if start is None else _starter(start), share)
    target = built.world.learner.target
    where = place_of(out, choice, choice.network)
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
    return PreparedRun(directory, settings, built.world)


def begin_again(directory: RunDirectory, share: Share | None = None) -> PreparedRun:
    """The same of a run that was cut off."""
    manifest = directory.read_manifest()
    settings = settings_from(manifest["settings"])
    if directory.summary.is_file():
        return PreparedRun(directory, settings, None)
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
    return PreparedRun(directory, settings, built.world)


def session_for(world: World, directory: RunDirectory, settings: Settings) -> RecordedRun:
    """A checkpoint costs as much wherever vectors are, but on an accelerator more updates are made in that time."""
    every, learner = settings.simulation.checkpoint_epochs, world.learner
    fast = isinstance(learner, Accelerated) and learner.on_accelerator
    return RecordedRun(
        world,
        directory,
        checkpoint_epochs=None if every == "auto" else every,
        checkpoint_updates=_MORE_UPDATES * UPDATES_PER_DEVICE if fast else UPDATES_PER_DEVICE,
    )


def simulate(
    begun: PreparedRun, on_epoch: Callable[[Progress], None] | None = None, pause: Callable[[], bool] | None = None
) -> None:
    """To the end, or until `pause` says so."""
    world, directory, settings = begun.world, begun.directory, begun.settings
    if world is None:
        return
    world.learner.compile()  # before the clock starts: compiling is not simulating
    with directory.locked():
        session = session_for(world, directory, settings)
        try:
            result = session.run(on_epoch, pause)
        finally:
            session.close()
        if result is None:
            return
        if not settings.warmup.charge:
            _take_off_warmup(result)
        finer = _finer(world.learner, world.cloud.state.weights)
        directory.write_summary({"run": str(directory.path), **called(directory), **result, **finer})


def called(directory: RunDirectory) -> dict[str, Any]:
    """What a result repeats of its manifest."""
    manifest = directory.read_manifest()
    return {key: manifest[key] for key in ("method", "task", "network", "preset", "seed")}


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
