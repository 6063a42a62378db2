"""Deterministic fault simulation: the same nodes on a network and machines that misbehave, all drawn from one seed.

Messages are lost, repeated, delayed and overtaken. Devices, gateways and the cloud crash at any moment (also between
logging an event and letting its effects leave) and come back with their disk. Gateways are declared lost, rightly and
wrongly. After `calm_after` seconds the faults cease, so that a run which then does not end has stalled. All invariants
are checked after every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from async_hfl.core.effects import Effect, Evaluate, SetTimer, Solve, StartTraining, Stop, StopTraining, Write
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.events import Evaluated, Event, PeerLost, Returned, Solved, Started, TimerFired, Trained
from async_hfl.core.identifiers import CLOUD, DEVICE_TIER, GATEWAY_TIER, Address, JobId
from async_hfl.core.learner import Learner, TrainingJob
from async_hfl.core.plain import Plain
from async_hfl.core.policies import AssociationPolicy
from async_hfl.core.randomness import scramble, stream
from async_hfl.nodes.delivery import Arrived, ReliableNode, Transmit
from async_hfl.nodes.recovery import DurableNode
from async_hfl.simulation.invariants import Invariants

TIME_LIMIT_S = 3e5
EVENT_LIMIT = 300_000


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad it is."""

    seed: int
    loss: float
    duplication: float
    mean_delay_s: float
    mean_compute_s: float
    crash_every_s: float
    """Mean time between crashes of one node."""
    mean_downtime_s: float
    false_alarms: float
    """Share of gateway crashes beside which a healthy gateway is declared lost, too."""
    detection_s: float
    """A gateway that stays down longer is declared lost."""
    calm_after: float
    snapshot_every: int


@dataclass(slots=True)
class MemoryDisk:
    """A disk that never fails; what is on it is copied, so nothing leaks between lives."""

    snapshot: Plain = None
    log: list[Plain] = field(default_factory=list)
    records: int = 0

    def append(self, event: Plain) -> None:
        self.log.append(event)

    def wrote(self, records: int) -> None:
        self.records = records

    def replace(self, snapshot: Plain) -> None:
        self.snapshot, self.log, self.records = snapshot, [], 0

    def read(self) -> tuple[Plain, list[Plain], int]:
        return self.snapshot, list(self.log), self.records


@dataclass(slots=True)
class Host:
    """A machine with one node on it."""

    address: Address
    node: DurableNode
    up: bool = True
    life: int = 0
    """Grows with every crash: what a former life had under way is gone."""
    doomed: bool = False
    """Crashes after logging its next event, before any effect leaves."""
    handled: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    events: int
    crashes: int
    lost: int
    declared_lost: int
    jobs: int
    uploads: int
    virtual_s: float


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
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class _Training:
    job: TrainingJob
    seconds: float


