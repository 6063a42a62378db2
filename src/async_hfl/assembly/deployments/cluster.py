"""A complete deployment on this machine (`async-hfl cluster`), recorded in a run directory like a simulated run."""

from __future__ import annotations

import datetime
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.assembly.build.evaluation_clock import deployed_clock
from async_hfl.assembly.deployments.collected_run import collect, names_of, states_under
from async_hfl.assembly.deployments.deployed_nodes import TaskFacts
from async_hfl.assembly.deployments.device_classes import DeviceClass
from async_hfl.assembly.settings.loading import Composed, as_table, compose, parse_override
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.core.errors import SettingsError
from async_hfl.core.protocol.records import DEVICE_UPDATE, SentRecord
from async_hfl.deployment.cluster.local_cluster import ClusterPlan, LocalCluster
from async_hfl.deployment.cluster.proxy import Shape
from async_hfl.deployment.operations.node_journal import Line, is_node, read_fact, read_lines
from async_hfl.deployment.processes.listen_address import read_address
from async_hfl.deployment.processes.main_loop import run_to_end
from async_hfl.deployment.store.node_identity import IDENTITY, NodeIdentity
from async_hfl.deployment.store.schema import StateDirectoryError
from async_hfl.journal.events_file import columns
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.recorded_run import Progress

COMMAND = (sys.executable, "-m", "async_hfl.cli")
_REASON = columns()["job"][0].index("reason")
_SENT = columns()["sent"][0]
_LOOKING = 20
"""The share of the time that is spent on reading journals is at most one part in this many."""
_FEW_DEVICES = 20
_FEW_DEVICES_EPOCHS = 5
"""Z for small clusters that mix updates on arrival, since 10 or 20 updates would take several from each device."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    gateways: int
    devices: int
    devices_per_process: int
    insecure: bool = False
    proxies: bool = False
    classes: tuple[DeviceClass, ...] = ()
    """One per device; empty if no device is slowed down or behind a shaped link."""


def composed_for(
    options: ClusterOptions, file: Path | None, task: str | None, method: str | None, seed: int | None, sets: list[str]
) -> tuple[Composed, list[str], list[str]]:
    """Return the settings, the `--set` texts that pass them to the cloud, and those among them that were adapted."""
    for path in ("task.devices", "network.gateways"):
        if any(text.partition("=")[0].strip() == path for text in sets):
            raise SettingsError(f"--set {path}: use --{path.partition('.')[2]} for a cluster")
    own = [f"task.devices={options.devices}", f"network.gateways={options.gateways}"]
    usual: list[str] = []
    given = {f"{section}.{key}" for text in sets for section, keys in parse_override(text).items() for key in keys}
    everything = [*sets, *own]
    composed = compose(file, task=task, method=method, network="deployed", seed=seed, overrides=everything)
    counts_updates = composed.settings.gateway.aggregation == "mix"
    if counts_updates and options.devices <= _FEW_DEVICES and file is None and "gateway.epochs" not in given:
        usual = [f"gateway.epochs={_FEW_DEVICES_EPOCHS}"]
        everything = [*usual, *everything]
        composed = compose(file, task=task, method=method, network="deployed", seed=seed, overrides=everything)
    return composed, everything, usual


def run_cluster(
    options: ClusterOptions,
    directory: RunDirectory,
    composed: Composed,
    arguments: Sequence[str],
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Run the cluster to its end; return the result as in a summary."""
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
    others = [cluster.state_of(name) for name in (*cluster.gateway_names, *cluster.device_names)]
    watch = Watch(cluster.state_of("cloud"), others, on_progress)

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


def facts_for_manifest(run: Path) -> dict[str, Any]:
    """Return the metric of the cloud's task and the names of the nodes."""
    identities = [NodeIdentity.stored(read_fact(state, IDENTITY)) for state in states_under(run)]
    target = TaskFacts.of(next(one for one in identities if one.role == "cloud")).target
    return {"metric": {"name": target.metric, "direction": target.direction}, **names_of(identities)}


def _shape(classes: Sequence[DeviceClass], device: int, gateway: int) -> tuple[Shape, Shape]:
    kind = classes[device] if classes else DeviceClass()
    shape = Shape(rate=kind.rate, delay_s=kind.delay_s)
    return shape, shape


class Watch:
    """Reports progress from the journals: evaluations from the cloud's, device updates and bytes from all."""

    def __init__(self, cloud: Path, others: Sequence[Path], report: Callable[[Progress], None] | None) -> None:
        self._cloud, self._others = cloud, others
        self._report = report
        self._read: dict[Path, int] = {}
        """Number of lines read so far of each journal."""
        self._updates = self._bytes = self._models_up = 0
        self._first: tuple[float, int] | None = None
        """Time and updates of the first report, from which the speed counts: it is not that of the warm-up."""
        self._next = 0.0

    def look(self) -> None:
        began = time.monotonic()
        if self._report is None or began < self._next:
            return
        lines = self._new_lines(self._cloud)
        evaluations = [line for line in lines if line.kind == "epoch"]
        self._count(lines)
        if evaluations:
            for state in self._others:
                self._count(self._new_lines(state))
            newest = evaluations[-1]
            at, epoch, _, reached = newest.order
            assert newest.learnt is not None
            since, before = self._first = self._first or (at, self._updates)
            speed = (self._updates - before) / (at - since) if at > since else 0.0
            metric, loss = newest.learnt[0], newest.learnt[1]
            progress = (at, epoch, metric, self._updates, self._bytes, speed, bool(reached), loss, self._models_up)
            self._report(Progress(*progress))
        # Journals of many nodes take long to read, and this process shares the machine with them.
        self._next = began + _LOOKING * (time.monotonic() - began)

    def _count(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.kind == "job":
                self._updates += line.order[_REASON] == DEVICE_UPDATE
            elif line.kind == "sent":
                sent = SentRecord(**dict(zip(_SENT, line.order, strict=True)))
                self._bytes += sent.model + sent.gradient + sent.basis + sent.control
                self._models_up += sent.model if sent.sender[0] > sent.receiver[0] else 0

    def _new_lines(self, state: Path) -> list[Line]:
        if not is_node(state) or (state == self._cloud and read_address(state) is None):  # it has not begun
            return []
        try:
            lines = list(read_lines(state, self._read.get(state, 0)))
        except (StateDirectoryError, sqlite3.OperationalError):  # it is just being created
            return []
        self._read[state] = self._read.get(state, 0) + len(lines)
        return lines


def arguments(composed: Composed, sets: Sequence[str]) -> list[str]:
    """Return the settings as arguments of `async-hfl cloud`."""
    choice = composed.choice
    chosen = ["--task", choice.task, "--method", choice.method, "--seed", str(choice.seed)]
    return [*chosen, *(part for text in sets for part in ("--set", text))]


def manifest_of(composed: Composed, options: ClusterOptions) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(composed.choice),
        "settings": as_table(composed.settings),
        "devices": options.devices,
        "gateways": options.gateways,
        "evaluation": deployed_clock(composed.settings).manifest(),
        "classes": [asdict(kind) for kind in options.classes],
        "start_from": None,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
