"""The device process: one or several devices, each a node with its own disk and sessions; one child trains for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.core.protocol.records import Record
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.processes.node_process import NodeProcess, Refused, join_run
from async_hfl.deployment.processes.reconnect_deadline import GIVE_UP_S, ReconnectDeadline
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.deployment.store.node_store import NodeStore
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
    """Returns what the training process calls to load its task. Raises UserError if that is impossible."""
    payload_budget: Callable[[NodeIdentity], int]
    slowdowns: Sequence[float] = ()
    """Factors by which the training of each device is slowed down; empty for none."""


class DeviceProcess:
    """The devices of a process. `gateways`: for each device, the addresses that it can reach."""

    def __init__(
        self,
        plan: DevicePlan,
        states: Sequence[Path],
        gateways: Sequence[Sequence[str]],
        credentials: Credentials,
        wrote: Callable[[Record], None] = lambda record: None,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        """`give_up_s`: how long to try while no gateway answers any device of this process."""
        self.plan = plan
        self._states = states
        self._gateways = gateways
        self._credentials = credentials
        self._wrote = wrote
        self._give_up_s = give_up_s
        self._refusal: Refusal | None = None

    async def run(self) -> None:
        """Run until the end of the run. Raises Refused if the cloud refuses a device."""
        self._over = asyncio.Event()
        stores = [NodeStore.open(state) for state in self._states]
        try:
            identities = []
            for name, store, targets in zip(self.plan.names, stores, self._gateways, strict=True):
                identity = await join_run(store, "device", name, targets, self._credentials, self._give_up_s)
                if identity is None:
                    return  # the run is over
                store.limit(self.plan.payload_budget(identity))
                identities.append(identity)
            if len({(identity.run, identity.settings_digest) for identity in identities}) > 1:
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
                process = NodeProcess(store, identity, inbox, self.plan.make, workers, wrote=self._wrote)
                tasks.append(loop.create_task(process.shell.run()))
                samples, compute_s = ready.samples[place], ready.spent[place].seconds
                links += [
                    process.link(target, "gateway", self._credentials, self._told, samples=samples, compute_s=compute_s)
                    for target in self._gateways[place]
                ]
            await asyncio.sleep(0)  # let the shells restore their state before anybody is dialled
            for link in links:
                link.start()
            # One gateway that answers one of the devices is enough: it would say if the run were over.
            targets = dict.fromkeys(target for reached in self._gateways for target in reached)
            deadline = ReconnectDeadline(self._give_up_s, ", ".join(targets))
            over = loop.create_task(self._over.wait())
            contacts = deadline.watch(lambda: sum(link.take_contact() for link in links) > 0)
            tasks += [over, service.failed, loop.create_task(contacts)]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {over}:
                task.result()  # a node does not end by itself: raises its error
            if self._refusal is not None and self._refusal.kind == "refused":
                raise Refused(f"refused: {self._refusal.reason}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # With a goodbye, the other gateways need not wait to say that the run is over.
            goodbye = "" if self._refusal is None else self._refusal.reason
            await asyncio.gather(*(link.close(goodbye) for link in links))
            await service.close()

    def _told(self, refusal: Refusal) -> None:
        if self._refusal is None:
            self._refusal = refusal
            self._over.set()