class FaultSimulator:
    def __init__(
        self, hosts: Sequence[Host], learner: Learner, association: AssociationPolicy, weather: Weather
    ) -> None:
        self.hosts = hosts
        self.learner = learner
        self.association = association
        self.weather = weather
        self.rng = stream(weather.seed, "faults")
        self.index = {host.address: index for index, host in enumerate(hosts)}
        self.gateways = [i for i, host in enumerate(hosts) if host.address.tier == GATEWAY_TIER]
        devices = [i for i, host in enumerate(hosts) if host.address.tier == DEVICE_TIER]
        self.invariants = Invariants(self.index[CLOUD], self.gateways, devices)
        self.at = 0.0
        self._heap: list[tuple[float, int, int, Any]] = []
        self._sequence = 0
        self._timers: dict[tuple[int, str], int] = {}
        self._stopped_jobs: set[JobId] = set()
        self._crashes = self._lost = self._declared = 0

    def run(self) -> Outcome:
        for index in range(len(self.hosts)):
            self._push(0.0, index, Started(0.0))
        self._schedule_crashes()
        events = 0
        while not all(self.hosts[i].stopped for i in (self.index[CLOUD], *self.gateways)):
            if not self._heap or self.at > TIME_LIMIT_S or events > EVENT_LIMIT:
                raise InvariantViolation(f"the run stalled: {self._picture()}")
            self.at, sequence, index, what = heappop(self._heap)
            events += 1
            self._happen(index, what, sequence)
        self.invariants.at_end([host.node.node for host in self.hosts])
        witness = self.invariants.witness
        return Outcome(
            events, self._crashes, self._lost, self._declared, len(witness.sent), len(witness.upload_ends), self.at
        )

    def _picture(self) -> str:
        running = [str(h.address) for h in self.hosts if not h.stopped and h.address.tier != DEVICE_TIER]
        return f"at {self.at:.0f} s {', '.join(running)} had not stopped"

    # What happens ------------------------------------------------------------------------------------------------

    def _happen(self, index: int, what: Any, sequence: int) -> None:
        host = self.hosts[index]
        if isinstance(what, _Crash):
            self._crash(index, what.downtime_s)
        elif isinstance(what, _Return):
            self._return(index)
        elif isinstance(what, _DeclareLost):
            self._declare_lost(what)
        elif not host.up:
            pass  # a packet for a machine that is down is lost; a timer of its former life, too
        elif isinstance(what, _Volatile):
            if what.life == host.life:
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

    def _handle(self, index: int, event: Event | Arrived) -> None:
        host = self.hosts[index]
        effects = host.node.handle(event)
        host.handled += 1
        if host.doomed:
            host.doomed = False
            self._crash(index, float(self.rng.exponential(self.weather.mean_downtime_s)), restart=True)
            return
        self._perform_all(index, effects)
        if host.handled % self.weather.snapshot_every == 0:
            host.node.checkpoint()
        self._check(index)

    def _perform_all(self, index: int, effects: Sequence[Effect | Transmit]) -> None:
        host = self.hosts[index]
        for effect in effects:
            self.invariants.witness.effect(effect)
            if isinstance(effect, Transmit):
                self._transmit(index, effect)
            elif isinstance(effect, Write):
                self.invariants.record(effect.record, host.node.node.node)  # type: ignore[arg-type]
                host.node.written(1)
            elif isinstance(effect, SetTimer):
                at = max(effect.at, self.at)
                timer = _Volatile(host.life, TimerFired(at, effect.key))
                self._timers[(index, effect.key)] = self._push(at, index, timer)
            elif isinstance(effect, StartTraining):
                seed = scramble(self.weather.seed ^ effect.job.number ^ (effect.job.gateway << 40))
                job = TrainingJob(effect.job, host.address.number, effect.weights, seed)
                seconds = float(self.rng.exponential(self.weather.mean_compute_s))
                self._later(index, seconds, _Volatile(host.life, _Training(job, seconds)))
            elif isinstance(effect, StopTraining):
                self._stopped_jobs.add(effect.job)
            elif isinstance(effect, Solve):
                answer = self.association.solve(effect.problem)
                delay = float(self.rng.exponential(1.0))
                event: Event = Solved(self.at + delay, effect.number, answer)
                self._later(index, delay, _Volatile(host.life, event))
            elif isinstance(effect, Evaluate):
                delay = float(self.rng.exponential(1.0))
                event = Evaluated(self.at + delay, effect.epoch, self.learner.evaluate(effect.weights))
                self._later(index, delay, _Volatile(host.life, event))
            elif isinstance(effect, Stop):
                if effect.reason:
                    raise InvariantViolation(f"{host.address} stopped: {effect.reason}")
                host.stopped = True

    def _check(self, index: int) -> None:
        nodes: list[ReliableNode | None] = [host.node.node if host.up else None for host in self.hosts]
        self.invariants.check(nodes, [host.node.timers for host in self.hosts], index)

    # The network -------------------------------------------------------------------------------------------------

    def _transmit(self, index: int, transmit: Transmit) -> None:
        weather, stormy = self.weather, self.at < self.weather.calm_after
        copies = 1
        if stormy:
            if self.rng.random() < weather.loss:
                copies = 0
                self._lost += 1
            elif self.rng.random() < weather.duplication:
                copies = 2
        target = self.index[transmit.to]
        for _ in range(copies):
            delay = float(self.rng.exponential(weather.mean_delay_s))
            if stormy and self.rng.random() < 0.02:
                delay *= 50  # a straggler that much else overtakes
            arrival = self.at + delay
            self._push(arrival, target, Arrived(arrival, self.hosts[index].address, transmit.content, delay))

    # The machines ------------------------------------------------------------------------------------------------

    def _schedule_crashes(self) -> None:
        weather = self.weather
        for index, host in enumerate(self.hosts):
            at = float(self.rng.exponential(weather.crash_every_s))
            while at < weather.calm_after:
                downtime = float(self.rng.exponential(weather.mean_downtime_s))
                self._push(at, index, _Crash(downtime))
                if host.address.tier == GATEWAY_TIER and self.rng.random() < weather.false_alarms:
                    victim = int(self.rng.choice(self.gateways))
                    self._push(at, victim, _DeclareLost(victim, None))
                at += downtime + float(self.rng.exponential(weather.crash_every_s))

    def _crash(self, index: int, downtime_s: float, *, restart: bool = False) -> None:
        host = self.hosts[index]
        if not host.up:
            return
        if not restart and self.rng.random() < 0.5:
            host.doomed = True  # in the middle of its next event instead
            return
        self._crashes += 1
        host.up = False
        host.life += 1
        self._later(index, downtime_s, _Return())
        if host.address.tier == GATEWAY_TIER:
            self._later(index, self.weather.detection_s, _DeclareLost(index, host.life))

    def _return(self, index: int) -> None:
        host = self.hosts[index]
        host.up = True
        effects = host.node.recover()
        self._perform_all(index, effects)
        self._handle(index, Returned(self.at))

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
