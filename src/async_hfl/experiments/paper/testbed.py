"""The paper's physical deployment for Fig. 8 and Fig. 9, simulated or run with real processes on this machine.

The paper describes 20 clients on ten Raspberry Pis in seven homes with different Wi-Fi, 20 clients on a computing
cluster with 1, 2 or 4 cores each and a good network, gateways and cloud on one desktop, and 120 s per round on average.
The delays in testbed.csv are invented to match this description, so conclusions apply to it and not to those homes.

With real processes all times are divided by one factor. The training of a client takes its time on this machine times
a factor of its own, and its links lead through proxies with rates of their own. The run directory has the seconds of
this machine; its manifest has the factor, from which figures compute the testbed's seconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any

from async_hfl import api
from async_hfl.assembly.deployments.local_learning import Local, Part, check_device
from async_hfl.assembly.settings.loading import as_table, compose
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import DEVICE_TIER
from async_hfl.deployment.operations.node_journal import read_fact
from async_hfl.deployment.processes.cloud import NUMBERS
from async_hfl.experiments.paper.entry import PaperOptions
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.sweeps.cluster_runs import Make
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.recorded_run import Progress

PRESETS = ("paper", "tight")
_DEVICES_PER_PROCESS = 5
_TIMED_EVERY = 8
"""Only every eighth device is timed: they differ in their samples, and timing all of them would take long."""
_IMPLIED = ("task.devices", "network.gateways")
"""Settings that follow from the classes and gateways of a cluster."""
DEVICES = 40
OWNERS = {"har": 30, "hpwren": 26}
"""Tasks with fewer owners of data than clients: they use only the first clients, half of each kind."""
NOTE = "Simulated with delays that were invented to match the paper's description of its deployment."


def path() -> Path:
    return Path(str(resources.files("async_hfl.experiments.paper") / "testbed.csv"))


def settings(task: str) -> list[str]:
    return [
        f'network.path="{path()}"',
        f"task.devices={OWNERS.get(task, DEVICES)}",
        "network.link_noise=0.4",
        "network.compute_noise=0.15",
    ]


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    compute_s: float
    link_s: float
    """Seconds to send a model to a gateway, mean over the two gateways."""


def clients() -> list[Client]:
    rows = [line.split(",") for line in path().read_text().splitlines()[2:]]
    return [Client(name, float(compute), (float(a) + float(b)) / 2) for name, compute, a, b in rows]


def names() -> list[str]:
    return [client.name for client in clients()]


def classes(devices: int, time_factor: float, compute_s: float, model_bytes: int) -> list[str]:
    """Return the clients as texts for `cluster --class`, on a machine that trains in `compute_s`.

    All times are divided by `time_factor`, but no client can be faster than the machine.
    """
    return [
        f"1:{max(1.0, client.compute_s / time_factor / compute_s):.4g}:{model_bytes * time_factor / client.link_s:.6g}"
        for client in clients()[:devices]
    ]


def on_a_pi(name: str) -> bool:
    return name.startswith("pi")


def deployed_run(
    task: str, method: str, seed: int, settings: list[str], options: PaperOptions, time_factor: float
) -> PlannedRun:
    """Plan a run with real processes. The user's settings override those of the figure."""
    devices = f"task.devices={OWNERS.get(task, DEVICES)}"
    bandwidth = f"gateway.bandwidth={_bandwidth(task, method, options.preset, time_factor)}"
    own = [devices, *settings, bandwidth, *options.overrides]
    run = planned(task=task, method=method, network="deployed", preset="tight", seed=seed, overrides=own, panel=task)
    return replace(run, id=f"{run.id}-x{time_factor:g}")


def _bandwidth(task: str, method: str, preset: str, time_factor: float) -> str:
    """Return the bandwidth of the preset; bytes per second grow as times shrink."""
    if preset not in PRESETS:
        raise UserError(f"--preset {preset}: with real processes it must be one of {', '.join(PRESETS)}")
    value = compose(task=task, method=method, preset=preset).settings.gateway.bandwidth
    return f'"{value}"' if isinstance(value, str) else repr(value * time_factor)


def run_maker(folder: SweepFolder, time_factor: float) -> Make:
    return partial(_make, folder, time_factor)


def _make(
    folder: SweepFolder, time_factor: float, run: PlannedRun, out: Path, progress: Callable[[Progress], None]
) -> api.Run:
    settings = compose(**run.arguments()).settings
    devices = settings.task.devices
    measured = _measured(folder, run, settings)
    facts = {"time_factor": time_factor, "measured": measured, "clients": names()[:devices]}
    return api.cluster(
        gateways=settings.network.gateways,
        devices_per_process=_DEVICES_PER_PROCESS,
        task=run.task,
        method=run.method,
        seed=run.seed,
        overrides=[text for text in run.overrides if text.partition("=")[0].strip() not in _IMPLIED],
        out=out,
        classes=classes(devices, time_factor, measured["compute_s"], measured["model_bytes"]),
        on_start=lambda made, *_: made.directory.amend_manifest(**facts),
        on_progress=progress,
    )


def _measured(folder: SweepFolder, run: PlannedRun, settings: Settings) -> dict[str, Any]:
    """Return the mean training time of some devices, measured once per folder, so that a repeated run is the same."""
    # Only the settings that determine the work of a device: all methods must run on the same testbed.
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
    """Converts the seconds of a run to those of the testbed."""

    factor: float = 1.0
    began: float = 0.0
    """Time at which the first model was sent to a device; before that, processes start and compile."""

    def at(self, at: float) -> float:
        return (at - self.began) * self.factor


def clock_of(run: RunDirectory) -> Clock:
    factor = run.read_manifest().get("time_factor")
    if factor is None:
        return Clock()
    models = (sent for _, sent in run.read_events("sent") if sent["model"])
    first = next((sent["at"] for sent in models if sent["receiver"][0] == DEVICE_TIER), 0.0)
    return Clock(float(factor), first)


def client_names(run: RunDirectory) -> dict[int, str]:
    """Return the client that each device stands for; the cloud numbered devices in the order of their arrival."""
    clients_of_run = run.read_manifest().get("clients")
    if clients_of_run is None:
        return {}
    numbers = read_fact(run.path / "nodes" / "cloud", NUMBERS)["device"]
    return {number: clients_of_run[int(name.removeprefix("device-")) - 1] for name, number in numbers.items()}
