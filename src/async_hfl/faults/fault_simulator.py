"""Deterministic fault simulation: the same nodes on a network and machines that misbehave, all drawn from one seed.

Messages are lost, repeated, delayed and overtaken. Devices, gateways and the cloud crash at any moment: before an event
is in the log (its record is torn), between logging it and letting its effects leave, after some of them have left (so
acknowledgements get lost after the commit). They come back with their disk, gateways and devices also without it, as
another incarnation. Gateways are declared lost, rightly and wrongly. With sessions (`fault_sessions`) links fail while
both ends live, transfers break off and are carried on. After `calm_after` seconds the faults cease, so that a run which
then does not end, or leaves something unsaid, has stalled. All invariants are checked after every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import CLOUD, DEVICE_TIER, GATEWAY_TIER, Address, JobId
from async_hfl.core.learner import Learner, TrainingJob
from async_hfl.core.policies import AssociationPolicy
from async_hfl.core.protocol.effects import Effect, Evaluate, SetTimer, Solve, StartTraining, Stop, StopTraining, Write
from async_hfl.core.protocol.events import Evaluated, PeerLost, Returned, Solved, Started, TimerFired, Trained
from async_hfl.core.protocol.messages import Update
from async_hfl.core.randomness import scramble, stream
from async_hfl.faults.fault_profile import FaultProfile
from async_hfl.faults.hosts import CrashPoint, Host, Outcome
from async_hfl.faults.invariants import Invariants
from async_hfl.faults.sessions import Happening, Pair, Sessions
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import Arrived, Receipt, ReliableNode, Transmit

TIME_LIMIT_S = 3e5
EVENT_LIMIT = 300_000


@dataclass(frozen=True, slots=True)
class _Crash:
    downtime_s: float


@dataclass(frozen=True, slots=True)
class _Return:
    pass


@dataclass(frozen=True, slots=True)
class _DeclareLost:
    gateway: int
    life: int | None
    """Only if it is still down in this life; None: a false alarm."""


@dataclass(frozen=True, slots=True)
class _Volatile:
    """Something only this life waits for."""

    life: int
    what: Any


@dataclass(frozen=True, slots=True)
class _Training:
    job: TrainingJob
    seconds: float


class FaultSimulator:
    def __init__(
        self,
        hosts: Sequence[Host],
        learner: Learner,
        association: AssociationPolicy,
        fault_profile: FaultProfile,
        links: Sequence[tuple[int, int]],
    ) -> None:
        """`links`: (device, gateway)."""
        self.hosts = hosts
        self.learner = learner
        self.association = association
        self.fault_profile = fault_profile
        self.rng = stream(fault_profile.seed, "faults")
        self.index = {host.address: index for index, host in enumerate(hosts)}
        self.gateways = [i for i, host in enumerate(hosts) if host.address.tier == GATEWAY_TIER]
        self.devices = [i for i, host in enumerate(hosts) if host.address.tier == DEVICE_TIER]
        self.invariants = Invariants(self.index[CLOUD], self.gateways, self.devices)
        self.at = 0.0
        pairs = self._pairs(links) if fault_profile.sessions else []
        self.sessions = Sessions(self, pairs, fault_profile, self.rng, lambda: self.at < fault_profile.calm_after)
        self._heap: list[tuple[float, int, int, Any]] = []
        self._sequence = 0
        self._timers: dict[tuple[int, str], int] = {}
        self._stopped_jobs: set[JobId] = set()
        self._crashes = self._torn = self._disks_lost = self._lost = self._declared = 0

    def _pairs(self, links: Sequence[tuple[int, int]]) -> list[Pair]:
        cloud = self.index[CLOUD]
        pairs = [(cloud, gateway) for gateway in self.gateways]
        return pairs + [(self.gateways[gateway], self.devices[device]) for device, gateway in links]

    def run(self) -> Outcome:
        for index in range(len(self.hosts)):
            self._push(0.0, index, Started(0.0))
        self._schedule_crashes()
        self.sessions.begin()
        events = 0
        while not self._over():
            if not self._heap or self.at > TIME_LIMIT_S or events > EVENT_LIMIT:
                raise InvariantViolation(f"the run stalled: {self._picture()}")
            self.at, sequence, index, what = heappop(self._heap)
            events += 1
            self._happen(index, what, sequence)
        losses = self.invariants.at_end([host.node.node for host in self.hosts])
        witness = self.invariants.witness
        return Outcome(
            events,
            self._crashes,
            self._torn,
            self._disks_lost,
            self._lost + self.sessions.broken,
            self.sessions.outages,
            self.sessions.resumed,
            self._declared,
            len(witness.sent),
            len(witness.upload_ends),
            len(witness.losses.acknowledged),
            losses,
            witness.losses.found,
            len(witness.losses.late),
            self.at,
        )

    def _over(self) -> bool:
        """Everybody has stopped, and nothing that was said is left unheard."""
        if not all(self.hosts[i].stopped for i in (self.index[CLOUD], *self.gateways)):
            return False
        return all(host.up and not host.node.node.state.unacknowledged for host in self.hosts)

    def _picture(self) -> str:
        running = [str(h.address) for h in self.hosts if not h.stopped and h.address.tier != DEVICE_TIER]
        if running:
            return f"at {self.at:.0f} s {', '.join(running)} had not stopped"
        unheard = [str(h.address) for h in self.hosts if h.node.node.state.unacknowledged]
        return f"at {self.at:.0f} s {', '.join(unheard)} waited for receipts"

    # What sessions see of the machines ---------------------------------------------------------------------------

    def is_up(self, index: int) -> bool:
        return self.hosts[index].up

    def address(self, index: int) -> Address:
        return self.hosts[index].address

    def deliver(self, index: int, event: Any) -> None:
        if self.hosts[index].up:
            self._handle(index, event)

    def push(self, at: float, what: Happening) -> None:
        self._push(at, -1, what)

    # What happens ------------------------------------------------------------------------------------------------

    def _happen(self, index: int, what: Any, sequence: int) -> None:
        if isinstance(what, Happening):
            self.sessions.happen(what)
        elif isinstance(what, _Crash):
            self._crash(index, what.downtime_s)
        elif isinstance(what, _Return):
            self._return(index)
        elif isinstance(what, _DeclareLost):
            self._declare_lost(what)
        elif not self.hosts[index].up:
            pass  # a packet for a machine that is down is lost; a timer of its former life, too
        elif isinstance(what, _Volatile):
            if what.life == self.hosts[index].life:
                self._volatile(index, what.what, sequence)
        else:
            self._handle(index, what)

    def _volatile(self, index: int, what: Any, sequence: int) -> None:
        if isinstance(what, TimerFired) and self._timers.get((index, what.key)) != sequence:
            return
        if isinstance(what, _Training):
            if what.job.job in self._stopped_jobs:
                return
            what = Trained(self.at, what.job.job, self.learner.train_many([what.job])[0], what.seconds)
        self._handle(index, what)

    def _handle(self, index: int, event: Any) -> None:
        host = self.hosts[index]
        told = self._acknowledged_by(host, event)
        effects = host.node.handle(event)
        host.handled += 1
        doom, host.doom = host.doom, None
        if doom == "torn":
            self._torn += 1
            self._die(index)
            return
        if doom != "logged":
            self._write(index, effects)
        host.disk.commit()
        if told is not None:
            self.invariants.witness.losses.acknowledge(told, host.address.number)
        if doom == "logged":
            self._die(index)
            return
        if doom == "partly":
            effects = effects[: int(self.rng.integers(0, len(effects) + 1))]
        life = host.life
        self._perform(index, effects)
        if doom == "partly":
            self._die(index)
        elif host.life == life:
            if host.handled % self.fault_profile.snapshot_every == 0:
                host.node.checkpoint()
            self._check(index)

    @staticmethod
    def _acknowledged_by(host: Host, event: Any) -> JobId | None:
        """The job whose update a device learns to have arrived."""
        if host.address.tier != DEVICE_TIER or not isinstance(event, Arrived) or not isinstance(event.content, Receipt):
            return None
        delivery = host.node.node.state
        parcel = delivery.unacknowledged.get((event.sender, event.content.number))
        if parcel is None or event.content.incarnation != delivery.incarnation:
            return None
        message = parcel.message
        return message.job if isinstance(message, Update) and not message.warmup else None

    def _write(self, index: int, effects: Sequence[Effect | Transmit]) -> None:
        host = self.hosts[index]
        for effect in effects:
            if isinstance(effect, Write):
                self.invariants.witness.record(effect.record)
                self.invariants.record(effect.record, host.node.node.node)  # type: ignore[arg-type]
                host.node.written(1)

    def _perform(self, index: int, effects: Sequence[Effect | Transmit]) -> None:
        """All but the records."""
        host = self.hosts[index]
        for effect in effects:
            if isinstance(effect, Transmit):
                self.invariants.witness.transmitted(effect)
                self._transmit(index, effect)
            elif isinstance(effect, SetTimer):
                at = max(effect.at, self.at)
                timer = _Volatile(host.life, TimerFired(at, effect.key))
                self._timers[(index, effect.key)] = self._push(at, index, timer)
            elif isinstance(effect, StartTraining):
                seed = scramble(self.fault_profile.seed ^ effect.job.number ^ (effect.job.gateway << 40))
                job = TrainingJob(effect.job, host.address.number, effect.weights, seed)
                seconds = float(self.rng.exponential(self.fault_profile.mean_compute_s))
                self._later(index, seconds, _Volatile(host.life, _Training(job, seconds)))
            elif isinstance(effect, StopTraining):
                self._stopped_jobs.add(effect.job)
            elif isinstance(effect, Solve):
                delay = float(self.rng.exponential(1.0))
                solved = Solved(self.at + delay, effect.number, self.association.solve(effect.problem))
                self._later(index, delay, _Volatile(host.life, solved))
            elif isinstance(effect, Evaluate):
                delay = float(self.rng.exponential(1.0))
                evaluated = Evaluated(self.at + delay, effect.epoch, self.learner.evaluate(effect.weights))
                self._later(index, delay, _Volatile(host.life, evaluated))
            elif isinstance(effect, Stop):
                if effect.reason:
                    raise InvariantViolation(f"{host.address} stopped: {effect.reason}")
                host.stopped = True

    def _check(self, index: int) -> None:
        nodes: list[ReliableNode | None] = [host.node.node if host.up else None for host in self.hosts]
        self.invariants.check(nodes, [host.node.timers for host in self.hosts], index)

    # The network -------------------------------------------------------------------------------------------------

    def _transmit(self, index: int, transmit: Transmit) -> None:
        fault_profile, stormy = self.fault_profile, self.at < self.fault_profile.calm_after
        target = self.index[transmit.to]
        if fault_profile.sessions:
            self.sessions.transmit(index, target, transmit)
            return
        copies = 1
        if stormy:
            if self.rng.random() < fault_profile.loss:
                copies = 0
                self._lost += 1
            elif self.rng.random() < fault_profile.duplication:
                copies = 2
        for _ in range(copies):
            delay = float(self.rng.exponential(fault_profile.mean_delay_s))
            if stormy and self.rng.random() < 0.02:
                delay *= 50  # a straggler that much else overtakes
            arrival = self.at + delay
            self._push(arrival, target, Arrived(arrival, self.hosts[index].address, transmit.content, delay))

    # The machines ------------------------------------------------------------------------------------------------

    def _schedule_crashes(self) -> None:
        fault_profile = self.fault_profile
        for index, host in enumerate(self.hosts):
            at = float(self.rng.exponential(fault_profile.crash_every_s))
            while at < fault_profile.calm_after:
                downtime = float(self.rng.exponential(fault_profile.mean_downtime_s))
                self._push(at, index, _Crash(downtime))
                alarm = host.address.tier == GATEWAY_TIER and not fault_profile.sessions
                if alarm and self.rng.random() < fault_profile.false_alarms:
                    victim = int(self.rng.choice(self.gateways))
                    self._push(at, victim, _DeclareLost(victim, None))
                at += downtime + float(self.rng.exponential(fault_profile.crash_every_s))

    def _crash(self, index: int, downtime_s: float) -> None:
        host = self.hosts[index]
        if not host.up:
            return
        if self.rng.random() < 0.6:
            dooms: tuple[CrashPoint, ...] = ("torn", "logged", "partly")
            host.doom = dooms[int(self.rng.integers(3))]  # over its next event instead
            return
        self._die(index, downtime_s)

    def _die(self, index: int, downtime_s: float | None = None) -> None:
        host = self.hosts[index]
        self._crashes += 1
        host.up = False
        host.life += 1
        host.disk.tear()
        host.disk_lost = (
            host.address != CLOUD
            and not host.stopped
            and self.at < self.fault_profile.calm_after
            and bool(self.rng.random() < self.fault_profile.disk_loss)
        )
        downtime = float(self.rng.exponential(self.fault_profile.mean_downtime_s)) if downtime_s is None else downtime_s
        self._later(index, downtime, _Return())
        if host.address.tier == GATEWAY_TIER and not self.fault_profile.sessions:
            self._later(index, self.fault_profile.detection_s, _DeclareLost(index, host.life))
        self.sessions.went_down(index, disk_lost=host.disk_lost)

    def _return(self, index: int) -> None:
        host = self.hosts[index]
        host.up = True
        if host.disk_lost:
            self._start_anew(index)
        else:
            effects = host.node.recover()
            self._write(index, effects)
            host.disk.commit()
            self._perform(index, effects)
            self._handle(index, Returned(self.at))
        if host.up:
            self.sessions.came_back(index)

    def _start_anew(self, index: int) -> None:
        host = self.hosts[index]
        self._disks_lost += 1
        former = host.node.node.node
        if isinstance(former, GatewayNode):
            self.invariants.witness.lost_disk(former.config.number, former.state.incarnation)
        else:
            self.invariants.witness.losses.forget(host.address.number)
        host.start_anew()
        self._handle(index, Started(self.at))
        if host.up and not self.fault_profile.sessions:
            self._handle(index, Returned(self.at))  # says hello, as it does when a session is up

    def _declare_lost(self, declared: _DeclareLost) -> None:
        host, cloud = self.hosts[declared.gateway], self.hosts[self.index[CLOUD]]
        if not cloud.up or (declared.life is not None and (host.up or host.life != declared.life)):
            return
        self._declared += 1
        self._handle(self.index[CLOUD], PeerLost(self.at, host.address))
        if host.up:
            # Its session broke, as the cloud's did: it says hello again and learns what it missed.
            self._handle(declared.gateway, PeerLost(self.at, CLOUD))

    def _later(self, index: int, delay: float, what: Any) -> None:
        self._push(self.at + float(delay), index, what)

    def _push(self, at: float, index: int, what: Any) -> int:
        self._sequence += 1
        heappush(self._heap, (at, self._sequence, index, what))
        return self._sequence
