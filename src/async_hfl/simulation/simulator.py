"""Shell 1: the one event loop. Takes the nodes as they are and gives them virtual time.

    Send           delay model, then onto the heap          StartTraining  the training pool remembers the job
    SetTimer       heap                                     Solve, Evaluate  computed at once, answered as an event
    Write          journal

Decides nothing: policies, learner and delays are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from async_hfl.core import messages as m
from async_hfl.core.effects import Evaluate, Send, SetTimer, Solve, StartTraining, Stop, StopTraining, Write
from async_hfl.core.errors import InternalError
from async_hfl.core.events import Evaluated, Received, Solved, Started, TimerFired, Trained
from async_hfl.core.identifiers import (
    CLOUD,
    CLOUD_TIER,
    DEVICE_TIER,
    Address,
    JobId,
    UploadId,
    device_address,
    gateway_address,
)
from async_hfl.core.learner import Learner, TrainingJob
from async_hfl.core.plain import Plain, plain
from async_hfl.core.policies import AssociationPolicy
from async_hfl.core.randomness import scramble, stream_seed
from async_hfl.core.records import EpochRecord, Record
from async_hfl.core.traffic import traffic
from async_hfl.network.description import DelayModel
from async_hfl.nodes.cloud import CloudNode
from async_hfl.nodes.delivery import Node
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway import GatewayNode
from async_hfl.simulation.event_queue import EventQueue
from async_hfl.simulation.ledger import Ledger
from async_hfl.simulation.training_pool import TrainingPool

_CHUNK, _NODES = 100, 2
"""Events (or results) and nodes in one part of a checkpoint."""


class Journal(Protocol):
    """Where a run is written down."""

    def write(self, record: Record) -> None: ...

    def write_sent(self, *fields: Any) -> None: ...

    def epoch(self, record: EpochRecord, ledger: Ledger) -> None:
        """The row of a cloud epoch: the record with the bytes spent until then."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything a simulation is made of."""

    cloud: CloudNode
    gateways: Sequence[GatewayNode]
    devices: Sequence[DeviceNode]
    learner: Learner
    delays: DelayModel
    association: AssociationPolicy
    model_bytes: int
    seed: int
    batching: bool = True
    charge_solver: float = 0.0


@plain
@dataclass(frozen=True, slots=True)
class _TrainingDone:
    """A training ends at this time; what it gives is asked of the pool only then."""

    job: JobId
    training_s: float


