"""A deployment of real processes for tests that inject a fault and measure its consequences.

Every process has its own disk and certificates; every link between a device and a gateway is a proxy. A test observes
only what nodes commit to their disks. Its measurements become a row of docs/results/faults.md (see fault_rows.py)."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.assembly.deployments.update_audit import Audit, audit, delivery_of
from async_hfl.assembly.runs.replay import replay
from async_hfl.core.identifiers import JobId, gateway_address
from async_hfl.core.protocol.messages import Update
from async_hfl.core.serialization import from_plain
from async_hfl.deployment.cluster.local_cluster import ClusterPlan, LocalCluster, Node
from async_hfl.deployment.cluster.proxy import LinkProxy, Shape
from async_hfl.deployment.identity.credentials import Certified
from async_hfl.deployment.store.schema import DATABASE, open_for_reading
from async_hfl.deployment.transport.link import operate
from async_hfl.journal.events_file import columns

HANG_GUARD_S = 60.0
POLL_S = 0.03
MODEL_NUMBERS = 50_000
MODEL_BYTES = 4 * MODEL_NUMBERS
_WITHOUT_ARRAYS: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=lambda code, data: None)


@dataclass(frozen=True)
class Sight:
    """Something that a node committed, and when the test saw it."""

    seen_at: float
    node: str
    kind: str
    """Kind of a journal record, or class name of an event."""
    fields: dict[str, Any]


class Watch:
    """Follows the disk of one node."""

    def __init__(self, name: str, state: Path) -> None:
        self.name, self.state = name, state
        self._records = self._events = self._disk = 0

    def skip(self) -> None:
        """Skip what is on the disk, which an older copy has replaced."""
        database = open_for_reading(self.state / DATABASE)
        try:
            ((self._records,),) = database.execute("SELECT coalesce(max(number), 0) FROM journal").fetchall()
            ((self._events,),) = database.execute("SELECT coalesce(max(number), 0) FROM log").fetchall()
        finally:
            database.close()
        self._disk = (self.state / DATABASE).stat().st_ino

    def look(self) -> list[Sight]:
        try:
            disk = (self.state / DATABASE).stat().st_ino
        except FileNotFoundError:
            return []
        if disk != self._disk:
            self._records, self._events, self._disk = 0, 0, disk
        names, now, found = columns(), time.monotonic(), []
        try:
            database = open_for_reading(self.state / DATABASE)
        except Exception:  # the directory is being created or removed
            return []
        try:
            for number, line in database.execute(
                "SELECT number, line FROM journal WHERE number > ? ORDER BY number", (self._records,)
            ):
                kind, order, *learnt = msgspec.json.decode(line)
                fields = dict(zip(names[kind][0], order, strict=True))
                if learnt:
                    fields.update(zip(names[kind][1], learnt[0], strict=True))
                found.append(Sight(now, self.name, kind, fields))
                self._records = number
            for number, body in database.execute(
                "SELECT number, event FROM log WHERE number > ? ORDER BY number", (self._events,)
            ):
                event = from_plain(_WITHOUT_ARRAYS.decode(body))
                facts = {name: getattr(event, name) for name in ("peer", "sender", "content") if hasattr(event, name)}
                found.append(Sight(now, self.name, type(event).__name__, facts))
                self._events = number
        finally:
            database.close()
        return found


@dataclass
class Scene:
    cluster: LocalCluster
    sights: list[Sight] = field(default_factory=list)
    watches: dict[str, Watch] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    """Measurements."""

    # The nodes ---------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        return self.cluster.nodes[name]

    def links_of(self, device: str) -> list[LinkProxy]:
        return [link for (one, _), link in self.cluster.links.items() if one == device]

    def numbers(self, role: str) -> dict[str, int]:
        """Return the number assigned to each name."""
        database = open_for_reading(self.cluster.state_of("cloud") / DATABASE)
        try:
            (value,) = database.execute("SELECT value FROM facts WHERE key = 'numbers'").fetchone()
            return msgspec.msgpack.decode(value)[role]
        finally:
            database.close()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.node(name).kill(number)

    async def kill(self, *names: str) -> float:
        for name in names:
            self.node(name).kill()
        now = time.monotonic()
        for name in names:
            await self.node(name).wait()
            self.dead(name, now)
        return now

    def dead(self, name: str, at: float) -> None:
        """Skip what is on the disk of a node that was killed."""
        self.sights += [replace(sight, seen_at=at - 1e-6) for sight in self.watches[name].look()]

    # Observations ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        for watch in self.watches.values():
            self.sights += watch.look()

    def since(self, at: float, who: str, kind: str, /, **fields: Any) -> list[Sight]:
        """Return what a node has committed since a time; given fields must be equal."""
        return [
            sight
            for sight in self.sights
            if sight.seen_at >= at
            and sight.node == who
            and sight.kind == kind
            and all(sight.fields[key] == value for key, value in fields.items())
        ]

    async def until(self, what: str, holds: Callable[[], bool], guard_s: float = HANG_GUARD_S) -> float:
        """Wait for a condition, and return the time. The guard ends a test that hangs."""
        end = time.monotonic() + guard_s
        while True:
            self.look()
            if holds():
                return time.monotonic()
            if time.monotonic() > end:
                words = "\n".join(f"== {node.name}\n{node.log_tail()}" for node in self.cluster.nodes.values())
                raise AssertionError(f"never happened: {what}\n{words}")
            await asyncio.sleep(POLL_S)

    async def until_seen(self, since: float, who: str, kind: str, /, **fields: Any) -> float:
        return await self.until(f"{kind} {fields} at {who}", lambda: bool(self.since(since, who, kind, **fields)))

    async def aggregated(self, since: float, *, device: int | None = None, gateway: str | None = None) -> float:
        """Wait until an update is mixed again, optionally of a device or at a gateway."""
        gateways = self.cluster.gateway_names if gateway is None else [gateway]
        fields: dict[str, Any] = {"reason": "aggregated"} | ({} if device is None else {"device": device})
        return await self.until(
            f"an update of {device or 'anybody'} is mixed at {gateways}",
            lambda: any(self.since(since, name, "job", **fields) for name in gateways),
        )

    def mixed_and_not_uploaded(self, gateway: str) -> int:
        """Return the updates that are only on the disk of a gateway."""
        count = 0
        for sight in self.sights:
            if sight.node == gateway and sight.kind == "job" and sight.fields["reason"] == "aggregated":
                count += 1
            elif sight.node == gateway and sight.kind == "sent" and sight.fields["message"] == "Upload":
                count = 0
        return count

    async def mid_upload(self, device: str, share: float = 0.3) -> str:
        """Wait until an update of a device is partly transferred, and return the receiving gateway."""
        return await asyncio.wait_for(self._mid_upload(device, share), HANG_GUARD_S)

    async def _mid_upload(self, device: str, share: float) -> str:
        links = {gateway: self.cluster.links[device, gateway] for gateway in self.cluster.gateway_names}
        while True:
            before = {gateway: link.up.bytes for gateway, link in links.items()}
            await asyncio.sleep(0.15)
            # Wait until a part of a model has been sent, and most of it has not.
            for gateway, link in links.items():
                if link.up.bytes - before[gateway] > 4000:
                    begun = before[gateway]
                    while link.up.bytes - begun < share * MODEL_BYTES:
                        last = link.up.bytes
                        await asyncio.sleep(0.02)
                        if link.up.bytes == last:
                            await asyncio.sleep(0.2)
                            if link.up.bytes == last:
                                break  # a small message
                    else:
                        if link.up.bytes - begun < 0.9 * MODEL_BYTES:
                            return gateway

    def unacknowledged(self, gateway: str) -> set[JobId]:
        """Return the updates that devices have sent to a gateway without a receipt."""
        number = self.numbers("gateway")[gateway]
        waiting = set()
        for name in self.cluster.device_names:
            for (to, _), packet in delivery_of(self.cluster.state_of(name)).unacknowledged.items():
                if to == gateway_address(number) and isinstance(packet.message, Update):
                    waiting.add(packet.message.job)
        return waiting

    # The end -----------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """End the run as an operator does; every running process must exit normally."""
        credentials = Certified(self.cluster.certificates("operator"))
        await operate(self.cluster.addresses["cloud"], "cloud", credentials, "drain")
        await asyncio.wait_for(self._all_gone(), HANG_GUARD_S)

    async def _all_gone(self) -> None:
        for node in self.cluster.nodes.values():
            if node.running:
                code = await node.wait()
                assert code == 0, f"{node.name} ended with {code}\n{node.log_tail()}"

    def audit(
        self, without: tuple[str, ...] = (), dead: tuple[Path, ...] = (), replayed: Sequence[str] | None = None
    ) -> Audit:
        """Audit every update, and replay every log. `without`: gateways that are gone for good. `replayed`: the nodes
        whose logs are replayed, if not all."""
        state = self.cluster.state_of
        gateways = [state(name) for name in self.cluster.gateway_names if name not in without]
        devices = [state(name) for name in self.cluster.device_names]
        for name in self.watches if replayed is None else replayed:
            again = replay(state(name))
            assert again.differences == 0, again.first_differences
            assert again.payloads_missing == 0
        return audit(state("cloud"), gateways, devices, dead)


SLOW_ENOUGH = Shape(rate=150_000)
"""A model of 200 kB takes over a second each way, so that a test can interrupt it."""


@asynccontextmanager
async def scene(
    folder: Path,
    *,
    gateways: int = 2,
    devices: int = 4,
    devices_per_process: int = 1,
    settings: tuple[str, ...] = (),
    method: str | None = None,
    shape: Shape = SLOW_ENOUGH,
    environment: dict[str, str] | None = None,
    prepared: Callable[[LocalCluster], None] = lambda cluster: None,
    running: bool = True,
) -> AsyncIterator[Scene]:
    """A deployment that has started and, by default, finished its warm-up."""
    chosen = (
        f"task.devices={devices}",
        f"network.gateways={gateways}",
        f"task.model_size={MODEL_NUMBERS}",
        "cloud.epochs=100000",
        "cloud.linger=3",
        "gateway.epochs=2",
        "gateway.bandwidth=unlimited",
        "transfer.encoding=float32",  # a lighter model would travel before a test could interrupt it
        *settings,
    )
    chosen_method = [] if method is None else ["--method", method]
    arguments = [
        "--task",
        "null",
        *chosen_method,
        "--seed",
        "1",
        *(part for text in chosen for part in ("--set", text)),
    ]
    plan = ClusterPlan(
        gateways,
        devices,
        devices_per_process,
        arguments,
        proxies=True,
        shape=lambda device, gateway: (shape, shape),
        environment={"ASYNC_HFL_TRACEBACK": "1", **(environment or {})},
    )
    cluster = LocalCluster(folder, (sys.executable, "-m", "async_hfl.cli"), plan)
    await cluster.prepare()
    prepared(cluster)
    stage = Scene(cluster)
    stage.watches = {
        name: Watch(name, cluster.state_of(name)) for name in ("cloud", *cluster.gateway_names, *cluster.device_names)
    }
    try:
        await cluster.start()
        if running:
            await stage.until("a second cloud epoch", lambda: bool(stage.since(0.0, "cloud", "epoch", epoch=2)))
        yield stage
    finally:
        await cluster.stop()


def assert_nothing_lost(found: Audit) -> None:
    assert found.lost == set()
    assert found.listed == set()
    assert found.doubled == set()
    assert found.unaccounted == []
    assert len(found.acknowledged) > 5
    assert found.decided
