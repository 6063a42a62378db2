"""Attacks on a running deployment: a federation of real processes, an attacker with one valid certificate, and figures.

An attack is a function that returns an `AttackResult`. Tests assert on the result; a command can print a table of them.

    async with federation(folder) as honest, honest.attacker() as evil:
        before = await honest.rate(5.0)
        evil.send(Update(JobId(0, 1, 1), ...))  # any message; the rest of the protocol is kept
        after = await honest.rate(5.0)
        result = honest.result("guessed jobs", "refused", ...)

`honest.channel()` gives the attacker's bare gRPC channel instead, for attacks below the messages.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from attacker import EVIL, Attacker
from safetensors.numpy import load_file

from async_hfl.core.vectors import HostVector
from async_hfl.deployment.cluster.local_cluster import ClusterPlan, LocalCluster
from async_hfl.deployment.identity.authority import Authority
from async_hfl.deployment.identity.credentials import Certified
from async_hfl.deployment.store.schema import DATABASE, open_for_reading
from async_hfl.deployment.transport import calls
from async_hfl.deployment.transport.admission import Joining
from async_hfl.deployment.transport.link import Link, operate
from async_hfl.deployment.transport.transport import Transport
from async_hfl.journal.events_file import columns

HANG_GUARD_S = 60.0
MB = 2**20


@dataclass(frozen=True)
class AttackResult:
    """What an attack has achieved."""

    name: str
    outcome: str
    """What became of the attack, in a few words."""
    model_ok: bool
    """The model is the one of a run without the attack, or as good."""
    attribution_ok: bool
    """The journal credits nobody else with anything that the attacker has done."""
    rss_mb: float
    """Growth of the memory of the node that grew most (in virtual time: of its state)."""
    disk_mb: float
    """Growth of the disk of the node that grew most."""
    honest_share: float
    """Updates of the honest devices during the attack, as a share of those in the same time before it."""

    def line(self) -> str:
        return msgspec.json.encode(asdict(self)).decode()


@dataclass(frozen=True)
class Usage:
    """Memory and disk of one node."""

    rss_mb: float
    disk_mb: float


@dataclass
class Federation:
    """A cluster of real processes with honest devices; the attacker is one more device."""

    cluster: LocalCluster
    before: dict[str, Usage] = field(default_factory=dict)
    _counted: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    """By gateway: number of the last line of its journal that was read, and the devices of aggregated updates."""

    @property
    def gateway(self) -> str:
        return self.cluster.gateway_names[0]

    # Figures -----------------------------------------------------------------------------------------------------

    def usage(self) -> dict[str, Usage]:
        """Return memory and disk of cloud and gateways now."""
        names = ["cloud", *self.cluster.gateway_names]
        return {name: Usage(self._rss_mb(name), self._disk_mb(name)) for name in names}

    def mark(self) -> None:
        """Note memory and disk before an attack."""
        self.before = self.usage()

    def cores(self) -> int:
        """Return the number of cores that the gateway may use."""
        return len(os.sched_getaffinity(self._process(self.gateway)))

    def _process(self, name: str) -> int:
        process = self.cluster.nodes[name].process
        assert process is not None
        return process.pid

    def _rss_mb(self, name: str) -> float:
        pages = int(Path(f"/proc/{self._process(name)}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MB

    def _disk_mb(self, name: str) -> float:
        total = 0
        for path in self.cluster.state_of(name).rglob("*"):
            try:
                total += path.stat().st_size if path.is_file() else 0
            except FileNotFoundError:  # a file that was just removed
                continue
        return total / MB

    def records(self, node: str, kind: str) -> list[dict[str, Any]]:
        """Return the records of this kind in a node's journal, by field."""
        start = f'["{kind}"'.encode()
        return [self._fields(line) for _, line in self._lines(node) if line.startswith(start)]

    def _lines(self, node: str, after: int = 0) -> list[tuple[int, bytes]]:
        """Return the lines of a node's journal after the one with this number, with their numbers."""
        database = open_for_reading(self.cluster.state_of(node) / DATABASE)
        try:
            found = database.execute("SELECT number, line FROM journal WHERE number > ? ORDER BY number", (after,))
            return [(number, bytes(line)) for number, line in found]
        finally:
            database.close()

    @staticmethod
    def _fields(line: bytes) -> dict[str, Any]:
        kind, order, *learnt = msgspec.json.decode(line)
        names = columns()
        fields = dict(zip(names[kind][0], order, strict=True))
        if learnt:
            fields.update(zip(names[kind][1], learnt[0], strict=True))
        return fields

    def numbers(self) -> dict[str, int]:
        """Return the number of each device that has joined, by name."""
        database = open_for_reading(self.cluster.state_of("cloud") / DATABASE)
        try:
            (value,) = database.execute("SELECT value FROM facts WHERE key = 'numbers'").fetchone()
        finally:
            database.close()
        found: dict[str, int] = msgspec.msgpack.decode(value)["device"]
        return found

    def evil_numbers(self) -> set[int]:
        """Return the numbers of all attackers: their names begin in the same way."""
        return {number for name, number in self.numbers().items() if name.startswith(EVIL)}

    def harmed(self) -> list[dict[str, Any]]:
        """Return the records that show harm to honest devices: a job that was refused or dropped, a device that was
        refused or set aside, an update that was recorded as lost."""
        evil = self.evil_numbers()
        found: list[dict[str, Any]] = []
        for node in ("cloud", *self.cluster.gateway_names):
            jobs = [record for record in self.records(node, "job") if record["device"] not in evil]
            found += [record for record in jobs if record["reason"] in ("refused", "superseded", "device_lost")]
            about = [record for record in self.records(node, "lifecycle") if record["node"].startswith("d")]
            found += [
                record
                for record in about
                if int(record["node"][1:]) not in evil and record["what"] in ("refused", "device_given_up")
            ]
            found += [record for record in self.records(node, "lost") if record["device"] not in evil]
        return found

    def epochs(self) -> int:
        """Return the number of cloud epochs that were evaluated."""
        return len(self.records("cloud", "epoch"))

    async def final_model(self) -> HostVector:
        """End the run, and return the model that it has made."""
        await self.operate("drain")
        path = self.cluster.state_of("cloud") / "model.safetensors"
        end = time.monotonic() + HANG_GUARD_S
        while not path.exists():
            assert time.monotonic() < end, "the run does not end"
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)  # renamed when it is whole
        return np.concatenate([array.reshape(-1) for array in load_file(path).values()])

    def aggregated(self) -> int:
        """Return the number of updates of honest devices that gateways have aggregated."""
        evil = self.evil_numbers()
        for name in self.cluster.gateway_names:
            known, devices = self._counted.setdefault(name, (0, []))
            new = self._lines(name, known)
            jobs = (self._fields(line) for _, line in new if line.startswith(b'["job"'))
            devices += [job["device"] for job in jobs if job["reason"] == "aggregated"]
            self._counted[name] = (new[-1][0] if new else known, devices)
        return sum(device not in evil for _, devices in self._counted.values() for device in devices)

    def result(
        self, name: str, outcome: str, *, model_ok: bool, attribution_ok: bool, honest_share: float
    ) -> AttackResult:
        """Return the result of an attack that began at `mark`."""
        now = self.usage()
        rss = max(now[node].rss_mb - self.before[node].rss_mb for node in now)
        disk = max(now[node].disk_mb - self.before[node].disk_mb for node in now)
        return AttackResult(name, outcome, model_ok, attribution_ok, rss, disk, honest_share)

    def alive(self) -> bool:
        """True if no process has ended."""
        return all(node.running for node in self.cluster.nodes.values())

    async def until(self, what: str, holds: Callable[[], bool], guard_s: float = HANG_GUARD_S) -> None:
        """Wait for a condition; the guard ends a test that hangs."""
        end = time.monotonic() + guard_s
        while not holds():
            if time.monotonic() > end or not self.alive():
                logs = "\n".join(f"== {node.name}\n{node.log_tail()}" for node in self.cluster.nodes.values())
                raise AssertionError(f"never happened: {what}\n{logs}")
            await asyncio.sleep(0.05)

    async def updates(self, count: int) -> float:
        """Wait for this many more updates of honest devices; return how many there were a second."""
        start, began = self.aggregated(), time.monotonic()
        await self.until(f"{count} updates of honest devices", lambda: self.aggregated() >= start + count)
        return (self.aggregated() - start) / (time.monotonic() - began)

    async def rate(self, seconds: float) -> float:
        """Return the number of updates of honest devices a second, over this time."""
        start, began = self.aggregated(), time.monotonic()
        await asyncio.sleep(seconds)
        return (self.aggregated() - start) / (time.monotonic() - began)

    async def operate(self, kind: str) -> bytes:
        """Make an operator's call to the cloud."""
        credentials = Certified(self.cluster.certificates("operator"))
        return await operate(self.cluster.addresses["cloud"], "cloud", credentials, kind)

    # The attacker ------------------------------------------------------------------------------------------------

    def credentials(self, name: str = EVIL) -> Certified:
        """Return the attacker's credentials: one valid certificate of a device."""
        folder = self.cluster.certificates(name)
        if not folder.exists():
            Authority(self.cluster.folder / "certificates" / "authority").bundle("device", [name], folder)
        return Certified(folder)

    def outsider(self, name: str = EVIL) -> Attacker:
        """Return an attacker that has not joined."""
        evil = Attacker(name)
        evil.transport = Transport(evil, self.cluster.folder / f"{name}-spool")
        return evil

    @asynccontextmanager
    async def dialling(self, evil: Attacker, *, samples: int = 10, compute_s: float = 0.01) -> AsyncIterator[None]:
        """Dial the first gateway as a device that states these samples and seconds of training."""
        link = Link(
            evil.transport,
            self.cluster.addresses[self.gateway],
            "gateway",
            self.credentials(evil.name),
            joining=Joining("device", evil.name, evil.incarnation, 0, samples, compute_s),
            admitted=evil.admitted,
            refused=evil.refusals.append,
        )
        link.start()
        try:
            yield
        finally:
            evil.stop_dripping()
            await link.close()

    @asynccontextmanager
    async def attacker(self, name: str = EVIL, **stated: Any) -> AsyncIterator[Attacker]:
        """Join the first gateway as a device; wait for the session."""
        evil = self.outsider(name)
        async with self.dialling(evil, **stated):
            await self.until("the attacker has a session", lambda: evil.connected or bool(evil.refusals))
            yield evil

    @asynccontextmanager
    async def channel(self, name: str = EVIL) -> AsyncIterator[Any]:
        """A gRPC channel to the first gateway with the attacker's certificate, and nothing of our protocol on it."""
        target = self.cluster.addresses[self.gateway]
        async with self.credentials(name).channel(target, "gateway", calls.options(5.0, server=False)) as channel:
            yield channel


