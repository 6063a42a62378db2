"""The cloud process: assigns numbers to nodes, admits them, and runs the solver and evaluations on threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
from async_hfl.deployment.processes.listen_address import ListenAddress
from async_hfl.deployment.processes.node_process import NodeProcess, wrong_run
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.shell import Workers
from async_hfl.deployment.store.node_identity import (
    NodeIdentity,
    WrongState,
    draw_incarnation,
    draw_run,
    read_identity,
    settings_changed,
    write_identity,
)
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal
from async_hfl.deployment.transport.limits import PROBE_BYTES
from async_hfl.deployment.transport.server import Server
from async_hfl.nodes.cloud.node import CloudNode

log = logging.getLogger("async_hfl.cloud")
NUMBERS = "numbers"


@dataclass(frozen=True, slots=True)
class CloudPlan:
    """The parts of a cloud process that the composition root provides."""

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


class CloudWorkers(Workers):
    """A solver thread and an evaluation thread; each handles its requests in order."""

    def __init__(self, plan: CloudPlan, inbox: Inbox) -> None:
        self._plan = plan
        self._inbox = inbox
        self._solver = ThreadPoolExecutor(1, "solver")
        self._evaluator = ThreadPoolExecutor(1, "evaluator")

    def solve(self, work: Solve) -> None:
        def act() -> None:
            association = self._plan.association.solve(work.problem)
            self._inbox.from_thread(lambda at: Solved(at, work.number, association))

        self._solver.submit(self._guarded, act)

    def evaluate(self, work: Evaluate) -> None:
        def act() -> None:
            evaluation = self._plan.evaluate(work.weights)
            self._inbox.from_thread(lambda at: Evaluated(at, work.epoch, evaluation))

        self._evaluator.submit(self._guarded, act)

    def close(self) -> None:
        for pool in (self._solver, self._evaluator):
            pool.shutdown(wait=False, cancel_futures=True)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Pass an error of the computation on to the shell, which ends the process."""
        try:
            act()
        except BaseException as error:
            failure = error

            def fail(at: float) -> None:
                raise failure

            self._inbox.from_thread(fail)


