"""`async-hfl chaos`: random faults on a cluster on this machine, then an audit of the disks of all its nodes.

The task is `null`: its models are numbers that training changes in no useful way, so that the machine's time goes into
faults. Nothing of the outcome is read from the processes: the audit opens their stores when they have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.assembly.deployments.update_audit import Audit, audit
from async_hfl.assembly.runs.replay import Replay, replay
from async_hfl.core.errors import DataError, UserError
from async_hfl.deployment.cluster import small_disks
from async_hfl.deployment.cluster.chaos import Chaos
from async_hfl.deployment.cluster.local_cluster import ClusterPlan, LocalCluster
from async_hfl.deployment.cluster.proxy import Shape
from async_hfl.deployment.cluster.small_disks import SmallDisk
from async_hfl.deployment.identity.credentials import Certified
from async_hfl.deployment.operations.operators import DRAIN, STATUS
from async_hfl.deployment.processes.main_loop import run_to_end
from async_hfl.deployment.processes.went_back import SET_ASIDE
from async_hfl.deployment.transport.calls import LinkError
from async_hfl.deployment.transport.link import operate

MODEL_NUMBERS = 10_000
"""40 kB as float32: more than travels inline, so that transfers are cut as well."""
_LINK = Shape(rate=400_000)
_SETTINGS = (
    "task.target=2",
    "cloud.epochs=100000000",
    "cloud.linger=30",
    "gateway.epochs=3",
    "gateway.bandwidth=unlimited",
    "transfer.encoding=float32",
)
_CALM_S = 180.0
"""After the last fault, all nodes must be back within this time, and after the drain all must have ended."""
_POLL_S = 0.5


@dataclass(slots=True)
class ChaosOptions:
    minutes: float
    seed: int = 1
    gateways: int = 2
    devices: int = 4


@dataclass(slots=True)
class ChaosResult:
    """As `--json` prints it."""

    minutes: float
    seed: int
    faults: dict[str, int]
    without: str
    """Why no disk was filled; empty if disks were."""
    cloud_epochs: int = 0
    acknowledged: int = 0
    """Updates that a gateway had on its disk before its receipt left."""
    lost: int = 0
    """Acknowledged updates without a fate."""
    doubled: int = 0
    late: int = 0
    """Acknowledged updates that the end of the run overtook; their gateways list them."""
    repeats: int = 0
    """Packets that reached a node more than once."""
    replayed_events: int = 0
    skipped_events: int = 0
    differences: int = 0
    unexpected: list[str] = field(default_factory=list)
    """Whatever happened that must not: a process that ended by itself, state that was set aside, no end in time."""
    first_problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not (self.lost or self.doubled or self.differences or self.unexpected) and self.acknowledged > 0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def run_chaos(options: ChaosOptions, folder: Path, say: Callable[[str], None]) -> ChaosResult:
    """Run a cluster under random faults in a new folder, and audit it."""
    if not 0 < options.minutes < 1e6:
        raise UserError(f"--minutes {options.minutes}: must be more than 0")
    without = small_disks.unavailable()
    cluster = _cluster(options, folder)
    disks = {} if without else {name: SmallDisk(cluster.state_of(name)) for name in ("cloud", *cluster.gateway_names)}
    chaos = Chaos(cluster, disks, options.seed)
    result = ChaosResult(options.minutes, options.seed, {}, without)
    try:
        run_to_end(_play(cluster, chaos, options, result, say))
    finally:
        for disk in disks.values():
            disk.keep()
    result.faults = dict(sorted(chaos.counts.items()))
    result.unexpected += chaos.unexpected
    if (folder / "nodes" / SET_ASIDE).exists():
        result.unexpected.append("a node has set its state aside, although no state was replaced by an older copy")
    say("auditing")
    _judge(cluster, result)
    return result


def describe(result: ChaosResult) -> list[str]:
    """Return the result in words."""
    faults = ", ".join(f"{count} x {kind}" for kind, count in result.faults.items())
    return [
        f"{result.minutes:g} minutes, seed {result.seed}: {sum(result.faults.values())} faults ({faults})",
        *([f"no disk was filled: {result.without}"] if result.without else []),
        f"{result.cloud_epochs} cloud epochs, {result.acknowledged} acknowledged updates: {result.lost} lost, "
        f"{result.doubled} doubled, {result.late} too late for the end and listed; "
        f"{result.repeats} packets arrived twice",
        f"replay: {result.replayed_events:,} events, {result.differences} differences"
        + (f", {result.skipped_events:,} events before the first model that is kept" if result.skipped_events else ""),
        *result.unexpected,
        *result.first_problems,
        "passed" if result.passed else "FAILED",
    ]


def _cluster(options: ChaosOptions, folder: Path) -> LocalCluster:
    chosen = (
        f"task.devices={options.devices}",
        f"network.gateways={options.gateways}",
        f"task.model_size={MODEL_NUMBERS}",
        *_SETTINGS,
    )
    arguments = ["--task", "null", "--seed", str(options.seed), *(part for text in chosen for part in ("--set", text))]
    plan = ClusterPlan(
        options.gateways,
        options.devices,
        2,
        arguments,
        proxies=True,
        shape=lambda device, gateway: (_LINK, _LINK),
    )
    return LocalCluster(folder, (sys.executable, "-m", "async_hfl.cli"), plan)


async def _play(
    cluster: LocalCluster, chaos: Chaos, options: ChaosOptions, result: ChaosResult, say: Callable[[str], None]
) -> None:
    await cluster.prepare()
    try:
        await cluster.start()
        async with asyncio.timeout(_CALM_S):
            await _all_back(cluster)
        say(f"{len(cluster.nodes)} processes run; faults for {options.minutes:g} minutes")
        telling = asyncio.ensure_future(_tell(chaos, say))
        try:
            await chaos.play(60 * options.minutes)
        finally:
            telling.cancel()
        say("no more faults; all nodes must come back")
        try:
            async with asyncio.timeout(_CALM_S):
                result.cloud_epochs = await _all_back(cluster)
            await _operate(cluster, DRAIN)
            async with asyncio.timeout(_CALM_S):
                for node in cluster.nodes.values():
                    if (code := await node.wait()) != 0:
                        chaos.unexpected.append(f"{node.name} ended with {code} at the end:\n{node.log_tail()}")
        except TimeoutError:
            chaos.unexpected.append(f"the nodes were not back, or had not ended, {_CALM_S:g} s after the last fault")
    finally:
        await cluster.stop()


async def _tell(chaos: Chaos, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(60)
        say(f"{(time.monotonic() - began) / 60:.0f} minutes: {sum(chaos.counts.values())} faults")


async def _all_back(cluster: LocalCluster) -> int:
    """Wait until every session is back, and the cloud has made two epochs since; return the number of its epochs.

    A device that has no session when the run ends would go on dialling."""
    first: int | None = None
    while True:
        with contextlib.suppress(LinkError):
            status = msgspec.json.decode(await _operate(cluster, STATUS))
            here = [gateway for gateway in status["gateways"] if gateway["state"] == "here"]
            devices = [gateway.get("present") for gateway in here]
            if devices == [cluster.plan.devices] * cluster.plan.gateways:
                first = status["cloud_epoch"] if first is None else first
                if status["cloud_epoch"] >= first + 2:
                    return int(status["cloud_epoch"])
        await asyncio.sleep(_POLL_S)


async def _operate(cluster: LocalCluster, kind: str) -> bytes:
    credentials = Certified(cluster.certificates("operator"))
    return await operate(cluster.addresses["cloud"], "cloud", credentials, kind)


def _judge(cluster: LocalCluster, result: ChaosResult) -> None:
    """Audit the stores, and let every node handle its log again."""
    state = cluster.state_of
    try:
        found = audit(state("cloud"), list(map(state, cluster.gateway_names)), list(map(state, cluster.device_names)))
        again = replay(cluster.folder / "nodes")
    except DataError as error:
        result.unexpected.append(f"the audit failed: {error}")
        return
    _note(result, found, again)


def _note(result: ChaosResult, found: Audit, again: Replay) -> None:
    result.acknowledged, result.late, result.repeats = len(found.acknowledged), len(found.late), found.repeats
    result.lost = len(found.lost | found.listed) + len(found.unaccounted)
    result.doubled = len(found.doubled)
    result.replayed_events, result.skipped_events = again.events, again.events_skipped
    result.differences = again.differences
    doubled = [f"{one} is counted twice" for one in sorted(map(str, found.doubled))]
    result.first_problems = [*found.unaccounted, *doubled, *again.first_differences][:10]
