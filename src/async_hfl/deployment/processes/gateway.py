"""A gateway as a process: joins the cloud, is joined by devices, and passes their names on to the cloud."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from async_hfl.core.errors import PeerError, UserError
from async_hfl.core.identifiers import CLOUD, gateway_address
from async_hfl.core.protocol.events import Received
from async_hfl.core.protocol.messages import Finish
from async_hfl.core.protocol.records import LateRecord, Record
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.operations.operators import JOURNAL, answer_journal
from async_hfl.deployment.operations.status import gateway_digest
from async_hfl.deployment.operations.telemetry import WATCHED, Telemetry
from async_hfl.deployment.processes.listen_address import Listening
from async_hfl.deployment.processes.reconnect_deadline import GIVE_UP_S, Patience
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.message_validation import Facts, vetting
from async_hfl.deployment.shell.shell import Ended, NoWorkers, Shell
from async_hfl.deployment.shell.transfer_progress import watch_progress
from async_hfl.deployment.shell.wrapping import wrapped
from async_hfl.deployment.store.node_identity import NodeIdentity, draw_incarnation, keep_card, note_clock, read_card
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal
from async_hfl.deployment.transport.link import Link, LinkError, enlist
from async_hfl.deployment.transport.server import Server
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding.rounding import Encoding
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

log = logging.getLogger("async_hfl.gateway")
_ASK_AGAIN_S = 1.0
_GOODBYE_S = 5.0
"""At the end: the cloud says goodbye when it has our receipt; leaving before would cut that off on its way."""
_LOOK_S = 0.1
_NO_LIMIT = 1e15
_TOLD_LATE = 20


class Refused(UserError):
    """The cloud does not want this node."""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    name: str
    make: Callable[[NodeIdentity], GatewayNode]
    payload_budget: Callable[[NodeIdentity], int]
    linger_s: Callable[[NodeIdentity], float]
    """How long to stay at the end for devices that have not heard of it."""


async def ask_to_join(
    targets: list[str], server: str, credentials: Credentials, joining: Joining, give_up_s: float
) -> Admission | Refusal:
    """Whoever answers first; not yet and nobody there mean: later. UnreachableError where nobody was there for
    `give_up_s`."""
    told = ""
    patience = Patience(give_up_s, ", ".join(targets))
    while True:
        for target in targets:
            try:
                answer = await enlist(target, server, credentials, joining)  # type: ignore[arg-type]
            except LinkError as error:
                why = f"{target}: {error}"
            else:
                if isinstance(answer, Admission) or answer.kind != "not_yet":
                    return answer
                patience.heard()
                why = f"{target}: {answer.reason}"
            if why != told:
                log.info("waiting for an answer: %s", why)
                told = why
        patience.check()
        await asyncio.sleep(_ASK_AGAIN_S)


class GatewayProcess:
    def __init__(
        self,
        plan: GatewayPlan,
        state: Path,
        cloud: str,
        listen: str,
        credentials: Credentials,
        wrote: Callable[[Record], None] = lambda record: None,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        """`give_up_s`: how long to try where the cloud does not answer."""
        self.plan = plan
        self._give_up_s = give_up_s
        self.state = state
        self._cloud = cloud
        self._listen = listen
        self._credentials = credentials
        self._wrote = wrote
        self._refused: Refusal | None = None
        self._admitted: dict[str, Admission] = {}
        self._late: list[str] = []
        """Updates that the run ended before."""
        self._seen: set[str] = set()
        """Names of devices that asked to join."""

    async def run(self) -> Ended:
        with NodeStore.open(self.state) as self.store:
            card = read_card(self.store, "gateway", self.plan.name)
            if card is None:
                asked = Joining("gateway", self.plan.name, draw_incarnation())
                answer = await ask_to_join([self._cloud], "cloud", self._credentials, asked, self._give_up_s)
                if isinstance(answer, Refusal):
                    if answer.kind == "finished":
                        return Ended("")
                    raise Refused(f"the cloud at {self._cloud} refuses gateway {self.plan.name}: {answer.reason}")
                card = NodeIdentity(
                    "gateway",
                    self.plan.name,
                    answer.run,
                    answer.number,
                    asked.incarnation,
                    answer.settings,
                    answer.settings_digest,
                    dict(answer.facts),
                    answer.at,
                )
                keep_card(self.store, card)
            self.card = card
            self.store.limit(self.plan.payload_budget(card))
            return await self._run(card)

    async def _run(self, card: NodeIdentity) -> Ended:
        self._inbox = inbox = Inbox()
        self._over = asyncio.Event()
        self._address = gateway_address(card.number)
        transport = Transport(
            inbox,
            self.store.spool,
            encoding=Encoding(bool(card.facts["half"]), bool(card.facts["zstd"])),
            crowded=lambda: inbox.crowded,
            vet=vetting(self._address, Facts(int(card.facts["model_size"]))),
            is_known=lambda *packet: shell.is_known(*packet),
            digests=lambda sender, data: telemetry.watched() if data == WATCHED else None,
        )

        def make() -> ReliableNode:
            return wrapped(card, self.plan.make(card))

        node = DurableNode(make, self.store)
        self._node = node
        self._server = server = Server(
            transport,
            (listening := Listening(self.store, self.state, self._listen)).wanted,
            self._admit,
            self._credentials,
            serves=frozenset({"device"}),
            operate=self._operate,
        )
        telemetry = Telemetry(
            lambda: gateway_digest(self._gateway, _total(transport)), lambda data: transport.send_digest(CLOUD, data)
        )
        self._shell = shell = Shell(
            self._address,
            node,
            self.store,
            inbox,
            transport,
            NoWorkers(),
            int(card.facts["model_bytes"]),
            began_at=card.began_at,
            linger_s=_GOODBYE_S,
            stays=lambda: not self._over.is_set(),
            share=float(card.facts["share"]),
            wrote=self._noted,
            handled=self._pace,
        )
        running = asyncio.get_running_loop().create_task(shell.run())
        await asyncio.sleep(0)
        self._pace()
        link = Link(
            transport,
            self._cloud,
            "cloud",
            self._credentials,
            joining=lambda: Joining(
                "gateway", card.name, card.incarnation, card.run, settings_digest=card.settings_digest
            ),
            admitted=lambda admission: note_clock(self.store, shell.clock.now(), admission.at),
            refused=self._told,
        )
        over = asyncio.get_running_loop().create_task(self._over.wait())
        moving = asyncio.get_running_loop().create_task(watch_progress(transport, inbox))
        patience = Patience(self._give_up_s, f"the cloud at {self._cloud}")
        waiting = asyncio.get_running_loop().create_task(patience.watch(link.heard))
        try:
            listening.announce(await server.start())
            link.start()
            await asyncio.wait([running, over, waiting], return_when=asyncio.FIRST_COMPLETED)
            if waiting.done() and not over.done() and not running.done():
                waiting.result()  # raises
            if self._refused is not None and self._refused.kind == "refused":
                raise Refused(f"the cloud refuses gateway {card.name}: {self._refused.reason}")
            ended = await running
            finished = Refusal("finished", "the run is over", self._gateway.state.final_model)
            self._tell_of_late()
            if not ended.reason:
                await server.goodbye(lambda _: finished)
                await self._tell_latecomers(self.plan.linger_s(card))
            return ended
        finally:
            telemetry.close()
            for task in (running, over, moving, waiting):
                task.cancel()
            await link.close()
            await server.close()

    @property
    def _gateway(self) -> GatewayNode:
        node = self._node.node.node
        assert isinstance(node, GatewayNode)
        return node

    async def _tell_latecomers(self, patience_s: float) -> None:
        """Devices that asked to join and did not take our goodbye would dial for a long time: stay to tell them."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while (untold := self._seen - self._server.told) and loop.time() < until:
            await asyncio.sleep(_LOOK_S)
        if untold:
            log.warning("not told that the run is over, since they were not there: %s", ", ".join(sorted(untold)))

    async def _operate(self, kind: str, payload: bytes) -> bytes:
        if kind == JOURNAL:
            return await answer_journal(self.state)
        raise PeerError(f"a gateway does not know the operation {kind!r}; the cloud may")

    def _told(self, refusal: Refusal) -> None:
        self._refused = refusal
        self._over.set()
        if refusal.kind == "finished":
            # As the message would, which did not reach us; if it did, this one comes to nothing.
            finish = Finish(refusal.epoch, refusal.outcomes, refusal.detail)
            self._inbox.put(lambda at: Received(at, CLOUD, finish))
        self._shell.wake()

    def _noted(self, record: Record) -> None:
        if isinstance(record, LateRecord):
            self._late.append(str(record.job))
        self._wrote(record)

    def _tell_of_late(self) -> None:
        """What devices were told that we have, and is in no model: not lost, but too late."""
        if self._late:
            more = ", ..." if len(self._late) > _TOLD_LATE else ""
            log.warning(
                "the run ended before the cloud had %d of the updates that were acknowledged here (`late` in the "
                "journal): %s%s",
                len(self._late),
                ", ".join(self._late[:_TOLD_LATE]),
                more,
            )

    def _pace(self) -> None:
        bandwidth = self._gateway.state.bandwidth
        rate = math.inf if bandwidth >= _NO_LIMIT else bandwidth
        if self._server.pacing.down.rate != rate:
            self._server.pacing.down.rate = self._server.pacing.up.rate = rate

    async def _admit(self, joining: Joining, probe_s: float) -> Admission | Refusal:
        """A device: the cloud decides. Without it, one that was here before may come back."""
        if joining.role != "device":
            return Refusal("refused", f"a {joining.role} does not join a gateway; give it the cloud's address")
        self._seen.add(joining.name)
        if joining.run not in (0, self.card.run):
            return Refusal(
                "refused",
                f"device {joining.name} belongs to run {joining.run:x}, this is run {self.card.run:x}: start it with a "
                "new state directory",
            )
        try:
            passed_on = replace(joining, via=self._address)
            answer = await enlist(self._cloud, "cloud", self._credentials, passed_on, probe_s)
        except PeerError as error:
            known = self._admitted.get(joining.name)
            if known is not None:
                return known
            return Refusal("not_yet", f"the gateway cannot reach the cloud ({error})")
        if isinstance(answer, Admission) and joining.ready:
            self._admitted[joining.name] = answer
        return answer


def _total(transport: Transport) -> tuple[int, int]:
    """Bytes sent and received."""
    counted = transport.traffic().values()
    return sum(one.sent for one in counted), sum(one.received for one in counted)