@dataclass(slots=True)
class CloudProcess:
    plan: CloudPlan
    state: Path
    listen: str
    credentials: Credentials
    wrote: Callable[[Record], None] = lambda record: None
    _process: NodeProcess[CloudNode] = field(init=False)
    _numbers: dict[str, dict[str, int]] = field(init=False)
    """Role -> name -> number. A number is assigned once, durably, and never reused."""
    _newest: EpochRecord | None = None
    _digests: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The latest telemetry of each gateway."""

    async def run(self) -> str:
        """Run to the end; return the reason for stopping, empty at a normal end."""
        plan = self.plan
        with NodeStore.open(self.state, plan.payload_budget) as store:
            identity = read_identity(store, "cloud", plan.name)
            if identity is None:
                numbers = (draw_run(), 0, draw_incarnation())
                settings = (plan.settings, plan.settings_digest, dict(plan.facts))
                identity = NodeIdentity("cloud", plan.name, *numbers, *settings)
                write_identity(store, identity)
            elif identity.settings_digest != plan.settings_digest:
                changed = settings_changed(identity.settings, plan.settings)
                raise WrongState(
                    f"{self.state}: this run began with other settings ({changed}); give the same settings, or a new "
                    "--state for a new run"
                )
            self._numbers = {"gateway": {}, "device": {}, **(store.get(NUMBERS) or {})}
            return await self._run(store, identity)

    async def _run(self, store: NodeStore, identity: NodeIdentity) -> str:
        plan, inbox = self.plan, Inbox(store.adopt)
        workers = CloudWorkers(plan, inbox)
        process = NodeProcess(
            store,
            identity,
            inbox,
            plan.make,
            workers,
            is_device=lambda number: number < len(self._numbers["device"]),
            digests=self._take_digest,
            linger_s=plan.linger_s,
            waits_for=lambda packet: isinstance(packet.message, Finish),
            stays=lambda: self._process.shell.ended_before,
            wrote=self._note_record,
        )
        self._process = process
        listening = ListenAddress(store, self.state, self.listen)
        server = Server(
            process.transport,
            listening.wanted,
            self._admit,
            self.credentials,
            operate=self._operate,
            serves=frozenset({"gateway"}),
        )
        running = asyncio.get_running_loop().create_task(process.shell.run())
        try:
            await asyncio.sleep(0)  # let the shell restore the node before any peer joins
            listening.announce(await server.start())
            if process.shell.ended_before:
                log.info("the run is over; gateways that return within %.0f s are informed", plan.linger_s)
            reason = await running
            plan.save_model(self.state / "model.safetensors", process.node.state.weights)
            await server.goodbye(self._finished)
            return reason
        finally:
            running.cancel()
            workers.close()
            await server.close()

    # Admission -------------------------------------------------------------------------------------------------------

    async def _admit(self, joining: Joining, probe_s: float) -> Admission | Refusal:
        process, role = self._process, joining.role
        identity = process.identity
        if role not in ("gateway", "device"):
            return Refusal("refused", f"a {role} cannot join a cloud")
        if (wrong := wrong_run(joining, identity)) is not None:
            return wrong
        numbers = self._numbers[role]
        over = process.node.state.phase == "over"
        if over and not (role == "gateway" and joining.name in numbers and joining.run == identity.run):
            return self._finished(joining)
        number = numbers.get(joining.name)
        if number is None:
            number = len(numbers)
            self._numbers = {**self._numbers, role: {**numbers, joining.name: number}}
            process.store.put(NUMBERS, self._numbers)
            process.store.commit()
        if joining.via is not None and joining.ready:
            device, gateway, samples = number, joining.via.number, joining.samples
            expected = max(joining.compute_s + 2 * self.plan.model_bytes * probe_s / PROBE_BYTES, 1e-3)
            process.inbox.put(lambda at: DeviceJoined(at, device, gateway, samples, expected))
        server, settings = joining.via or CLOUD, (identity.settings, identity.settings_digest, identity.facts)
        return Admission(identity.run, server, number, process.shell.clock.now, *settings)

    def _finished(self, joining: Joining) -> Refusal:
        """Return the answer to a node after the end of the run; a gateway is also told the outcomes of its uploads."""
        state = self._process.node.state
        number = self._numbers["gateway"].get(joining.name, -1) if joining.role == "gateway" else -1
        member = state.members[number] if 0 <= number < len(state.members) else None
        known = member is not None and member.incarnation == joining.incarnation
        outcomes = tuple(member.outcomes.items()) if member is not None and known else ()
        return Refusal("finished", "the run is over", digest(state.weights), state.epoch, outcomes)

    # Operators -------------------------------------------------------------------------------------------------------

    async def _operate(self, kind: str, payload: bytes) -> bytes:
        if kind == STATUS:
            return msgspec.json.encode(self._status())
        if kind == DRAIN:
            self._process.inbox.put(DrainAsked)
            return msgspec.json.encode({"draining": True, "run": f"{self._process.identity.run:x}"})
        if kind == JOURNAL:
            return await answer_journal(self.state)
        raise PeerError(f"a cloud does not support the operation {kind!r}")

    def _status(self) -> dict[str, Any]:
        """Return the status of the run, and ask the gateways for telemetry, which the next status includes."""
        process = self._process
        for number in range(len(process.node.state.members)):
            process.transport.send_digest(gateway_address(number), WATCHED)
        facts = process.identity.facts
        names = {role: {number: name for name, number in known.items()} for role, known in self._numbers.items()}
        return {
            "run": f"{process.identity.run:x}",
            "task": facts["task"],
            "method": facts["method"],
            "target": facts["threshold"],
            **cloud_status(
                process.node, process.shell.clock.now, self._newest, names["gateway"], names["device"], self._digests
            ),
        }

    def _take_digest(self, sender: Address, data: bytes) -> None:
        self._digests[sender.number] = read_digest(data)

    def _note_record(self, record: Record) -> None:
        if isinstance(record, EpochRecord):
            self._newest = record
        self.wrote(record)
