"""Random faults on a running cluster: processes are killed and stopped, links are cut, and disks fill up.

Every fault ends after some seconds, and several last at a time. All are drawn from a seed; what the processes do
meanwhile depends on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from async_hfl.core.randomness import stream
from async_hfl.deployment.cluster.local_cluster import LocalCluster, Node
from async_hfl.deployment.cluster.small_disks import SmallDisk

T = TypeVar("T")
_AT_ONCE = 2
"""Faults that last at a time."""
_EXIT_DISK_FULL = _EXIT_BY_MISTAKE = 2
_NOT_READY = "the training process ended before it was ready"
_TRAINING_S = 3.0
_NOTICED_S = 20.0
"""A full disk has room again after this time, if the node has not ended before: its database may reuse space."""


class Chaos:
    def __init__(self, cluster: LocalCluster, disks: Mapping[str, SmallDisk], seed: int) -> None:
        """`disks`: disks that can be filled, by node."""
        self.counts: Counter[str] = Counter()
        """Faults by kind."""
        self.unexpected: list[str] = []
        """Processes that ended although no fault had asked for it."""
        self._cluster = cluster
        self._disks = disks
        self._rng = stream(seed, "chaos")
        self._hit: set[str] = set()
        """Nodes and devices that a fault concerns now."""
        self._ending = False

    async def play(self, seconds: float) -> None:
        """Cause faults for some time; return when all have ended, and every process runs."""
        until = time.monotonic() + seconds
        watching = asyncio.ensure_future(self._watch())
        try:
            await asyncio.gather(*(self._cause(until) for _ in range(_AT_ONCE)))
        finally:
            self._ending = True
            await watching

    async def _cause(self, until: float) -> None:
        rng = self._rng
        faults: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (5, self._kill),
            (2, self._stop),
            (4, self._cut),
            (1, self._kill_training),
            (1 if self._disks else 0, self._fill_disk),
        ]
        while time.monotonic() < until:
            await asyncio.sleep(rng.uniform(1.0, 6.0))
            weights = np.array([weight for weight, _ in faults], float)
            await faults[int(rng.choice(len(faults), p=weights / weights.sum()))][1]()

    async def _watch(self) -> None:
        """Note and restart processes that have ended by themselves."""
        while not self._ending:
            for node in self._cluster.nodes.values():
                if node.name not in self._hit and not node.running:
                    assert node.process is not None
                    self.unexpected.append(f"{node.name} ended with {node.process.returncode}:\n{node.log_tail()}")
                    await node.start()
            await asyncio.sleep(0.5)

    # Faults --------------------------------------------------------------------------------------------------------

    def _pick(self, among: Sequence[T]) -> T:
        return among[int(self._rng.integers(len(among)))]

    def _choose(self, among: list[Node]) -> Node | None:
        free = [node for node in among if node.name not in self._hit]
        return self._pick(free) if free else None

    async def _kill(self) -> None:
        cluster, rng = self._cluster, self._rng
        clouds, gateways = [cluster.nodes["cloud"]], [cluster.nodes[name] for name in cluster.gateway_names]
        role, nodes = self._pick([("cloud", clouds), ("gateway", gateways), ("device", cluster.hosts)])
        if (node := self._choose(nodes)) is None:
            return
        self._hit.add(node.name)
        node.kill()
        await node.wait()
        self.counts[f"{role} killed"] += 1
        await asyncio.sleep(self._pick((0.0, rng.uniform(0.0, 6.0))))
        await node.start()
        self._hit.remove(node.name)

    async def _kill_training(self) -> None:
        """Kill the processes in which a device process trains."""
        if (node := self._choose(self._cluster.hosts)) is None or node.process is None:
            return
        self._hit.add(node.name)
        for child in _children(node.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                self.counts["training process killed"] += 1
        # A device process that is still waiting for its training process to be ready says so, and ends.
        with contextlib.suppress(TimeoutError):
            code = await asyncio.wait_for(node.wait(), _TRAINING_S)
            if code != _EXIT_BY_MISTAKE or _NOT_READY not in node.log_tail():
                self.unexpected.append(f"{node.name} ended with {code}:\n{node.log_tail()}")
            await node.start()
        self._hit.remove(node.name)

    async def _stop(self) -> None:
        if (node := self._choose(list(self._cluster.nodes.values()))) is None:
            return
        self._hit.add(node.name)
        node.kill(signal.SIGSTOP)
        self.counts["process stopped"] += 1
        await asyncio.sleep(self._rng.uniform(0.2, 12.0))
        node.kill(signal.SIGCONT)
        self._hit.remove(node.name)

    async def _cut(self) -> None:
        """Cut all links of a device, or of a gateway to its devices; some go silent, others are reset."""
        cluster, rng = self._cluster, self._rng
        end = self._pick([*cluster.device_names, *cluster.gateway_names])
        key = f"links of {end}"
        links = [link for ends, link in cluster.links.items() if end in ends]
        if key in self._hit:
            return
        self._hit.add(key)
        silent = rng.random() < 0.5
        for link in links:
            if silent:
                link.stall(up=True, down=rng.random() < 0.8)
            else:
                link.refuse()
        self.counts["links silent" if silent else "links cut"] += 1
        await asyncio.sleep(rng.uniform(0.3, 10.0))
        for link in links:
            link.reset()
            link.heal()
        self._hit.remove(key)

    async def _fill_disk(self) -> None:
        if (node := self._choose([self._cluster.nodes[name] for name in self._disks])) is None:
            return
        self._hit.add(node.name)
        disk = self._disks[node.name]
        disk.fill()
        try:
            code = await asyncio.wait_for(node.wait(), _NOTICED_S)
            self.counts["disk full, node ended"] += 1
            if code != _EXIT_DISK_FULL:
                self.unexpected.append(f"{node.name} ended with {code} when its disk was full:\n{node.log_tail()}")
            await asyncio.sleep(self._rng.uniform(0.0, 3.0))
        except TimeoutError:
            self.counts["disk full, transfers refused"] += 1
        disk.make_room()
        if not node.running:
            await node.start()
        self._hit.remove(node.name)


def _children(process: int) -> list[int]:
    """Return the child processes of a process."""
    try:
        tasks = list(Path(f"/proc/{process}/task").glob("*/children"))
        return [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:
        return []  # it has ended, or this is not Linux
