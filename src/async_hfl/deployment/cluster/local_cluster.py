"""A deployment on one machine: cloud, gateways and devices as real processes that start and end together.

No process outlives the cluster. Links may lead through proxies, one per link, so that each can be slowed down or cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.deployment.cluster.proxy import LinkProxy, Shape
from async_hfl.deployment.identity.authority import Authority
from async_hfl.deployment.processes.parent_death import PARENT_VARIABLE

_LOOPBACK = "127.0.0.1"
_LEAVING_S = 10.0
_STRAGGLERS_S = 5.0
"""Time for which devices may go on running after the cloud and all gateways have ended."""
_GATEWAYS_S = 90.0
"""Time for which gateways may go on running after the cloud has ended: they wait for devices (`gateway.linger`)."""
_LOG_LINES = 12
_FIRST_PORT, _LAST_PORT = 15_000, 32_000


class NodeFailed(UserError):
    """A process of the cluster failed."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    gateways: int
    devices: int
    devices_per_process: int
    cloud_arguments: Sequence[str]
    """Settings of the run, as arguments of the cloud's command line."""
    secure: bool = True
    proxies: bool = False
    shape: Callable[[int, int], tuple[Shape, Shape]] = lambda device, gateway: (Shape(), Shape())
    """Returns (up, down) for the link between a device and a gateway, both numbered from 0; used with proxies."""
    slowdowns: Sequence[float] = ()
    """Factors by which the training of each device is slowed down; empty for none."""
    device_arguments: Sequence[str] = ()
    """Further arguments for every device process."""
    environment: dict[str, str] = field(default_factory=dict)


class Node:
    """One process of the cluster; it may be restarted with the same state and port."""

    def __init__(self, name: str, arguments: Sequence[str], state: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.state = state
        self.log = state.with_suffix(".log")
        self.arguments = list(arguments)
        self._environment = environment
        self.process: Process | None = None

    async def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **self._environment, PARENT_VARIABLE: str(os.getpid())}
        with self.log.open("ab") as log, self.log.with_suffix(".out").open("ab") as out:
            # A session of its own, so that Ctrl-C reaches only the launcher, which then ends its processes.
            self.process = await asyncio.create_subprocess_exec(
                *self.arguments, stdout=out, stderr=log, env=environment, start_new_session=True
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def wait(self) -> int:
        assert self.process is not None
        return await self.process.wait()

    def log_tail(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-_LOG_LINES:])


