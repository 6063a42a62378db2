"""The shell of the fault simulation: the same nodes on unreliable machines and links, all drawn from one seed.

Messages are lost, repeated, delayed and overtaken. Devices, gateways and the cloud crash at any moment: before an event
is committed to the log, after the commit and before its effects, or between its effects, so that acknowledgements are
lost after a commit. They return with their disk, or, gateways and devices, without it as another incarnation. Gateways
are declared lost, rightly and wrongly. With sessions (`faults.sessions`), links fail while both ends are up, and
interrupted transfers are resumed. After `faults_end_at` seconds there are no more faults: a run that does not end then,
or leaves messages unacknowledged, has stalled. All invariants are checked after every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from async_hfl.core.compression.model_codec import PLAIN_MODELS, ModelCodec
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import CLOUD, DEVICE_TIER, GATEWAY_TIER, Address, JobId
from async_hfl.core.learner import Learner, TrainingJob
from async_hfl.core.policies import AssociationPolicy
from async_hfl.core.protocol.effects import Effect, Evaluate, SetTimer, Solve, StartTraining, Stop, StopTraining, Write
from async_hfl.core.protocol.events import Evaluated, PeerLost, Returned, Solved, Started, TimerFired, Trained
from async_hfl.core.protocol.messages import Update
from async_hfl.core.randomness import scramble, stream
from async_hfl.faults.checkers.checker import CloudChecker, GatewayChecker
from async_hfl.faults.hosts import CrashPoint, Host
from async_hfl.faults.invariants import Invariants
from async_hfl.faults.profile import FaultProfile, Outcome
from async_hfl.faults.sessions import Pair, SessionEvent, Sessions
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
    process: int | None
    """The process that crashed: void if the gateway is up again. None: a false alarm."""


@dataclass(frozen=True, slots=True)
class _OfProcess:
    """An event that only this process of the host receives: a timer, or the result of a computation."""

    process: int
    event: Any


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
        profile: FaultProfile,
        links: Sequence[tuple[int, int]],
        gateway_checker: type[GatewayChecker] = GatewayChecker,
        cloud_checker: type[CloudChecker] = CloudChecker,
        codec: ModelCodec = PLAIN_MODELS,
    ) -> None:
        """`links`: pairs of device and gateway."""
        self.hosts = hosts
        self.learner = learner
        self.association = association
        self.profile = profile
        self.rng = stream(profile.seed, "faults")
        self.index = {host.address: index for index, host in enumerate(hosts)}
        self.gateways = [i for i, host in enumerate(hosts) if host.address.tier == GATEWAY_TIER]
        self.devices = [i for i, host in enumerate(hosts) if host.address.tier == DEVICE_TIER]
        self.invariants = Invariants(
            self.index[CLOUD], self.gateways, self.devices, gateway_checker, cloud_checker, codec
        )
        self.at = 0.0
        pairs = self._pairs(links) if profile.sessions else []
        self.sessions = Sessions(self, pairs, profile, self.rng)
        self._heap: list[tuple[float, int, int, Any]] = []
        self._sequence = 0
        self._timers: dict[tuple[int, str], int] = {}
        self._stopped_jobs: set[JobId] = set()
        self._crashes = self._records_torn = self._disks_lost = self._messages_lost = self._declared_lost = 0

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
        while not self._is_over():
            if not self._heap or self.at > TIME_LIMIT_S or events > EVENT_LIMIT:
                raise InvariantViolation(f"the run stalled: {self._describe_stall()}")
            self.at, sequence, index, event = heappop(self._heap)
            events += 1
            self._happen(index, event, sequence)
        updates_lost = self.invariants.at_end([host.node.node for host in self.hosts])
        history, losses = self.invariants.history, self.invariants.losses
        return Outcome(
            events=events,
            crashes=self._crashes,
            records_torn=self._records_torn,
            disks_lost=self._disks_lost,
            messages_lost=self._messages_lost + self.sessions.broken,
            link_outages=self.sessions.outages,
            transfers_resumed=self.sessions.resumed,
            gateways_declared_lost=self._declared_lost,
            jobs=len(history.trains),
            uploads=len(history.upload_ends),
            updates_acknowledged=len(losses.acknowledged),
            updates_lost=updates_lost,
            updates_found=losses.found,
            updates_late=len(losses.late),
        )

    def _is_over(self) -> bool:
        """True if cloud and gateways have stopped, all machines are up, and every message is acknowledged."""
        if not all(self.hosts[i].stopped for i in (self.index[CLOUD], *self.gateways)):
            return False
        return all(host.up and not host.node.node.state.unacknowledged for host in self.hosts)

    def _describe_stall(self) -> str:
        running = [str(h.address) for h in self.hosts if not h.stopped and h.address.tier != DEVICE_TIER]
        if running:
            return f"at {self.at:.0f} s {', '.join(running)} had not stopped"
        waiting = [str(h.address) for h in self.hosts if h.node.node.state.unacknowledged]
        return f"at {self.at:.0f} s {', '.join(waiting)} had unacknowledged messages"

    @property
    def faulty(self) -> bool:
        """True while faults happen."""
        return self.at < self.profile.faults_end_at

    # The interface for sessions ------------------------------------------------------------------------------------

    def is_up(self, index: int) -> bool:
        return self.hosts[index].up

    def address(self, index: int) -> Address:
        return self.hosts[index].address

    def deliver(self, index: int, event: Any) -> None:
        if self.hosts[index].up:
            self._handle(index, event)

    def push(self, at: float, event: SessionEvent) -> None:
        self._push(at, -1, event)

    # Events ------------------------------------------------------------------------------------------------------

    def _happen(self, index: int, event: Any, sequence: int) -> None:
        if isinstance(event, SessionEvent):
            self.sessions.happen(event)
        elif isinstance(event, _Crash):
            self._crash(index, event.downtime_s)
        elif isinstance(event, _Return):
            self._return(index)
        elif isinstance(event, _DeclareLost):
            self._declare_lost(event)
        elif not self.hosts[index].up:
            pass  # a message to a machine that is down is lost
        elif isinstance(event, _OfProcess):
            if event.process == self.hosts[index].process:
                self._happen_in_process(index, event.event, sequence)
        else:
            self._handle(index, event)

    def _happen_in_process(self, index: int, event: Any, sequence: int) -> None:
        if isinstance(event, TimerFired) and self._timers.get((index, event.key)) != sequence:
            return
        if isinstance(event, _Training):
            if event.job.job in self._stopped_jobs:
                return
            job, (result,) = event.job, self.learner.train_many([event.job])
            self.invariants.encodings.trained(job.job, job.device, result.weights)
            event = Trained(self.at, job.job, result, event.seconds)
        self._handle(index, event)

    def _handle(self, index: int, event: Any) -> None:
        host = self.hosts[index]
        acknowledged = self._acknowledged_job(host, event)
        effects = host.node.handle(event)
        host.handled += 1
        crash_point, host.crash_point = host.crash_point, None
        if crash_point == "before_commit":
            self._records_torn += 1
            self._take_down(index)
            return
        if crash_point != "after_commit":
            self._write(index, effects)
        host.disk.commit()
        if acknowledged is not None:
            self.invariants.losses.acknowledge(acknowledged, host.address.number)
        if crash_point == "after_commit":
            self._take_down(index)
            return
        if crash_point == "between_effects":
            effects = effects[: int(self.rng.integers(0, len(effects) + 1))]
        process = host.process
        self._perform(index, effects)
        if crash_point == "between_effects":
            self._take_down(index)
        elif host.process == process:
            if host.handled % self.profile.snapshot_every == 0:
                host.node.checkpoint()
            self._check(index)

    @staticmethod
    def _acknowledged_job(host: Host, event: Any) -> JobId | None:
        """Return the job whose update this event acknowledges to its device, if any."""
        if host.address.tier != DEVICE_TIER or not isinstance(event, Arrived) or not isinstance(event.content, Receipt):
            return None
        delivery = host.node.node.state
        packet = delivery.unacknowledged.get((event.sender, event.content.number))
        if packet is None or event.content.incarnation != delivery.incarnation:
            return None
        message = packet.message
        return message.job if isinstance(message, Update) and not message.warmup else None

    def _write(self, index: int, effects: Sequence[Effect | Transmit]) -> None:
        host = self.hosts[index]
        for effect in effects:
            if isinstance(effect, Write):
                self.invariants.written(effect.record, host.node.node.node)
                host.node.written(1)

    def _perform(self, index: int, effects: Sequence[Effect | Transmit]) -> None:
        """Perform all effects but records, which `_write` has written."""
        host = self.hosts[index]
        for effect in effects:
            if isinstance(effect, Transmit):
                self.invariants.sent(effect)
                self._transmit(index, effect)
            elif isinstance(effect, SetTimer):
                at = max(effect.at, self.at)
                timer = _OfProcess(host.process, TimerFired(at, effect.key))
                self._timers[(index, effect.key)] = self._push(at, index, timer)
            elif isinstance(effect, StartTraining):
                seed = scramble(self.profile.seed ^ effect.job.number ^ (effect.job.gateway << 40))
                job = TrainingJob(effect.job, host.address.number, effect.weights, seed)
                seconds = float(self.rng.exponential(self.profile.mean_compute_s))
                self._later(index, seconds, _OfProcess(host.process, _Training(job, seconds)))
            elif isinstance(effect, StopTraining):
                self._stopped_jobs.add(effect.job)
            elif isinstance(effect, Solve):
                delay = float(self.rng.exponential(1.0))
                solved = Solved(self.at + delay, effect.number, self.association.solve(effect.problem))
                self._later(index, delay, _OfProcess(host.process, solved))
            elif isinstance(effect, Evaluate):
                delay = float(self.rng.exponential(1.0))
                evaluated = Evaluated(self.at + delay, effect.epoch, self.learner.evaluate(effect.weights))
                self._later(index, delay, _OfProcess(host.process, evaluated))
            elif isinstance(effect, Stop):
                if effect.reason:
                    raise InvariantViolation(f"{host.address} stopped: {effect.reason}")
                host.stopped = True

    def _check(self, index: int) -> None:
        nodes: list[ReliableNode | None] = [host.node.node if host.up else None for host in self.hosts]
        self.invariants.check(nodes, [host.node.timers for host in self.hosts], index)

    # The network -------------------------------------------------------------------------------------------------

    def _transmit(self, index: int, transmit: Transmit) -> None:
        profile, faulty = self.profile, self.faulty
        target = self.index[transmit.to]
        if profile.sessions:
            self.sessions.transmit(index, target, transmit)
            return
        copies = 1
        if faulty:
            if self.rng.random() < profile.loss:
                copies = 0
                self._messages_lost += 1
            elif self.rng.random() < profile.duplication:
                copies = 2
        for _ in range(copies):
            delay = float(self.rng.exponential(profile.mean_delay_s))
            if faulty and self.rng.random() < 0.02:
                delay *= 50  # later messages overtake it
            arrival = self.at + delay
            self._push(arrival, target, Arrived(arrival, self.hosts[index].address, transmit.content, delay))

    # The machines ------------------------------------------------------------------------------------------------

    def _schedule_crashes(self) -> None:
        profile = self.profile
        for index, host in enumerate(self.hosts):
            at = float(self.rng.exponential(profile.crash_every_s))
            while at < profile.faults_end_at:
                downtime = float(self.rng.exponential(profile.mean_downtime_s))
                self._push(at, index, _Crash(downtime))
                alarm = host.address.tier == GATEWAY_TIER and not profile.sessions
                if alarm and self.rng.random() < profile.false_alarms:
                    victim = int(self.rng.choice(self.gateways))
                    self._push(at, victim, _DeclareLost(victim, None))
                at += downtime + float(self.rng.exponential(profile.crash_every_s))

    def _crash(self, index: int, downtime_s: float) -> None:
        host = self.hosts[index]
        if not host.up:
            return
        if self.rng.random() < 0.6:
            points: tuple[CrashPoint, ...] = ("before_commit", "after_commit", "between_effects")
            host.crash_point = points[int(self.rng.integers(3))]  # during its next event instead
            return
        self._take_down(index, downtime_s)

    def _take_down(self, index: int, downtime_s: float | None = None) -> None:
        host = self.hosts[index]
        self._crashes += 1
        host.up = False
        host.process += 1
        host.disk.discard_uncommitted()
        host.disk_lost = (
            host.address != CLOUD
            and not host.stopped
            and self.faulty
            and bool(self.rng.random() < self.profile.disk_loss)
        )
        downtime = float(self.rng.exponential(self.profile.mean_downtime_s)) if downtime_s is None else downtime_s
        self._later(index, downtime, _Return())
        if host.address.tier == GATEWAY_TIER and not self.profile.sessions:
            self._later(index, self.profile.detection_s, _DeclareLost(index, host.process))
        self.sessions.host_down(index, disk_lost=host.disk_lost)

    def _return(self, index: int) -> None:
        host = self.hosts[index]
        host.up = True
        if host.disk_lost:
            self._reinstall(index)
        else:
            effects = host.node.recover()
            self._write(index, effects)
            host.disk.commit()
            self._perform(index, effects)
            self._handle(index, Returned(self.at))
        if host.up:
            self.sessions.host_up(index)

    def _reinstall(self, index: int) -> None:
        """Begin with an empty disk."""
        host = self.hosts[index]
        self._disks_lost += 1
        former = host.node.node.node
        if isinstance(former, GatewayNode):
            self.invariants.history.disk_lost(former.config.number, former.state.incarnation)
        else:
            self.invariants.losses.forget(host.address.number)
        host.install()
        self._handle(index, Started(self.at))
        if host.up and not self.profile.sessions:
            self._handle(index, Returned(self.at))  # with sessions, it says hello when one begins

    def _declare_lost(self, declared: _DeclareLost) -> None:
        host, cloud = self.hosts[declared.gateway], self.hosts[self.index[CLOUD]]
        if not cloud.up or (declared.process is not None and (host.up or host.process != declared.process)):
            return
        self._declared_lost += 1
        self._handle(self.index[CLOUD], PeerLost(self.at, host.address))
        if host.up:
            # Its session broke too: it says hello again and learns that it was declared lost.
            self._handle(declared.gateway, PeerLost(self.at, CLOUD))

    def _later(self, index: int, delay: float, event: Any) -> None:
        self._push(self.at + float(delay), index, event)

    def _push(self, at: float, index: int, event: Any) -> int:
        self._sequence += 1
        heappush(self._heap, (at, self._sequence, index, event))
        return self._sequence
