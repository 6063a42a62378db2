"""Fig. 8 and Fig. 9 by real processes: the testbed's clients on this machine, all of its times divided by one factor.

A client's training takes the processor time that it takes here, times a factor of its own; it waits for the remainder.
Its links lead through proxies with rates of their own. The run directory has the seconds of this machine and its
manifest the factor, so that what is drawn is in the testbed's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from async_hfl import api
from async_hfl.assembly.deployments.device_check import check_device
from async_hfl.assembly.deployments.local_learning import Local, Part
from async_hfl.assembly.settings.loading import as_table, compose
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import DEVICE_TIER
from async_hfl.deployment.operations.node_journal import read_fact
from async_hfl.deployment.processes.cloud import NUMBERS
from async_hfl.experiments.paper import testbed
from async_hfl.experiments.paper.entry import Asked
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.sweeps.cluster_runs import Make
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.journal.events_file import read_events
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.recorded_run import Progress

PRESETS = ("paper", "tight")
_DEVICES_PER_PROCESS = 5
_TIMED_EVERY = 8
"""Devices differ in how many samples they have; to time all of them may take long."""
_TOLD_OTHERWISE = ("task.devices", "network.gateways")
"""Settings that a cluster is told by its classes and its gateways."""


def deployed_run(task: str, method: str, seed: int, sets: list[str], asked: Asked, time_factor: float) -> PlannedRun:
    """`sets`: of the figure; those of the user come after them."""
    devices = f"task.devices={testbed.OWNERS.get(task, testbed.DEVICES)}"
    own = [devices, *sets, f"gateway.bandwidth={_bandwidth(task, method, asked.preset, time_factor)}", *asked.overrides]
    run = planned(task=task, method=method, network="deployed", preset="tight", seed=seed, overrides=own, panel=task)
    return replace(run, id=f"{run.id}-x{time_factor:g}")


def _bandwidth(task: str, method: str, preset: str, time_factor: float) -> str:
    """Of the preset; bytes per second grow as times shrink."""
    if preset not in PRESETS:
        raise UserError(f"--preset {preset}: on real processes there are {', '.join(PRESETS)}")
    value = compose(task=task, method=method, preset=preset).settings.gateway.bandwidth
    return f'"{value}"' if isinstance(value, str) else repr(value * time_factor)


def maker(folder: SweepFolder, time_factor: float) -> Make:
    return partial(_make, folder, time_factor)


def _make(
    folder: SweepFolder,
    time_factor: float,
    run: PlannedRun,
    out: Path,
    progress: Callable[[Progress], None],
) -> api.Run:
    settings = compose(**run.arguments()).settings
    devices = settings.task.devices
    measured = _measured(folder, run, settings)
    facts = {"time_factor": time_factor, "measured": measured, "clients": testbed.names()[:devices]}
    return api.cluster(
        gateways=settings.network.gateways,
        devices_per_process=_DEVICES_PER_PROCESS,
        task=run.task,
        method=run.method,
        seed=run.seed,
        overrides=[text for text in run.overrides if text.partition("=")[0].strip() not in _TOLD_OTHERWISE],
        out=out,
        classes=testbed.classes(devices, time_factor, measured["compute_s"], measured["model_bytes"]),
        on_start=lambda made, *_: made.directory.amend_manifest(**facts),
        on_progress=progress,
    )


def _measured(folder: SweepFolder, run: PlannedRun, settings: Settings) -> dict[str, Any]:
    """The mean training of some devices, timed once for all runs of a folder: a run begun anew is the same run."""
    # Of a device only what makes work: methods differ in the rest, and are to have one testbed.
    table = [as_table(settings)["task"], settings.device.epochs, settings.device.batch_size]
    digest = hashlib.blake2b(json.dumps(table, sort_keys=True).encode(), digest_size=6).hexdigest()
    path = folder.path / "measured" / f"{digest}.json"
    if not path.is_file():
        devices = settings.task.devices
        some = Local(tuple(Part(place, devices) for place in range(0, devices, _TIMED_EVERY)))
        found = check_device(
            run.task, some, [text for text in run.overrides if text.strip().startswith(("task.", "device."))]
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        measured = {"compute_s": fmean(found["busy_s"]), "model_bytes": found["model_bytes"]}
        path.write_text(json.dumps({"task": run.task, "devices": devices, **measured}) + "\n")
    known: dict[str, Any] = json.loads(path.read_bytes())
    return known


@dataclass(frozen=True, slots=True)
class Clock:
    """The testbed's seconds of a run's own."""

    factor: float = 1.0
    began: float = 0.0
    """When the first model left for a device: until then processes started and compiled."""

    def at(self, at: float) -> float:
        return (at - self.began) * self.factor


def clock_of(run: RunDirectory) -> Clock:
    factor = run.read_manifest().get("time_factor")
    if factor is None:
        return Clock()
    models = (sent for _, sent in read_events(run.events, "sent") if sent["model"])
    first = next((sent["at"] for sent in models if sent["receiver"][0] == DEVICE_TIER), 0.0)
    return Clock(float(factor), first)


def clients(run: RunDirectory) -> dict[int, str]:
    """What each device of a deployed testbed is there; the cloud numbered them as they came."""
    called = run.read_manifest().get("clients")
    if called is None:
        return {}
    numbers = read_fact(run.path / "nodes" / "cloud", NUMBERS)["device"]
    return {number: called[int(name.removeprefix("device-")) - 1] for name, number in numbers.items()}