class LocalCluster:
    def __init__(self, folder: Path, command: Sequence[str], plan: ClusterPlan) -> None:
        """`command`: the interpreter and the program, with which every command line begins."""
        self.folder = folder
        self.plan = plan
        self._command = list(command)
        self.nodes: dict[str, Node] = {}
        self.hosts: list[Node] = []
        """The device processes."""
        self.links: dict[tuple[str, str], LinkProxy] = {}
        """Proxies by (device, gateway)."""
        self.addresses: dict[str, str] = {}

    @property
    def gateway_names(self) -> list[str]:
        return [f"gateway-{number + 1}" for number in range(self.plan.gateways)]

    @property
    def device_names(self) -> list[str]:
        return [f"device-{number + 1}" for number in range(self.plan.devices)]

    async def prepare(self) -> None:
        """Choose ports, issue certificates, open proxies and compose command lines; start no process yet."""
        plan = self.plan
        ports = _free_ports(1 + plan.gateways)
        names = ["cloud", *self.gateway_names]
        self.addresses = {name: f"{_LOOPBACK}:{port}" for name, port in zip(names, ports, strict=True)}
        authority = Authority.create(self.folder / "certificates" / "authority", "cluster") if plan.secure else None
        if authority is not None:
            authority.bundle("operator", ["operator"], self.certificates("operator"))
        cloud = ["cloud", *plan.cloud_arguments, "--listen", self.addresses["cloud"]]
        self._add("cloud", "cloud", ["cloud"], cloud, authority)
        for name in self.gateway_names:
            arguments = ["gateway", "--cloud", self.addresses["cloud"], "--listen", self.addresses[name]]
            self._add(name, "gateway", [name], arguments, authority)
        if plan.proxies:
            await self._open_links()
        devices, each = self.device_names, plan.devices_per_process
        for start in range(0, len(devices), each):
            mine = devices[start : start + each]
            parts = ",".join(f"{start + place + 1}/{len(devices)}" for place in range(len(mine)))
            gateways = ";".join(self._gateways_of(name) for name in mine)
            arguments = ["device", "--gateways", gateways, "--shard", parts, *plan.device_arguments]
            slow = plan.slowdowns[start : start + each]
            if any(factor > 1 for factor in slow):
                arguments += ["--slowdown", ",".join(map(repr, slow))]
            host = mine[0] if len(mine) == 1 else f"devices-{start + 1}-{start + len(mine)}"
            self.hosts.append(self._add(host, "device", mine, arguments, authority))

    def _gateways_of(self, device: str) -> str:
        if not self.plan.proxies:
            return ",".join(self.addresses[name] for name in self.gateway_names)
        return ",".join(f"{_LOOPBACK}:{self.links[device, name].port}" for name in self.gateway_names)

    async def _open_links(self) -> None:
        for device, device_name in enumerate(self.device_names):
            for gateway, gateway_name in enumerate(self.gateway_names):
                host, _, port = self.addresses[gateway_name].rpartition(":")
                up, down = self.plan.shape(device, gateway)
                link = LinkProxy((host, int(port)), up=up, down=down, seed=device * self.plan.gateways + gateway)
                await link.open()
                self.links[device_name, gateway_name] = link

    def certificates(self, name: str) -> Path:
        return self.folder / "certificates" / name

    def state_of(self, name: str) -> Path:
        return self.folder / "nodes" / name

    def _add(self, name: str, role: str, nodes: list[str], arguments: list[str], authority: Authority | None) -> Node:
        if authority is None:
            trust = ["--insecure"]
        else:
            authority.bundle(role, nodes, self.certificates(name))
            trust = ["--certificates", str(self.certificates(name))]
        state = self.state_of(name)
        folder = state if len(nodes) == 1 else state.parent
        rest = ["--name", ",".join(nodes), "--state", str(folder), *trust]
        node = Node(name, [*self._command, *arguments, *rest], state, self.plan.environment)
        self.nodes[name] = node
        return node

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    async def wait(self, tick: Callable[[], None] = lambda: None, tick_s: float = 0.5) -> None:
        """Wait until every process has ended, and call `tick` periodically. Raises NodeFailed if a process failed."""
        ended: set[str] = set()
        cloud_gone: float | None = None
        alone_since: float | None = None
        while True:
            tick()
            waiting = [node for node in self.nodes.values() if node.running]
            # A node that missed the goodbye would keep dialling, like a node in the field: end it here.
            now = time.monotonic()
            cloud_gone = None if self.nodes["cloud"] in waiting else cloud_gone or now
            alone_since = alone_since or now if all(node in self.hosts for node in waiting) else None
            left_alone = alone_since is not None and now - alone_since > _STRAGGLERS_S
            if left_alone or (cloud_gone is not None and now - cloud_gone > _GATEWAYS_S):
                ended |= {node.name for node in waiting}
                for node in waiting:
                    node.kill(signal.SIGTERM)
            for node in self.nodes.values():
                code = None if node.process is None else node.process.returncode
                if node.name not in ended and code not in (None, 0):
                    raise NodeFailed(f"{node.name} ended with code {code}; its log is {node.log}\n{node.log_tail()}")
            if not waiting:
                return
            tasks: list[asyncio.Task[Any]] = [asyncio.ensure_future(node.wait()) for node in waiting]
            await asyncio.wait(tasks, timeout=tick_s, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """End all running processes: by SIGTERM, then by SIGKILL."""
        running = [node for node in self.nodes.values() if node.running]
        for node in running:
            node.kill(signal.SIGTERM)
        if running:
            ends = [asyncio.ensure_future(node.wait()) for node in running]
            _, late = await asyncio.wait(ends, timeout=_LEAVING_S)
            for node in running:
                if node.running:
                    node.kill()
            if late:
                await asyncio.wait(late)
        for link in self.links.values():
            await link.close()


def _free_ports(count: int) -> list[int]:
    """Return free ports below the ephemeral range, so that no other socket takes one before the processes listen."""
    ports: list[int] = []
    while len(ports) < count:
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((_LOOPBACK, port))
            if port not in ports:
                ports.append(port)
    return ports
