"""The cloud as a process: gives names their numbers, admits, solves and evaluates on threads, ends a run for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD, Address, gateway_address
from async_hfl.core.learner import Evaluation
from async_hfl.core.policies import AssociationPolicy
from async_hfl.core.protocol.effects import Evaluate, Solve
from async_hfl.core.protocol.events import DeviceJoined, DrainAsked, Evaluated, Solved
from async_hfl.core.protocol.messages import Finish
from async_hfl.core.protocol.records import EpochRecord, Record
from async_hfl.core.weights import Weights, digest
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.operations.operators import DRAIN, JOURNAL, STATUS, answer_journal
from async_hfl.deployment.operations.status import cloud_status
from async_hfl.deployment.operations.telemetry import WATCHED, read_digest
from async_hfl.deployment.processes.listen_address import Listening
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.message_validation import Facts, vetting
from async_hfl.deployment.shell.shell import Ended, NoWorkers, Shell
from async_hfl.deployment.shell.wrapping import wrapped
from async_hfl.deployment.store.node_identity import (
    NodeIdentity,
    WrongState,
    draw_incarnation,
    draw_run,
    keep_card,
    read_card,
)
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal
from async_hfl.deployment.transport.limits import PROBE_BYTES
from async_hfl.deployment.transport.server import Server
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding.rounding import Encoding
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.reliability.delivery import ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

log = logging.getLogger("async_hfl.cloud")
NUMBERS = "numbers"


@dataclass(frozen=True, slots=True)
class CloudPlan:
    """What the composition gives a cloud."""

    name: str
    settings: str
    settings_digest: str
    facts: Mapping[str, Any]
    make: Callable[[NodeIdentity], CloudNode]
    association: AssociationPolicy
    evaluate: Callable[[Weights], Evaluation]
    save_model: Callable[[Path, Weights], None]
    model_bytes: int
    linger_s: float
    payload_budget: int


class CloudWorkers(NoWorkers):
    """Solving and evaluating, each on a thread of its own, in the order asked."""

    def __init__(self, plan: CloudPlan, inbox: Inbox) -> None:
        self._plan = plan
        self._inbox = inbox
        self._solver = ThreadPoolExecutor(1, "solver")
        self._evaluator = ThreadPoolExecutor(1, "evaluator")
        self._loop = asyncio.get_running_loop()
        self.failure: BaseException | None = None

    def solve(self, work: Solve) -> None:
        self._submit(self._solver, self._solved, work)

    def evaluate(self, work: Evaluate) -> None:
        self._submit(self._evaluator, self._evaluated, work)

    def close(self) -> None:
        for pool in (self._solver, self._evaluator):
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, pool: ThreadPoolExecutor, act: Callable[[Any], None], work: Any) -> None:
        def guarded() -> None:
            try:
                act(work)
            except BaseException as error:
                self.failure = error
                self._inbox.from_thread(self._fail)

        pool.submit(guarded)

    def _fail(self, at: float) -> None:
        assert self.failure is not None
        raise self.failure

    def _solved(self, work: Solve) -> None:
        association = self._plan.association.solve(work.problem)
        self._inbox.from_thread(lambda at: Solved(at, work.number, association))

    def _evaluated(self, work: Evaluate) -> None:
        evaluation = self._plan.evaluate(work.weights)
        self._inbox.from_thread(lambda at: Evaluated(at, work.epoch, evaluation))


class CloudProcess:
    def __init__(
        self,
        plan: CloudPlan,
        state: Path,
        listen: str,
        credentials: Credentials,
        wrote: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self.plan = plan
        self.state = state
        self._listen = listen
        self._credentials = credentials
        self._wrote = wrote
        self._known: dict[str, dict[str, int]] = {}
        """Role, name and number: given once, durably, and never again."""
        self._newest: EpochRecord | None = None
        self._digests: dict[int, dict[str, Any]] = {}

    async def run(self) -> Ended:
        plan = self.plan
        with NodeStore.open(self.state, plan.payload_budget) as self.store:
            card = read_card(self.store, "cloud", plan.name)
            if card is None:
                number, facts = 0, dict(plan.facts)
                card = NodeIdentity(
                    "cloud",
                    plan.name,
                    draw_run(),
                    number,
                    draw_incarnation(),
                    plan.settings,
                    plan.settings_digest,
                    facts,
                )
                keep_card(self.store, card)
            elif card.settings_digest != plan.settings_digest:
                raise WrongState(
                    f"{self.state}: its run began with other settings (digest {card.settings_digest[:16]}, now "
                    f"{plan.settings_digest[:16]}); give the same ones, or a new --state for a new run"
                )
            self.card = card
            self._known = self.store.get(NUMBERS) or {}
            return await self._run(card)

    async def _run(self, card: NodeIdentity) -> Ended:
        plan, inbox = self.plan, Inbox()
        self.inbox = inbox
        self._transport = transport = Transport(
            inbox,
            self.store.spool,
            encoding=Encoding(bool(plan.facts["half"]), bool(plan.facts["zstd"])),
            crowded=lambda: inbox.crowded,
            vet=vetting(
                CLOUD, Facts(int(plan.facts["model_size"])), lambda number: number < len(self._numbers("device"))
            ),
            is_known=lambda *packet: self.shell.is_known(*packet),
            digests=self._digest,
        )
        hands = CloudWorkers(plan, inbox)

        def make() -> ReliableNode:
            return wrapped(card, plan.make(card))

        self.node = DurableNode(make, self.store)
        self.shell = Shell(
            CLOUD,
            self.node,
            self.store,
            inbox,
            transport,
            hands,
            plan.model_bytes,
            share=float(plan.facts["share"]),
            linger_s=plan.linger_s,
            waits_for=lambda parcel: isinstance(parcel.message, Finish),
            stays=lambda: self.shell.came_back_over,
            wrote=self._noted,
        )
        listening = Listening(self.store, self.state, self._listen)
        server = Server(
            transport,
            listening.wanted,
            self._admit,
            self._credentials,
            operate=self._operate,
            serves=frozenset({"gateway"}),
        )
        # First the state as it was: whoever joins must find it.
        shell = asyncio.get_running_loop().create_task(self.shell.run())
        await asyncio.sleep(0)
        try:
            listening.announce(await server.start())
            if self.shell.came_back_over:
                log.info("the run is over; telling so for %.0f s to whoever returns", plan.linger_s)
            ended = await shell
            plan.save_model(self.state / "model.safetensors", self.cloud.state.weights)
            await server.goodbye(self._finished)
            return ended
        finally:
            shell.cancel()
            hands.close()
            await server.close()

    @property
    def cloud(self) -> CloudNode:
        node = self.node.node.node
        assert isinstance(node, CloudNode)
        return node

    # Who is who ------------------------------------------------------------------------------------------------------

    async def _admit(self, joining: Joining, probe_s: float) -> Admission | Refusal:
        card = self.card
        if joining.role not in ("gateway", "device"):
            return Refusal("refused", f"a {joining.role} does not join a cloud")
        if joining.run not in (0, card.run):
            return Refusal(
                "refused",
                f"{joining.role} {joining.name} belongs to run {joining.run:x}, this is run {card.run:x}: start it "
                "with a new state directory",
            )
        numbers = self._numbers(joining.role)
        over = self.cloud.state.phase == "over"
        if over and not (joining.role == "gateway" and joining.name in numbers and joining.run == card.run):
            return self._finished(joining)
        number = numbers.get(joining.name)
        if number is None:
            number = len(numbers)
            self._known = {**self._known, joining.role: {**numbers, joining.name: number}}
            self.store.put(NUMBERS, self._known)
            self.store.commit()
        if joining.via is not None and joining.ready:
            self._device_joined(number, joining.via.number, joining, probe_s)
        return Admission(
            card.run,
            CLOUD if joining.via is None else joining.via,
            number,
            self.shell.clock.now(),
            card.settings,
            card.settings_digest,
            card.facts,
        )

    def _device_joined(self, device: int, gateway: int, joining: Joining, probe_s: float) -> None:
        latency = joining.compute_s + 2 * self.plan.model_bytes * probe_s / PROBE_BYTES
        expected, samples = max(latency, 1e-3), joining.samples
        self.inbox.put(lambda at: DeviceJoined(at, device, gateway, samples, expected))

    def _numbers(self, role: str) -> dict[str, int]:
        return self._known.get(role, {})

    def _finished(self, joining: Joining) -> Refusal:
        """Like the message to those in touch: a gateway that comes now is to know what became of what it sent."""
        state = self.cloud.state
        number = self._numbers("gateway").get(joining.name, -1) if joining.role == "gateway" else -1
        member = state.members[number] if 0 <= number < len(state.members) else None
        known = member is not None and member.incarnation == joining.incarnation
        outcomes = tuple(member.outcomes.items()) if member is not None and known else ()
        return Refusal("finished", "the run is over", digest(state.weights), state.epoch, outcomes)

    # Operators -------------------------------------------------------------------------------------------------------

    async def _operate(self, kind: str, payload: bytes) -> bytes:
        if kind == STATUS:
            return msgspec.json.encode(self._status())
        if kind == DRAIN:
            self.inbox.put(lambda at: DrainAsked(at))
            return msgspec.json.encode({"draining": True, "run": f"{self.card.run:x}"})
        if kind == JOURNAL:
            return await answer_journal(self.state)
        raise PeerError(f"a cloud does not know the operation {kind!r}")

    def _status(self) -> dict[str, Any]:
        """Whoever asks is taken to be watching for a while: gateways send what is new with them meanwhile."""
        for number in range(len(self.cloud.state.members)):
            self._transport.send_digest(gateway_address(number), WATCHED)
        card = self.card
        return {
            "run": f"{card.run:x}",
            "task": card.facts["task"],
            "method": card.facts["method"],
            "target": card.facts["threshold"],
            **cloud_status(
                self.cloud,
                self.shell.clock.now(),
                self._newest,
                {number: name for name, number in self._numbers("gateway").items()},
                {number: name for name, number in self._numbers("device").items()},
                self._digests,
            ),
        }

    def _digest(self, sender: Address, data: bytes) -> None:
        self._digests[sender.number] = read_digest(data)

    def _noted(self, record: Record) -> None:
        if isinstance(record, EpochRecord):
            self._newest = record
        self._wrote(record)
