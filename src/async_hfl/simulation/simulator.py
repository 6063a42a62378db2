"""The simulation shell: one event loop that gives the nodes virtual time.

    Send           delay model, then the event queue        StartTraining  training pool, then the event queue
    SetTimer       event queue                              Solve          solved at once, answered as an event
    Write          journal                                  Evaluate       begun at once, answered as an event

If transfers share the air, or in a run with outages, the end of a transfer is not known when it begins; `Transfers`
then keeps it while it is in progress. In a run with outages (`Outages`), nodes are also wrapped for reliable delivery,
as in a deployment. A plain run pays for neither.

The simulator makes no decisions: policies, learner and delays are part of the `World` that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from typing import Any

from async_hfl.core.errors import InternalError, UserError
from async_hfl.core.identifiers import CLOUD, CLOUD_TIER, DEVICE_TIER, Address, JobId, gateway_address
from async_hfl.core.learner import Accelerated, Evaluation, ResultEncoding
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Evaluate, Send, SetTimer, Solve, StartTraining, Stop, StopTraining, Write
from async_hfl.core.protocol.events import Evaluated, Received, Solved, Started, TimerFired, Trained
from async_hfl.core.protocol.records import EpochRecord
from async_hfl.core.protocol.traffic import HEADER_BYTES, subject, traffic
from async_hfl.core.randomness import stream_seed
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.nodes.reliability.delivery import Arrived, Packet, ReliableNode, TransferOver, Transmit
from async_hfl.simulation.accounting.byte_counts import ByteCounts, Spent
from async_hfl.simulation.accounting.device_times import DeviceTimes
from async_hfl.simulation.event_queue import EventQueue
from async_hfl.simulation.outages import Outages
from async_hfl.simulation.pausing import GaveUpWaiting
from async_hfl.simulation.training_pool import TrainingPool
from async_hfl.simulation.transfers.transfers import AirDue, TransferDue, Transfers
from async_hfl.simulation.world import Journal, World

_CHUNK, _NODES = 100, 2
"""Events (or results) and nodes in one part of a checkpoint."""
STALLED_AFTER_S = 30 * 86_400.0
"""Seconds without a new global model. With outages there is always an event left, so the queue never becomes empty."""


@plain
@dataclass(frozen=True, slots=True)
class _TrainingDone:
    """Event: a training ends. Its result is taken from the pool only then."""

    job: JobId
    training_s: float


@plain
@dataclass(frozen=True, slots=True)
class _EvaluationDone:
    """Event: an evaluation ends. Its answer is waited for only then."""

    epoch: int


class Simulator:
    """The event loop. Nodes have an index: 0 for the cloud, then the gateways, then the devices."""

    def __init__(self, world: World, journal: Journal) -> None:
        self.world = world
        self.journal = journal
        self.queue = EventQueue()
        self.pool = TrainingPool(world.learner, world.seed, batching=world.batching)
        self.byte_counts = ByteCounts(len(world.gateways), len(world.devices))
        self.times = DeviceTimes(len(world.devices))
        self.at = 0.0
        self.finished_at: float | None = None
        self.pause = False
        """True: `run` returns before the next event."""
        self._running = self._devices_from = 1 + len(world.gateways)
        """Number of nodes (cloud and gateways) that have not stopped, and the index of the first device."""
        self._addresses = [CLOUD, *map(gateway_address, range(len(world.gateways)))]
        self._nodes: Sequence[Any] = [world.cloud, *world.gateways, *world.devices]
        self._timers: dict[tuple[int, str], int] = {}
        """Number of the event that each timer waits for, by node and key."""
        self._stopped: set[int] = set()
        self._evaluations: dict[int, Callable[[], Evaluation]] = {}
        """Answers of the evaluations in progress, by the number of the event that ends them."""
        self._epoch_at = 0.0
        learner = world.learner
        self._announces_encodings = isinstance(learner, Accelerated) and learner.on_accelerator
        self.transfers: Transfers | None = None
        self.outages: Outages | None = None
        if world.air is not None or world.outages is not None:
            self.transfers = Transfers(
                self.queue,
                world.delays,
                world.air,
                len(world.gateways),
                self.byte_counts,
                self.times,
                journal.write_sent,
                0.0 if world.outages is None else world.outages.transfer_loss,
                stream_seed(world.seed, "life", "transfers"),
            )
            if world.outages is not None:
                self._nodes = reliable = [ReliableNode(node, world.seed, watched=True) for node in self._nodes]
                links = world.cloud.links
                self.outages = Outages(world.outages, self, self.queue, self.transfers, self.times, reliable, links)
        self._perform: dict[type, Callable[[int, Any], None]] = {
            Send: self._send,
            Transmit: self._transmit,
            Write: self._write,
            StartTraining: self._start_training,
            StopTraining: self._stop_training,
            SetTimer: self._set_timer,
            Solve: self._solve,
            Evaluate: self._evaluate,
            Stop: self._stop,
        }

    def start(self) -> None:
        """Start the cloud and the gateways; devices wait for a message."""
        if self.outages is not None:
            self.outages.begin()
        for index in range(self._devices_from):
            self.queue.push(0.0, index, Started(0.0))

    def run(self, stop: Callable[[], bool] | None = None) -> bool:
        """Handle events until `pause` or `stop()` is true. True if the cloud and every gateway have stopped."""
        heap, nodes, perform = self.queue.heap, self._nodes, self._perform
        down = None if self.outages is None else self.outages.down
        while self._running and heap:
            if self.pause or (stop is not None and stop()):
                return False
            at, sequence, index, what = heappop(heap)
            self.at = at
            if index < 0:
                self._handle_simulation_event(what)
                continue
            if down is not None and down[index]:
                self._drop(index, what, sequence)
                continue
            kind = type(what)
            if kind is TimerFired:
                if self._timers.get((index, what.key)) != sequence:  # type: ignore[attr-defined]
                    continue  # replaced by a later SetTimer
            elif kind is _TrainingDone:
                job = what.job  # type: ignore[attr-defined]
                if job not in self.pool:
                    continue  # stopped in the meantime
                try:
                    result = self.pool.result(job)
                except GaveUpWaiting:
                    heappush(heap, (at, sequence, index, what))
                    return False
                self.times.training_ended(index - self._devices_from, at)
                what = Trained(at, job, result, what.training_s)  # type: ignore[attr-defined]
            elif kind is _EvaluationDone:
                what = Evaluated(at, what.epoch, self._evaluations.pop(sequence)())  # type: ignore[attr-defined]
            for effect in nodes[index].handle(what):
                perform[type(effect)](index, effect)
        if self._running:
            raise InternalError(f"the run stalled at {self.at:.0f} s of virtual time: no event is left")
        if self.outages is not None:
            self.outages.end()
        elif self.transfers is not None:
            self.transfers.cut_all(self.at)
        return True

    def _handle_simulation_event(self, what: Any) -> None:
        """Handle an event that is not for a node: the end of a transfer, or an outage."""
        assert self.transfers is not None
        at, outages = self.at, self.outages
        if type(what) is AirDue:
            self.transfers.air_due(at, what)
        elif type(what) is not TransferDue:
            assert outages is not None
            outages.handle(what)
        elif (transfer := self.transfers.ended(at, what)) is not None:
            target, took = self.index(transfer.to), at - transfer.began
            if outages is None:
                self.deliver(target, Received(at, transfer.sender, transfer.message, took))
            elif transfer.share < 1.0:
                outages.broken(transfer)
            else:
                run, incarnation, number = transfer.wrapping
                packet = Packet(run, incarnation, number, transfer.message)
                self.deliver(target, Arrived(at, transfer.sender, packet, took))
                self.deliver(self.index(transfer.sender), TransferOver(at, transfer.to, number))
        self._check_progress()

    def _drop(self, index: int, what: Any, sequence: int) -> None:
        """Drop an event whose node is down."""
        assert self.outages is not None
        if type(what) is TimerFired and self._timers.get((index, what.key)) == sequence:
            self.outages.timer_missed(index, what)
        elif type(what) is _TrainingDone:
            self.pool.forget(what.job)
        elif type(what) is _EvaluationDone:
            del self._evaluations[sequence]

    def _check_progress(self) -> None:
        if self.at - self._epoch_at > STALLED_AFTER_S:
            raise UserError(
                f"the run stalled: no new global model since {self._epoch_at:.0f} s, and it is {self.at:.0f} s; "
                "check that under [outages] enough nodes survive to make one"
            )

    # Nodes -------------------------------------------------------------------------------------------------------

    def index(self, address: Address) -> int:
        return address.number + (0, 1, self._devices_from)[address.tier]

    def address(self, index: int) -> Address:
        first = self._devices_from
        return self._addresses[index] if index < first else Address(DEVICE_TIER, index - first)

    def perform(self, index: int, effects: Sequence[Any]) -> None:
        for effect in effects:
            self._perform[type(effect)](index, effect)

    def deliver(self, index: int, event: Any) -> None:
        self.perform(index, self._nodes[index].handle(event))

    def mark_stopped(self, index: int) -> None:
        if index not in self._stopped:
            self._stopped.add(index)
            self._running -= 1

    def spent(self) -> Spent:
        """Return the bytes sent so far, those of transfers in progress included."""
        byte_counts = self.byte_counts
        if self.transfers is None:
            return byte_counts.spent()
        total, models_up = self.transfers.sent_so_far(self.at)
        return Spent(byte_counts.total + round(total), byte_counts.models_up + round(models_up))

    # Effects -----------------------------------------------------------------------------------------------------

    def _send(self, index: int, send: Send) -> None:
        message, to = send.message, send.to
        kind = type(message)
        if kind is m.Train:
            weights = self.world.codec.decode_model(message.weights)  # type: ignore[union-attr]
            encoding = self._encoding(to.number, message.job, warmup=message.warmup)  # type: ignore[union-attr]
            self.pool.expect(message.job, to.number, weights, encoding)  # type: ignore[union-attr]
        elif kind is m.JobDropped:
            self.pool.forget(message.job)  # type: ignore[union-attr]  # the device may not even have begun it
        world, at, first = self.world, self.at, self._devices_from
        # As in `address`, without a call for every message.
        sender = self._addresses[index] if index < first else Address(DEVICE_TIER, index - first)
        if self.transfers is not None:
            self.transfers.start(at, sender, to, message)
            return
        size = traffic(message)
        total = self.byte_counts.add(sender, to, size)
        tier, number = to  # unpacking takes half the time of reading two attributes
        if tier == DEVICE_TIER:
            target = first + number
            delay = world.delays.to_device(sender.number, number, total)
            self.times.receive_s[number] += delay
        elif index >= first:
            target = 1 + number
            delay = world.delays.to_gateway(sender.number, number, total)
            self.times.transmit_s[sender.number] += delay
        elif tier == CLOUD_TIER:
            target = 0
            delay = world.delays.gateway_to_cloud(sender.number, total)
        else:
            target = 1 + number
            delay = world.delays.cloud_to_gateway(number, total)
        self.journal.write_sent(at, sender, to, kind.__name__, subject(message), delay, *size)
        arrival = at + delay
        self.queue.push(arrival, target, Received(arrival, sender, message, delay))

    def _transmit(self, index: int, transmit: Transmit) -> None:
        """Send a packet or a receipt of the delivery layer, which replaces `Send` in a run with outages."""
        assert self.outages is not None
        assert self.transfers is not None
        to, content = transmit.to, transmit.content
        sender, at = self.address(index), self.at
        connected = self.outages.connected(sender, to)
        if isinstance(content, Packet):
            if connected:
                wrapping = (content.run, content.incarnation, content.number)
                self.transfers.start(at, sender, to, content.message, wrapping)
            else:  # over at once; the sender will retry
                self.queue.push(at, index, TransferOver(at, to, content.number))
        elif connected:  # a receipt, whose bytes are in the header of the message that it acknowledges
            delay = self.transfers.delay(sender, to, HEADER_BYTES)
            self.queue.push(at + delay, self.index(to), Arrived(at + delay, sender, content, delay))

    def _write(self, index: int, write: Write) -> None:
        record = write.record
        self.journal.write(record)
        if type(record) is EpochRecord:
            self.journal.note_epoch(record, self.spent())

    def _start_training(self, index: int, start: StartTraining) -> None:
        device = index - self._devices_from
        seconds = self.world.delays.compute(device)
        if self.outages is not None:
            # Without outages a job is announced when it is sent, so that a call also trains jobs that are in transit.
            # With outages a job may never arrive, or may be begun again. Announced when sent, it might be trained for
            # nothing, and it would count in the device's generation, which determines its samples.
            node = self.world.devices[device]
            encoding = self._encoding(device, start.job, warmup=node.state.warmup)
            self.pool.expect(start.job, device, start.weights, encoding)
            seconds *= self.outages.compute_factor(device)
        self.times.training_since[device] = self.at
        self.queue.push(self.at + seconds, index, _TrainingDone(start.job, seconds))

    def _encoding(self, device: int, job: JobId, *, warmup: bool) -> ResultEncoding | None:
        """Return how the device would encode a job's result now, if a learner can make use of that."""
        return self.world.devices[device].result_encoding(job, warmup=warmup) if self._announces_encodings else None

    def _stop_training(self, index: int, stop: StopTraining) -> None:
        self.pool.forget(stop.job)
        self.times.training_ended(index - self._devices_from, self.at)

    def _set_timer(self, index: int, timer: SetTimer) -> None:
        at = max(timer.at, self.at)
        if self.outages is not None:
            self._check_progress()
        self._timers[(index, timer.key)] = self.queue.push(at, index, TimerFired(at, timer.key))

    def _solve(self, index: int, solve: Solve) -> None:
        association = self.world.association.solve(solve.problem)
        at = self.at + self.world.solver_seconds
        self.queue.push(at, index, Solved(at, solve.number, association))

    def _evaluate(self, index: int, evaluate: Evaluate) -> None:
        self._epoch_at = self.at
        answer = self.pool.begin_evaluation(evaluate.weights)
        self._evaluations[self.queue.push(self.at, index, _EvaluationDone(evaluate.epoch))] = answer

    def _stop(self, index: int, stop: Stop) -> None:
        if stop.reason:
            raise InternalError(f"{self.address(index)} stopped: {stop.reason}")
        self.mark_stopped(index)
        if index == 0:
            self.finished_at = self._epoch_at = self.at

    # Checkpoints -------------------------------------------------------------------------------------------------

    def snapshot(self, *, train: bool = True) -> Iterator[tuple[str, Plain]]:
        """Yield the state in small named parts, never in memory as a whole (`train`: see `TrainingPool`)."""
        evaluations = [(sequence, answer()) for sequence, answer in self._evaluations.items()]
        self._evaluations = _answered(evaluations)
        for part in self.pool.snapshot(_CHUNK, train=train):
            yield "pool", part
        yield (
            "simulator",
            {
                "at": self.at,
                "running": self._running,
                "finished_at": self.finished_at,
                "byte_counts": self.byte_counts.snapshot(),
                "delays": self.world.delays.snapshot(),
                "times": self.times.snapshot(),
                "stopped": sorted(self._stopped),
                "epoch_at": self._epoch_at,
                "evaluations": [[sequence, to_plain(evaluation)] for sequence, evaluation in evaluations],
                "outages": None if self.outages is None else self.outages.snapshot(),
                "timers": [[index, key, sequence] for (index, key), sequence in self._timers.items()],
            },
        )
        # A gateway's snapshot includes its jobs in flight, so a part has few nodes.
        for start in range(0, len(self._nodes), _NODES):
            yield "nodes", [node.snapshot() for node in self._nodes[start : start + _NODES]]
        for part in self.queue.snapshot(_CHUNK):
            yield "queue", part
        if self.transfers is not None:
            for part in self.transfers.snapshot(_CHUNK):
                yield "transfers", part

    def restore(self, parts: dict[str, list[Plain]]) -> None:
        (data,) = parts["simulator"]
        self.at, self._running = data["at"], data["running"]
        self.finished_at = data["finished_at"]
        self.pool.restore(parts["pool"])
        self.queue.restore(parts["queue"])
        self.byte_counts.restore(data["byte_counts"])
        self.world.delays.restore(data["delays"])
        self.times.restore(data["times"])
        self._stopped, self._epoch_at = set(data["stopped"]), data["epoch_at"]
        self._evaluations = _answered([(sequence, from_plain(answer)) for sequence, answer in data["evaluations"]])
        if self.transfers is not None:
            self.transfers.restore(parts["transfers"])
        if self.outages is not None:
            self.outages.restore(data["outages"])
        self._timers = {(index, key): sequence for index, key, sequence in data["timers"]}
        for node, part in zip(self._nodes, chain.from_iterable(parts["nodes"]), strict=True):
            node.restore(part)


def _answered(evaluations: Sequence[tuple[int, Evaluation]]) -> dict[int, Callable[[], Evaluation]]:
    """Return evaluations whose answers are known in the form of those in progress."""
    return {sequence: lambda known=evaluation: known for sequence, evaluation in evaluations}  # type: ignore[misc]
