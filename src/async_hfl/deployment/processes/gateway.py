"""The gateway process: joins the cloud, serves devices, and forwards their requests to join."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD, JobId, device_address
from async_hfl.core.protocol.events import Received
from async_hfl.core.protocol.messages import Finish
from async_hfl.core.protocol.records import LateRecord, Record
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.operations.node_journal import read_lines
from async_hfl.deployment.operations.operators import JOURNAL, answer_journal
from async_hfl.deployment.operations.status import gateway_digest
from async_hfl.deployment.operations.telemetry import WATCHED, Telemetry
from async_hfl.deployment.processes.listen_address import ListenAddress
from async_hfl.deployment.processes.node_process import NodeProcess, Refused, join_run, older_copy, wrong_run
from async_hfl.deployment.processes.reconnect_deadline import GIVE_UP_S, ReconnectDeadline
from async_hfl.deployment.processes.went_back import WentBack
from async_hfl.deployment.shell.inbox import Inbox, watch_progress
from async_hfl.deployment.shell.shell import Workers
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.deployment.store.node_store import Budget, NodeStore
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal
from async_hfl.deployment.transport.link import enlist
from async_hfl.deployment.transport.server import Server
from async_hfl.nodes.gateway.node import GatewayNode

log = logging.getLogger("async_hfl.gateway")
_GOODBYE_S = 5.0
"""Time to wait at the end for the cloud's goodbye, which follows this gateway's last receipt."""
_POLL_S = 0.1
_NO_LIMIT = 1e15
_LATE_SHOWN = 20
_FORWARDS = 16
"""Requests to join that are forwarded at a time: each is a connection to the cloud, which limits them."""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    name: str
    make: Callable[[NodeIdentity], GatewayNode]
    budget: Callable[[NodeIdentity], Budget]
    linger_s: Callable[[NodeIdentity], float]
    """Seconds to wait at the end for devices that do not know that the run is over."""


@dataclass(slots=True)
class GatewayProcess:
    plan: GatewayPlan
    state: Path
    cloud: str
    listen: str
    credentials: Credentials
    wrote: Callable[[Record], None] = lambda record: None
    give_up_s: float = GIVE_UP_S
    """The process ends if the cloud does not answer for this long."""
    _process: NodeProcess[GatewayNode] = field(init=False)
    _server: Server = field(init=False)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _refusal: Refusal | None = None
    _admitted: dict[str, Admission] = field(default_factory=dict)
    _joined: set[str] = field(default_factory=set)
    """Names of devices that asked to join."""
    _forwarding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_FORWARDS))

    async def run(self) -> str:
        """Run to the end; return the reason for stopping, empty at a normal end."""
        with NodeStore.open(self.state) as store:
            identity = await join_run(store, "gateway", self.plan.name, [self.cloud], self.credentials, self.give_up_s)
            if identity is None:
                return ""
            store.limit(self.plan.budget(identity))
            return await self._run(store, identity)

    async def _run(self, store: NodeStore, identity: NodeIdentity) -> str:
        self._process = process = NodeProcess(
            store,
            identity,
            Inbox(store.adopt),
            self.plan.make,
            Workers(),
            digests=lambda sender, data: telemetry.watched() if data == WATCHED else None,
            linger_s=_GOODBYE_S,
            stays=lambda: not self._over.is_set(),
            wrote=self.wrote,
            handled=self._apply_bandwidth,
        )
        transport = process.transport
        listening = ListenAddress(store, self.state, self.listen)
        self._server = server = Server(
            transport,
            listening.wanted,
            self._admit,
            self.credentials,
            serves=frozenset({"device"}),
            operate=self._operate,
        )
        telemetry = Telemetry(
            lambda: gateway_digest(process.node, transport.traffic().values()),
            lambda data: transport.send_digest(CLOUD, data),
        )
        link = process.link(self.cloud, "cloud", self.credentials, self._take_refusal, knows=self._knows)
        deadline = ReconnectDeadline(self.give_up_s, f"the cloud at {self.cloud}")
        loop = asyncio.get_running_loop()
        running = loop.create_task(process.shell.run())
        over = loop.create_task(self._over.wait())
        moving = loop.create_task(watch_progress(transport.transfers, process.inbox))
        unreachable = loop.create_task(deadline.watch(link.take_contact))
        try:
            await asyncio.sleep(0)  # let the shell restore the node before any peer joins
            listening.announce(await server.start())
            link.start()
            await asyncio.wait([running, over, unreachable], return_when=asyncio.FIRST_COMPLETED)
            if unreachable.done() and not over.done() and not running.done():
                unreachable.result()  # raises
            if self._refusal is not None and self._refusal.kind == "went_back":
                raise WentBack(self.state, self._refusal.reason)
            if self._refusal is not None and self._refusal.kind == "refused":
                raise Refused(f"the cloud refuses gateway {identity.name}: {self._refusal.reason}")
            reason = await running
            self._warn_of_late_updates()
            if not reason:
                finished = Refusal("finished", "the run is over", process.node.state.final_model)
                await server.goodbye(lambda _: finished)
                await self._inform_latecomers(self.plan.linger_s(identity))
            return reason
        finally:
            telemetry.close()
            for task in (running, over, moving, unreachable):
                task.cancel()
            await link.close()
            await server.close()

    async def _inform_latecomers(self, patience_s: float) -> None:
        """Wait for devices that did not answer the goodbye, since they would keep dialling for a long time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while (missing := self._joined - self._server.informed) and loop.time() < until:
            await asyncio.sleep(_POLL_S)
        if missing:
            log.warning("these devices could not be informed that the run is over: %s", ", ".join(sorted(missing)))

    async def _operate(self, kind: str, payload: bytes) -> bytes:
        if kind == JOURNAL:
            return await answer_journal(self.state)
        raise PeerError(f"a gateway does not support the operation {kind!r}; the cloud may")

    def _take_refusal(self, refusal: Refusal) -> None:
        """Note the cloud's refusal, or its answer that the run is over."""
        self._refusal = refusal
        self._over.set()
        if refusal.kind == "finished":
            # The cloud's message of the same content may not have arrived; receiving both does no harm.
            finish = Finish(refusal.epoch, refusal.outcomes, refusal.detail)
            self._process.inbox.put(lambda at: Received(at, CLOUD, finish))
        self._process.shell.wake()

    def _warn_of_late_updates(self) -> None:
        """Log the updates that this gateway acknowledged but the cloud received too late for the model."""
        late = [str(JobId(*line.order[1])) for line in read_lines(self.state) if line.kind == LateRecord.KIND]
        if late:
            log.warning(
                "the run ended before %d of the updates that this gateway acknowledged reached the cloud (`late` in "
                "the journal): %s%s",
                len(late),
                ", ".join(late[:_LATE_SHOWN]),
                ", ..." if len(late) > _LATE_SHOWN else "",
            )

    def _apply_bandwidth(self) -> None:
        bandwidth, pacing = self._process.node.state.bandwidth, self._server.pacing
        rate = math.inf if bandwidth >= _NO_LIMIT else bandwidth
        if pacing.down.rate != rate:
            pacing.down.rate = pacing.up.rate = rate

    async def _admit(self, joining: Joining, probe_s: float) -> Admission | Refusal:
        """Forward a device's request to join; while the cloud is unreachable, readmit devices admitted before."""
        if joining.role != "device":
            return Refusal("refused", f"a {joining.role} cannot join a gateway; give it the cloud's address")
        self._joined.add(joining.name)
        if (wrong := wrong_run(joining, self._process.identity)) is not None:
            return wrong
        try:
            forwarded = replace(joining, via=self._process.address, marks=(), knows={})
            async with self._forwarding:
                answer = await enlist(self.cloud, "cloud", self.credentials, forwarded, probe_s)
        except PeerError as error:
            known = self._admitted.get(joining.name)
            if known is not None:
                return self._compared(joining, known)
            return Refusal("not_yet", f"the gateway cannot reach the cloud ({error})")
        if isinstance(answer, Refusal) or not joining.ready:
            return answer
        self._admitted[joining.name] = answer
        return self._compared(joining, answer)

    def _compared(self, joining: Joining, admission: Admission) -> Admission | Refusal:
        """Refuse a device whose state went back in time."""
        me, it = self._process.compared(device_address(admission.number), joining)
        if it:
            return older_copy(f"device {joining.name}", it)
        if me:  # a device alone is not believed; the cloud decides whether this gateway's state went back
            log.warning("device %s says that this gateway's state is an older copy: %s", joining.name, me)
        return replace(admission, incarnation=self._process.known.incarnation)

    def _knows(self) -> Mapping[str, int]:
        state = self._process.node.state
        return {"cloud epoch": state.base_epoch, "upload": state.next_upload - 1}