class Simulator:
    def __init__(self, world: World, journal: Journal) -> None:
        self.world = world
        self.journal = journal
        self.queue = EventQueue()
        self.pool = TrainingPool(world.learner, batching=world.batching)
        self.ledger = Ledger(len(world.gateways), len(world.devices))
        self.at = 0.0
        self.updates = 0
        """Device updates sent, those of the warm-up included."""
        self.finished_at: float | None = None
        self._running = 1 + len(world.gateways)
        self._gateways_from = 1
        self._devices_from = 1 + len(world.gateways)
        self._nodes: list[Node] = [world.cloud, *world.gateways, *world.devices]
        self._addresses: list[Address] = [
            CLOUD,
            *(gateway_address(j) for j in range(len(world.gateways))),
        ]
        self._timers: dict[tuple[int, str], int] = {}
        self._training_seed = stream_seed(world.seed, "training")
        self._perform: dict[type, Callable[[int, Any], None]] = {
            Send: self._send,
            Write: self._write,
            StartTraining: self._start_training,
            StopTraining: self._stop_training,
            SetTimer: self._set_timer,
            Solve: self._solve,
            Evaluate: self._evaluate,
            Stop: self._stop,
        }

    def start(self) -> None:
        """Wake the tiers from the top; devices wait to be spoken to."""
        for index in range(self._devices_from):
            self.queue.push(0.0, index, Started(0.0))

    def run(self, stop: Callable[[], bool] | None = None) -> None:
        """Until the cloud and every gateway have stopped, or `stop` says so between two events."""
        queue, nodes, perform = self.queue, self._nodes, self._perform
        heap, pop = queue.heap, queue.pop
        while self._running and heap:
            if stop is not None and stop():
                return
            at, sequence, index, what = pop()
            self.at = at
            kind = type(what)
            if kind is TimerFired:
                if self._timers.get((index, what.key)) != sequence:  # type: ignore[attr-defined]
                    continue  # replaced by a later SetTimer
            elif kind is _TrainingDone:
                job = what.job  # type: ignore[attr-defined]
                if job not in self.pool:
                    continue  # stopped meanwhile
                what = Trained(at, job, self.pool.result(job), what.training_s)  # type: ignore[attr-defined]
            for effect in nodes[index].handle(what):  # type: ignore[arg-type]
                perform[type(effect)](index, effect)
        if self._running:
            raise InternalError(f"the run stalled at {self.at:.0f} s of virtual time: nothing is left to happen")

    # Effects -----------------------------------------------------------------------------------------------------

    def _send(self, index: int, send: Send) -> None:
        message, to = send.message, send.to
        size = traffic(message, self.world.model_bytes)
        sender = self._address(index)
        total = self.ledger.add(sender, to, size)
        delays, at = self.world.delays, self.at
        about: JobId | UploadId | None = None
        if to.tier == DEVICE_TIER:
            delay = delays.to_device(sender.number, to.number, total)
            target = self._devices_from + to.number
            if type(message) is m.Train:
                job = message.job
                about = job
                generation = self.pool.next_generation(to.number)
                self.pool.expect(TrainingJob(job, to.number, message.weights, self._seed_of(job), generation))
        elif to.tier == CLOUD_TIER:
            delay = delays.gateway_to_cloud(sender.number, total)
            target = 0
            if type(message) is m.Upload:
                about = message.upload
        else:
            target = self._gateways_from + to.number
            if sender.tier == DEVICE_TIER:
                delay = delays.to_gateway(sender.number, to.number, total)
                if type(message) is m.Update:
                    about = message.job
                    self.updates += 1
                elif type(message) is m.JobDropped:
                    self.pool.forget(message.job)  # declined before it began, perhaps: nobody will ask for its result
            else:
                delay = delays.cloud_to_gateway(to.number, total)
                if type(message) is m.Answer:
                    about = message.upload
        self.journal.write_sent(at, sender, to, type(message).__name__, about, delay, *size)
        arrival = at + delay
        self.queue.push(arrival, target, Received(arrival, sender, message, delay))

    def _address(self, index: int) -> Address:
        first = self._devices_from
        return self._addresses[index] if index < first else device_address(index - first)

    def _write(self, index: int, write: Write) -> None:
        record = write.record
        self.journal.write(record)
        if type(record) is EpochRecord:
            self.journal.epoch(record, self.ledger)

    def _start_training(self, index: int, start: StartTraining) -> None:
        device = index - self._devices_from
        seconds = self.world.delays.compute(device)
        self.queue.push(self.at + seconds, index, _TrainingDone(start.job, seconds))

    def _stop_training(self, index: int, stop: StopTraining) -> None:
        self.pool.forget(stop.job)

    def _set_timer(self, index: int, timer: SetTimer) -> None:
        at = max(timer.at, self.at)
        self._timers[(index, timer.key)] = self.queue.push(at, index, TimerFired(at, timer.key))

    def _solve(self, index: int, solve: Solve) -> None:
        association = self.world.association.solve(solve.problem)
        at = self.at + self.world.charge_solver
        self.queue.push(at, index, Solved(at, solve.number, association))

    def _evaluate(self, index: int, evaluate: Evaluate) -> None:
        evaluation = self.world.learner.evaluate(evaluate.weights)
        self.queue.push(self.at, index, Evaluated(self.at, evaluate.epoch, evaluation))

    def _stop(self, index: int, stop: Stop) -> None:
        if stop.reason:
            raise InternalError(f"{self._address(index)} stopped: {stop.reason}")
        self._running -= 1
        if index == 0:
            self.finished_at = self.at

    def _seed_of(self, job: JobId) -> int:
        return scramble(self._training_seed ^ (job.gateway << 44) ^ (job.incarnation << 32) ^ job.number)

    # Checkpoints -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[tuple[str, Plain]]:
        """Named parts, each small: the whole never stands in memory as plain data."""
        for part in self.pool.snapshot(_CHUNK):
            yield "pool", part
        yield (
            "simulator",
            {
                "at": self.at,
                "updates": self.updates,
                "running": self._running,
                "finished_at": self.finished_at,
                "ledger": self.ledger.snapshot(),
                "delays": self.world.delays.snapshot(),
                "timers": [[index, key, sequence] for (index, key), sequence in self._timers.items()],
            },
        )
        # A gateway's snapshot holds its devices in flight, so few nodes make a part.
        for start in range(0, len(self._nodes), _NODES):
            yield "nodes", [node.snapshot() for node in self._nodes[start : start + _NODES]]
        for part in self.queue.snapshot(_CHUNK):
            yield "queue", part

    def restore(self, parts: dict[str, list[Plain]]) -> None:
        (data,) = parts["simulator"]
        self.at, self.updates, self._running = data["at"], data["updates"], data["running"]
        self.finished_at = data["finished_at"]
        self.pool.restore(parts["pool"])
        self.queue.restore(parts["queue"])
        self.ledger.restore(data["ledger"])
        self.world.delays.restore(data["delays"])
        self._timers = {(index, key): sequence for index, key, sequence in data["timers"]}
        for node, part in zip(self._nodes, chain.from_iterable(parts["nodes"]), strict=True):
            node.restore(part)
