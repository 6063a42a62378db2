"""`async-hfl cluster`: a whole deployment on this machine, written to a run directory like a simulated run."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from async_hfl.assembly.deployments.deployed_nodes import TaskFacts
from async_hfl.assembly.deployments.device_classes import DeviceClass
from async_hfl.assembly.deployments.merge_journals import collect
from async_hfl.assembly.settings.loading import Composed, as_table, compose, parse_override
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.core.errors import SettingsError
from async_hfl.deployment.cluster.local_cluster import ClusterPlan, LocalCluster
from async_hfl.deployment.cluster.proxy import Shape
from async_hfl.deployment.operations.node_journal import is_node, read_fact, read_lines
from async_hfl.deployment.processes.listen_address import read_address
from async_hfl.deployment.processes.main_loop import run_to_end
from async_hfl.deployment.store.node_identity import IDENTITY, NodeIdentity
from async_hfl.journal.run_directory import RunDirectory

COMMAND = (sys.executable, "-m", "async_hfl.cli")
_FEW_DEVICES = 20
_FEW_DEVICES_EPOCHS = 5
"""Z, where a gateway has so few devices that 10 or 20 updates take each of them several times."""


@dataclass(frozen=True, slots=True)
class ClusterProgress:
    """What a person watching wants to see (as simulation.session.Progress)."""

    at: float
    epoch: int
    metric: float
    updates: int
    bytes_total: int
    updates_per_s: float
    target_reached: bool


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    gateways: int
    devices: int
    devices_per_process: int
    insecure: bool = False
    proxies: bool = False
    classes: tuple[DeviceClass, ...] = ()
    """One a device; none: all are what this machine is."""


def composed_for(
    options: ClusterOptions, file: Path | None, task: str | None, method: str | None, seed: int | None, sets: list[str]
) -> tuple[Composed, list[str], list[str]]:
    """Settings, the `--set` texts that give them to a cloud, and what was set without being asked for."""
    for path in ("task.devices", "network.gateways"):
        if any(text.partition("=")[0].strip() == path for text in sets):
            raise SettingsError(f"--set {path}: a cluster is told it by --{path.partition('.')[2]}")
    own = [f"task.devices={options.devices}", f"network.gateways={options.gateways}"]
    usual: list[str] = []
    given = {f"{section}.{key}" for text in sets for section, keys in parse_override(text).items() for key in keys}
    if options.devices <= _FEW_DEVICES and file is None and "gateway.epochs" not in given:
        usual.append(f"gateway.epochs={_FEW_DEVICES_EPOCHS}")
    everything = [*usual, *sets, *own]
    composed = compose(file, task=task, method=method, network="deployed", seed=seed, overrides=everything)
    return composed, everything, usual


def run_cluster(
    options: ClusterOptions,
    directory: RunDirectory,
    composed: Composed,
    arguments: Sequence[str],
    on_progress: Callable[[ClusterProgress], None] | None = None,
) -> dict[str, Any]:
    """To its end; returns the result as the summary holds it."""
    plan = ClusterPlan(
        options.gateways,
        options.devices,
        options.devices_per_process,
        arguments,
        secure=not options.insecure,
        proxies=options.proxies or any(kind.shaped for kind in options.classes),
        shape=partial(_shape, options.classes),
        slowdowns=tuple(kind.slowdown for kind in options.classes),
        device_arguments=("--task", composed.choice.task) if is_user_code(composed.choice.task) else (),
    )
    cluster = LocalCluster(directory.path, COMMAND, plan)
    began = time.monotonic()
    watch = _Watch(cluster.state_of("cloud"), on_progress)

    async def main() -> None:
        await cluster.prepare()
        try:
            await cluster.start()
            await cluster.wait(watch.look)
        finally:
            await cluster.stop()

    run_to_end(main())
    states = [cluster.state_of(name) for name in ("cloud", *cluster.gateway_names, *cluster.device_names)]
    result = collect(directory, states, states[0], composed.settings)
    return {**result, "wall_s": time.monotonic() - began}


def metric_of(run: Path) -> dict[str, Any]:
    """How good a model is measured, as the cloud was told by its task."""
    target = TaskFacts.of(NodeIdentity(**read_fact(run / "nodes" / "cloud", IDENTITY))).target
    return {"name": target.metric, "direction": target.direction, "window": target.window}


def _shape(classes: Sequence[DeviceClass], device: int, gateway: int) -> tuple[Shape, Shape]:
    kind = classes[device] if classes else DeviceClass()
    shape = Shape(rate=kind.rate, delay_s=kind.delay_s)
    return shape, shape


class _Watch:
    """Reads what the cloud has journalled so far."""

    def __init__(self, cloud: Path, told: Callable[[ClusterProgress], None] | None) -> None:
        self._cloud = cloud
        self._told = told
        self._epoch = -1
        self._began = time.monotonic()

    def look(self) -> None:
        if self._told is None or read_address(self._cloud) is None or not is_node(self._cloud):
            return
        newest = None
        for line in read_lines(self._cloud):
            if line.kind == "epoch":
                newest = line
        if newest is None or newest.order[1] == self._epoch:
            return
        at, self._epoch, updates, reached = newest.order
        assert newest.learnt is not None
        speed = updates / max(time.monotonic() - self._began, 1e-9)
        self._told(ClusterProgress(at, self._epoch, newest.learnt[0], updates, 0, speed, bool(reached)))


def arguments(composed: Composed, sets: Sequence[str]) -> list[str]:
    """The settings again, as `async-hfl cloud` takes them."""
    choice = composed.choice
    chosen = ["--task", choice.task, "--method", choice.method, "--seed", str(choice.seed)]
    return [*chosen, *(part for text in sets for part in ("--set", text))]


def manifest_of(composed: Composed, options: ClusterOptions) -> dict[str, Any]:
    choice = composed.choice
    return {
        "task": choice.task,
        "method": choice.method,
        "network": choice.network,
        "preset": choice.preset,
        "seed": choice.seed,
        "settings": as_table(composed.settings),
        "devices": options.devices,
        "gateways": options.gateways,
        "classes": [asdict(kind) for kind in options.classes],
        "start_from": None,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
