"""The device process: one or several devices, each with its own state and sessions, and one child that trains them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.core.protocol.records import Record
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.processes.node_process import NodeProcess, Refused, join_run
from async_hfl.deployment.processes.reconnect_deadline import GIVE_UP_S, ReconnectDeadline
from async_hfl.deployment.processes.went_back import WentBack
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.deployment.store.node_store import Budget, NodeStore
from async_hfl.deployment.training.child_process import LocalLearner, Ready
from async_hfl.deployment.training.service import DeviceWorkers, TrainingService
from async_hfl.deployment.transport.admission import Refusal
from async_hfl.deployment.transport.link import Link
from async_hfl.nodes.device import DeviceNode

log = logging.getLogger("async_hfl.device")


@dataclass(frozen=True, slots=True)
class DevicePlan:
    names: Sequence[str]
    make: Callable[[NodeIdentity], DeviceNode]
    child: Callable[[NodeIdentity], Callable[[], tuple[LocalLearner, Ready]]]
    """Returns the function with which the training process loads its task. Raises UserError if that is impossible."""
    budget: Callable[[NodeIdentity], Budget]
    slowdowns: Sequence[float] = ()
    """Factors by which the training of each device is slowed down; empty for none."""


@dataclass(slots=True)
class DeviceProcess:
    plan: DevicePlan
    states: Sequence[Path]
    """State directory of each device."""
    gateways: Sequence[Sequence[str]]
    """For each device, the addresses of the gateways that it can reach."""
    credentials: Credentials
    wrote: Callable[[Record], None] = lambda record: None
    give_up_s: float = GIVE_UP_S
    """The process ends if no gateway answers any of its devices for this long."""
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _refusal: Refusal | None = None
    _went_back: WentBack | None = None

    async def run(self) -> None:
        """Run to the end. Raises Refused if the cloud refuses a device."""
        stores = [NodeStore.open(state) for state in self.states]
        try:
            identities = []
            for name, store, targets in zip(self.plan.names, stores, self.gateways, strict=True):
                identity = await join_run(store, "device", name, targets, self.credentials, self.give_up_s)
                if identity is None:
                    return  # the run is over
                store.limit(self.plan.budget(identity))
                identities.append(identity)
            if len({identity.run for identity in identities}) > 1:
                raise UserError("the devices of this process belong to different runs; give them new state directories")
            await self._run(stores, identities)
        finally:
            for store in stores:
                store.close()

    async def _run(self, stores: Sequence[NodeStore], identities: Sequence[NodeIdentity]) -> None:
        loop = asyncio.get_running_loop()
        inboxes = [Inbox(store.adopt) for store in stores]
        service = TrainingService(self.plan.child(identities[0]), inboxes, self.plan.slowdowns)
        tasks: list[asyncio.Future[Any]] = []
        links: list[Link] = []
        try:
            ready = await service.start()
            seconds = [round(spent.seconds, 3) for spent in ready.spent]
            log.info("ready: samples %s, seconds a training %s", ready.samples, seconds)
            for place, (store, identity, inbox) in enumerate(zip(stores, identities, inboxes, strict=True)):
                workers = DeviceWorkers(place, int(identity.facts["seed"]), service)
                process = NodeProcess(store, identity, inbox, self.plan.make, workers, wrote=self.wrote)
                tasks.append(loop.create_task(process.shell.run()))
                samples, compute_s = ready.samples[place], ready.spent[place].seconds
                links += [
                    process.link(
                        target,
                        "gateway",
                        self.credentials,
                        partial(self._end, place),
                        samples=samples,
                        compute_s=compute_s,
                    )
                    for target in self.gateways[place]
                ]
            await asyncio.sleep(0)  # let the shells restore their nodes before any gateway is dialled
            for link in links:
                link.start()
            # Contact of one device with one gateway is enough: the gateway would say if the run were over.
            targets = dict.fromkeys(target for reached in self.gateways for target in reached)
            deadline = ReconnectDeadline(self.give_up_s, ", ".join(targets))
            over = loop.create_task(self._over.wait())
            contacts = deadline.watch(lambda: sum(link.take_contact() for link in links) > 0)
            tasks += [over, service.failed, loop.create_task(contacts)]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {over}:
                task.result()  # raises: a device's shell ends only by an error
            if self._went_back is not None:
                raise self._went_back
            if self._refusal is not None and self._refusal.kind == "refused":
                raise Refused(f"refused: {self._refusal.reason}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # After a goodbye, the other gateways need not wait to inform this device.
            goodbye = "" if self._refusal is None else self._refusal.reason
            await asyncio.gather(*(link.close(goodbye) for link in links))
            await service.close()

    def _end(self, place: int, refusal: Refusal) -> None:
        if self._refusal is None:
            if refusal.kind == "went_back":
                self._went_back = WentBack(self.states[place], refusal.reason)
            self._refusal = refusal
            self._over.set()
