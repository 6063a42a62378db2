"""The cloud process: assigns numbers to nodes, admits them, and runs the solver and evaluations on threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD, Address, gateway_address
from async_hfl.core.learner import Evaluation
from async_hfl.core.policies import AssociationPolicy
from async_hfl.core.protocol.effects import Evaluate, Solve
from async_hfl.core.protocol.events import DeviceJoined, DrainAsked, Evaluated, Restored, Solved
from async_hfl.core.protocol.messages import Finish
from async_hfl.core.protocol.records import EpochRecord, LifecycleRecord, Record
from async_hfl.core.weights import Weights, digest
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.operations.operators import DRAIN, JOURNAL, STATUS, answer_journal
from async_hfl.deployment.operations.status import cloud_status
from async_hfl.deployment.operations.telemetry import WATCHED, read_digest
from async_hfl.deployment.processes.listen_address import ListenAddress
from async_hfl.deployment.processes.node_process import NodeProcess, older_copy, wrong_run
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.shell import Workers
from async_hfl.deployment.store.node_identity import (
    NodeIdentity,
    WrongState,
    draw_incarnation,
    draw_run,
    read_identity,
    write_identity,
)
from async_hfl.deployment.store.node_store import Budget, NodeStore
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal
from async_hfl.deployment.transport.limits import PROBE_BYTES
from async_hfl.deployment.transport.server import Server
from async_hfl.nodes.cloud.node import CloudNode

log = logging.getLogger("async_hfl.cloud")
NUMBERS = "numbers"
RESTORED = "restored"
"""Key of the fact that this cloud has continued from an older copy of its state."""


@dataclass(frozen=True, slots=True)
class CloudPlan:
    """The parts of a cloud process that the composition root provides."""

    name: str
    settings: str
    """The settings that differ from the defaults, as JSON, so that a release that adds one can continue a run."""
    settings_digest: str
    settings_changed: Callable[[str], str]
    """Returns the differences between stored settings and these, in words; empty if there are none."""
    facts: Mapping[str, Any]
    make: Callable[[NodeIdentity], CloudNode]
    association: AssociationPolicy
    evaluate: Callable[[Weights], Evaluation]
    save_model: Callable[[Path, Weights], None]
    model_bytes: int
    linger_s: float
    budget: Budget


def _raise(error: BaseException, at: float) -> None:
    raise error


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
            self._inbox.from_thread(partial(_raise, error))


@dataclass(slots=True)
class CloudProcess:
    plan: CloudPlan
    state: Path
    listen: str
    credentials: Credentials
    restored: bool = False
    """True if the state may be an older copy, and the operator knows (`--restored`)."""
    wrote: Callable[[Record], None] = lambda record: None
    _process: NodeProcess[CloudNode] = field(init=False)
    _numbers: dict[str, dict[str, int]] = field(init=False)
    """Role -> name -> number. A number is assigned once, durably, and never reused."""
    _newest: EpochRecord | None = None
    _agreed: set[str] = field(default_factory=set)
    """Names of the gateways whose marks have agreed with this cloud's since it started."""
    _digests: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The latest telemetry of each gateway."""

    async def run(self) -> str:
        """Run to the end; return the reason for stopping, empty at a normal end."""
        plan = self.plan
        with NodeStore.open(self.state, plan.budget) as store:
            identity = read_identity(store, "cloud", plan.name)
            if self.restored:
                if identity is None:
                    raise WrongState(f"{self.state}: holds no run; --restored continues from a copy of a cloud's state")
                store.put(RESTORED, True)
            if identity is None:
                numbers = (draw_run(), 0, draw_incarnation())
                settings = (plan.settings, plan.settings_digest, dict(plan.facts))
                identity = NodeIdentity("cloud", plan.name, *numbers, *settings)
                write_identity(store, identity)
            elif changed := plan.settings_changed(identity.settings):
                raise WrongState(
                    f"{self.state}: this run began with other settings ({changed}); give the same settings, or a new "
                    "--state for a new run"
                )
            elif identity.settings_digest != plan.settings_digest:  # an earlier release wrote them in another way
                identity = replace(identity, settings=plan.settings, settings_digest=plan.settings_digest)
                write_identity(store, identity)
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
            opening=[lambda at: Restored(at, draw_incarnation())] if self.restored else [],
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
        if joining.name not in numbers and joining.run == identity.run and joining.compares:
            return self._never_met(joining)
        over = process.node.state.phase == "over"
        if over and not (role == "gateway" and joining.name in numbers and joining.run == identity.run):
            return self._finished(joining)
        number = numbers.get(joining.name)
        if number is None:
            number = len(numbers)
            self._numbers = {**self._numbers, role: {**numbers, joining.name: number}}
            process.store.put(NUMBERS, self._numbers)
            process.store.commit()
        if joining.via is None:
            if (refusal := self._compared(number, joining)) is not None:
                return refusal
        elif joining.ready:
            device, gateway, samples = number, joining.via.number, joining.samples
            expected = max(joining.compute_s + 2 * self.plan.model_bytes * probe_s / PROBE_BYTES, 1e-3)
            process.inbox.put(lambda at: DeviceJoined(at, device, gateway, samples, expected))
        server, settings = joining.via or CLOUD, (identity.settings, identity.settings_digest, identity.facts)
        mine = process.known.incarnation if joining.via is None else 0
        return Admission(identity.run, server, number, process.shell.clock.now, *settings, mine)

    def _compared(self, number: int, joining: Joining) -> Refusal | None:
        """Refuse a gateway whose state went back in time; end this process if its own did."""
        me, it = self._process.compared(gateway_address(number), joining)
        if it:
            return older_copy(f"gateway {joining.name}", it)
        if me and joining.name not in self._agreed:  # state goes back while no process uses it, so at the first join
            return self._went_back(joining, me)
        if number in self._process.node.state.outdated and joining.name not in self._agreed:
            self._list_losses(number, joining)
        self._agreed.add(joining.name)
        return None

    def _list_losses(self, number: int, joining: Joining) -> None:
        """Record what a gateway has known of this cloud, and the copy that it continues from does not contain."""
        state = self._process.node.state
        member = state.members[number] if number < len(state.members) else None
        upload = 0 if member is None else max([*member.outcomes, member.answered_below - 1], default=0)
        theirs = ", ".join(f"{name} {known}" for name, known in joining.knows.items())
        detail = f"{joining.name} knew {theirs}; this cloud continues from cloud epoch {state.epoch}, upload {upload}"
        log.warning("restored: %s; what lies between is lost", detail)
        record = LifecycleRecord(self._process.shell.clock.now, "restored", f"g{number}", detail)
        self._process.store.write(record)
        self._note_record(record)

    def _never_met(self, joining: Joining) -> Refusal:
        """Answer a node of this run that this cloud does not know: it joined after a copy of the state was made."""
        if joining.role == "gateway" and not self._process.store.get(RESTORED):
            return self._went_back(
                joining, f"gateway {joining.name} has a number of this run, and the state has none for it"
            )
        return older_copy(f"{joining.role} {joining.name}", "the cloud was restored from a copy made before it joined")

    def _went_back(self, joining: Joining, missing: str) -> Refusal:
        """End this process, since its own state went back in time."""
        state = self._process.node.state
        knows = ", ".join(f"{name} {number}" for name, number in joining.knows.items())
        error = WrongState(
            f"{self.state}: this cloud's state is an older copy, of cloud epoch {state.epoch}: {missing} (by gateway "
            f"{joining.name}, which knows {knows or 'nothing'}). Restore the newest copy, or start the cloud with "
            "--restored: it continues from this one, and what was done since is lost"
        )
        self._process.inbox.put(partial(_raise, error))
        return Refusal("not_yet", f"the cloud's state is an older copy: {missing}")

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