@asynccontextmanager
async def federation(
    folder: Path,
    *,
    gateways: int = 1,
    devices: int = 3,
    numbers: int = 2_000,
    settings: Sequence[str] = (),
    gateway_limits: str = "",
    task: str = "null",
    cores: Sequence[int] = (),
) -> AsyncIterator[Federation]:
    """A deployment of honest nodes that has finished its warm-up. `numbers`: in a model of the task `null`.
    `gateway_limits`: options of the shell's `ulimit` for the gateway processes. `cores`: the last of them is for this
    process, which attacks, and the others for the nodes; without them all share the machine."""
    chosen = (
        f"task.devices={devices}",
        f"network.gateways={gateways}",
        *((f"task.model_size={numbers}",) if task == "null" else ()),
        "cloud.epochs=100000",
        "cloud.linger=1",
        "gateway.linger=1",
        "gateway.epochs=4",
        "gateway.bandwidth=unlimited",
        *settings,
    )
    arguments = ["--task", task, "--seed", "1", *(part for text in chosen for part in ("--set", text))]
    plan = ClusterPlan(gateways, devices, devices, arguments, environment={"ASYNC_HFL_TRACEBACK": "1"})
    cluster = LocalCluster(folder, (sys.executable, "-m", "async_hfl.cli"), plan)
    await cluster.prepare()
    if gateway_limits:
        for name in cluster.gateway_names:
            node = cluster.nodes[name]
            node.arguments = ["sh", "-c", f'ulimit {gateway_limits} && exec "$@"', "sh", *node.arguments]
    honest = Federation(cluster)
    try:
        if cores:
            os.sched_setaffinity(0, cores[:-1])  # the nodes inherit it
        await cluster.start()
        if cores:
            os.sched_setaffinity(0, cores[-1:])
        databases = [cluster.state_of(name) / DATABASE for name in ("cloud", *cluster.gateway_names)]
        await honest.until("the nodes have disks", lambda: all(path.is_file() for path in databases))
        await honest.until("the cloud has a journal", lambda: _has_journal(honest))
        await honest.until("a second cloud epoch", lambda: honest.epochs() >= 2)
        yield honest
    finally:
        await cluster.stop()


def _has_journal(honest: Federation) -> bool:
    try:
        honest.epochs()
    except Exception:  # the tables are being made
        return False
    return True
