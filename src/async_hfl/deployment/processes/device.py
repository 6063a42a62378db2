"""Devices as a process: one or several, each a node with its own disk and sessions; one child trains for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import device_address
from async_hfl.core.protocol.records import Record
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.processes.gateway import Refused, ask_to_join
from async_hfl.deployment.processes.reconnect_deadline import GIVE_UP_S, Patience
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.message_validation import Facts, vetting
from async_hfl.deployment.shell.shell import Shell
from async_hfl.deployment.shell.wrapping import wrapped
from async_hfl.deployment.store.node_identity import NodeIdentity, draw_incarnation, keep_card, note_clock, read_card
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.training.child_process import LocalLearner, Ready
from async_hfl.deployment.training.service import DeviceWorkers, TrainingService
from async_hfl.deployment.transport.admission import Joining, Refusal
from async_hfl.deployment.transport.link import Link
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding.rounding import Encoding
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.reliability.delivery import ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

log = logging.getLogger("async_hfl.device")


@dataclass(frozen=True, slots=True)
class DevicePlan:
    names: Sequence[str]
    make: Callable[[NodeIdentity], DeviceNode]
    child: Callable[[NodeIdentity], Callable[[], tuple[LocalLearner, Ready]]]
    """Given what the cloud said: what the training process is to make. Raises UserError where it cannot be."""
    payload_budget: Callable[[NodeIdentity], int]
    slowdowns: Sequence[float] = ()
    """How many times as long each is to take as this machine does."""


class _Device:
    """One node of the process."""

    def __init__(self, store: NodeStore, card: NodeIdentity, inbox: Inbox) -> None:
        self.store = store
        self.card = card
        self.inbox = inbox
        self.links: list[Link] = []


class DeviceProcess:
    """`gateways`: for each device those that it can reach."""

    def __init__(
        self,
        plan: DevicePlan,
        states: Sequence[Path],
        gateways: Sequence[Sequence[str]],
        credentials: Credentials,
        wrote: Callable[[Record], None] = lambda record: None,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        """`give_up_s`: how long to try where no gateway answers any device of this process."""
        self.plan = plan
        self._give_up_s = give_up_s
        self._states = states
        self._gateways = [list(reached) for reached in gateways]
        self._credentials = credentials
        self._wrote = wrote
        self._told: Refusal | None = None

    async def run(self) -> None:
        """Until the run is over. Raises where it is not for us."""
        self._over = asyncio.Event()
        stores = [NodeStore.open(state) for state in self._states]
        try:
            devices = []
            for name, store, reached in zip(self.plan.names, stores, self._gateways, strict=True):
                card = await self._card(name, store, reached)
                if card is None:
                    return  # the run is over
                store.limit(self.plan.payload_budget(card))
                devices.append(_Device(store, card, Inbox()))
            await self._work(devices)
        finally:
            for store in stores:
                store.close()

    async def _card(self, name: str, store: NodeStore, reached: list[str]) -> NodeIdentity | None:
        card = read_card(store, "device", name)
        if card is not None:
            return card
        asked = Joining("device", name, draw_incarnation(), ready=False)
        answer = await ask_to_join(reached, "gateway", self._credentials, asked, self._give_up_s)
        if isinstance(answer, Refusal):
            if answer.kind == "finished":
                return None
            raise Refused(f"device {name} is refused: {answer.reason}")
        card = NodeIdentity(
            "device",
            name,
            answer.run,
            answer.number,
            asked.incarnation,
            answer.settings,
            answer.settings_digest,
            dict(answer.facts),
            answer.at,
        )
        keep_card(store, card)
        return card

    async def _work(self, devices: list[_Device]) -> None:
        if len({(device.card.run, device.card.settings_digest) for device in devices}) > 1:
            raise UserError("the devices of this process belong to different runs; give them new state directories")
        loop = asyncio.get_running_loop()
        inboxes = [device.inbox for device in devices]
        service = TrainingService(self.plan.child(devices[0].card), inboxes, self.plan.slowdowns)
        tasks: list[asyncio.Future[Any]] = []
        try:
            self._ready = await service.start()
            seconds = [round(spent.seconds, 3) for spent in self._ready.spent]
            log.info("ready: samples %s, seconds a training %s", self._ready.samples, seconds)
            tasks = [loop.create_task(self._live(place, device, service)) for place, device in enumerate(devices)]
            over = loop.create_task(self._over.wait())
            waiting = loop.create_task(self._patience().watch(lambda: _any_heard(devices)))
            tasks += [over, service.failed, waiting]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {over}:
                task.result()  # a node does not end by itself: raises what went wrong
            if self._told is not None and self._told.kind == "refused":
                raise Refused(f"refused: {self._told.reason}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Other gateways need not wait for us, to tell us what we know.
            goodbye = "" if self._told is None else self._told.reason
            await asyncio.gather(*(link.close(goodbye) for device in devices for link in device.links))
            await service.close()

    def _patience(self) -> Patience:
        """One gateway that answers one of our devices is enough: it would tell us if the run were over."""
        return Patience(self._give_up_s, ", ".join(dict.fromkeys(one for some in self._gateways for one in some)))

    async def _live(self, place: int, device: _Device, service: TrainingService) -> None:
        card, store, inbox = device.card, device.store, device.inbox
        transport = Transport(
            inbox,
            store.spool,
            encoding=Encoding(bool(card.facts["half"]), bool(card.facts["zstd"])),
            crowded=lambda: inbox.crowded,
            vet=vetting(device_address(card.number), Facts(int(card.facts["model_size"]))),
            is_known=lambda *packet: shell.is_known(*packet),
        )

        def make() -> ReliableNode:
            return wrapped(card, self.plan.make(card))

        hands = DeviceWorkers(place, int(card.facts["seed"]), service)
        shell = Shell(
            device_address(card.number),
            DurableNode(make, store),
            store,
            inbox,
            transport,
            hands,
            int(card.facts["model_bytes"]),
            began_at=card.began_at,
            share=float(card.facts["share"]),
            wrote=self._wrote,
        )
        samples, compute_s = self._ready.samples[place], self._ready.spent[place].seconds
        for target in self._gateways[place]:
            link = Link(
                transport,
                target,
                "gateway",
                self._credentials,
                joining=lambda: Joining(
                    "device",
                    card.name,
                    card.incarnation,
                    card.run,
                    settings_digest=card.settings_digest,
                    samples=samples,
                    compute_s=compute_s,
                ),
                admitted=lambda admission: note_clock(store, shell.clock.now(), admission.at),
                refused=self._refused,
            )
            device.links.append(link)
            link.start()
        await shell.run()

    def _refused(self, refusal: Refusal) -> None:
        if self._told is None:
            self._told = refusal
            self._over.set()


def _any_heard(devices: Sequence[_Device]) -> bool:
    return any(link.heard() for device in devices for link in device.links)
