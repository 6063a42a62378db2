"""Shell 1: the one event loop. Takes the nodes as they are and gives them virtual time.

    Send           delay model, then onto the heap          StartTraining  the training pool remembers the job
    SetTimer       heap                                     Solve          at once, answered as an event
    Write          journal                                  Evaluate       begun at once, answered as an event

An evaluation takes no time. But where it is computed while the simulation goes on, and will not end the run whatever it
finds, its answer is waited for no sooner than with the next one; in the journal it stands where it belongs.

Where transfers share the air they are watched (`transfers.py`); where things fail (`life.py`) they are, too, and nodes
are wrapped for delivery as in a deployment. A plain run pays for neither.

Decides nothing: policies, learner and delays are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from async_hfl.core.errors import InternalError, UserError
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
from async_hfl.core.learner import Evaluation, TrainingJob
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Evaluate, Send, SetTimer, Solve, StartTraining, Stop, StopTraining, Write
from async_hfl.core.protocol.events import Evaluated, Received, Solved, Started, TimerFired, Trained
from async_hfl.core.protocol.records import EpochRecord
from async_hfl.core.protocol.traffic import traffic
from async_hfl.core.randomness import scramble, stream_seed
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.core.weights import Weights
from async_hfl.encoding.rounding import Rounding
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import ReliableNode, Transmit
from async_hfl.simulation.accounting.byte_counts import ByteCounts, Spent
from async_hfl.simulation.accounting.device_times import DeviceTimes
from async_hfl.simulation.event_queue import EventQueue
from async_hfl.simulation.outages import Outages
from async_hfl.simulation.training_pool import TrainingPool
from async_hfl.simulation.transfers.transfers import AirDue, TransferDue, Transfers
from async_hfl.simulation.transfers.watched_delivery import WatchedDelivery
from async_hfl.simulation.world import Journal, World

_CHUNK, _NODES = 100, 2
"""Events (or results) and nodes in one part of a checkpoint."""
STALLED_AFTER_S = 30 * 86_400.0
"""Without a new global model. Where things fail something always happens, so that an empty heap cannot tell."""


@plain
@dataclass(frozen=True, slots=True)
class _TrainingDone:
    """A training ends at this time; what it gives is asked of the pool only then."""

    job: JobId
    training_s: float


@plain
@dataclass(frozen=True, slots=True)
class _EvaluationDone:
    """An evaluation ends at this time; how it ends is asked of the pool only then."""

    epoch: int


@dataclass(frozen=True, slots=True)
class _Late:
    """An evaluation that the cloud has not been told of yet, although it is due."""

    at: float
    epoch: int
    answer: Callable[[], Evaluation]
    spent: Spent
    updates: int


def _known(evaluation: Evaluation) -> Evaluation:
    return evaluation


class Simulator:
    def __init__(self, world: World, journal: Journal) -> None:
        self.world = world
        self.journal = journal
        self.queue = EventQueue()
        self.pool = TrainingPool(world.learner, batching=world.batching)
        self.byte_counts = ByteCounts(len(world.gateways), len(world.devices))
        self.times = DeviceTimes(len(world.devices))
        self.at = 0.0
        self.updates = 0
        """Device updates sent, those of the warm-up included."""
        self.finished_at: float | None = None
        self._running = 1 + len(world.gateways)
        self._gateways_from = 1
        self._devices_from = 1 + len(world.gateways)
        bare: list[CloudNode | GatewayNode | DeviceNode] = [world.cloud, *world.gateways, *world.devices]
        self._nodes: Sequence[Any] = bare
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
        self._stopped: set[int] = set()
        self._evaluations: dict[int, Callable[[], Evaluation]] = {}
        """Begun, by the number of the event that ends them."""
        self._late: _Late | None = None
        self._epoch_at = 0.0
        self.watched_delivery: WatchedDelivery | None = None
        self.life: Outages | None = None
        if world.air is not None or world.life is not None:
            self.watched_delivery = watched_delivery = WatchedDelivery(self, self._watched_transfers())
            self._perform[Send] = watched_delivery.send
            if world.life is not None:
                self._nodes = wrapped = [ReliableNode(node, world.seed, watched=True) for node in bare]
                links = world.cloud.registry.links
                self.life = Outages(
                    world.life, self, self.queue, watched_delivery.transfers, self.times, wrapped, links
                )
                watched_delivery.life = self.life
                self._perform[Transmit] = watched_delivery.transmit
        if world.encoding.half:
            self._round(Rounding(world.encoding))

    def _round(self, rounding: Rounding) -> None:
        """What leaves a node is what its receiver will have."""
        send, transmit = self._perform[Send], self._perform.get(Transmit)

        def send_rounded(index: int, effect: Send) -> None:
            send(index, Send(effect.to, rounding.received(effect.message)))

        def transmit_rounded(index: int, effect: Transmit) -> None:
            assert transmit is not None
            transmit(index, Transmit(effect.to, rounding.received(effect.content)))

        self._perform |= {Send: send_rounded, Transmit: transmit_rounded}

    def _watched_transfers(self) -> Transfers:
        world = self.world
        loss = 0.0 if world.life is None else world.life.transfer_loss
        return Transfers(
            self.queue,
            world.delays,
            world.air,
            len(world.gateways),
            world.model_bytes,
            self.byte_counts,
            self.times,
            self.journal.write_sent,
            loss,
            stream_seed(world.seed, "life", "transfers"),
            world.share,
        )

    def start(self) -> None:
        """Wake the tiers from the top; devices wait to be spoken to."""
        if self.life is not None:
            self.life.begin()
        for index in range(self._devices_from):
            self.queue.push(0.0, index, Started(0.0))

    def run(self, stop: Callable[[], bool] | None = None) -> None:
        """Until the cloud and every gateway have stopped, or `stop` says so between two events."""
        queue, nodes, perform = self.queue, self._nodes, self._perform
        heap, pop = queue.heap, queue.pop
        down = None if self.life is None else self.life.down
        while self._running and heap:
            if stop is not None and stop():
                self._catch_up()
                return
            at, sequence, index, what = pop()
            self.at = at
            if index < 0:
                self._world_turns(what)
                continue
            if down is not None and down[index]:
                self._missed(index, what, sequence)
                continue
            kind = type(what)
            if kind is TimerFired:
                if self._timers.get((index, what.key)) != sequence:  # type: ignore[attr-defined]
                    continue  # replaced by a later SetTimer
            elif kind is _TrainingDone:
                job = what.job  # type: ignore[attr-defined]
                if job not in self.pool:
                    continue  # stopped meanwhile
                self.times.stopped(index - self._devices_from, at)
                self.updates += 1
                what = Trained(at, job, self.pool.result(job), what.training_s)  # type: ignore[attr-defined]
            elif kind is _EvaluationDone:
                self._catch_up()
                epoch, answer = what.epoch, self._evaluations.pop(sequence)  # type: ignore[attr-defined]
                if self._may_be_late(index) and self.journal.leave_room(epoch):
                    self._late = _Late(at, epoch, answer, self.spent(), self.updates)
                    continue
                what = Evaluated(at, epoch, answer())
            for effect in nodes[index].handle(what):
                perform[type(effect)](index, effect)
        self._catch_up()
        if self._running:
            raise InternalError(f"the run stalled at {self.at:.0f} s of virtual time: nothing is left to happen")
        if self.life is not None:
            self.life.end()
        elif self.watched_delivery is not None:
            self.watched_delivery.transfers.cut_all(self.at)

    def _may_be_late(self, index: int) -> bool:
        # Where things fail nodes are wrapped, and a cloud that is down is told nothing.
        return index == 0 and self.life is None and self.pool.evaluates_aside and self.world.cloud.goes_on_anyway()

    def _catch_up(self) -> None:
        """Tell the cloud of the evaluation that is late."""
        if self._late is None:
            return
        late, self._late = self._late, None
        effects = self.world.cloud.handle(Evaluated(late.at, late.epoch, late.answer()))
        writes = [effect for effect in effects if isinstance(effect, Write)]
        if len(writes) < len(effects):
            raise InternalError(f"the cloud was told late of epoch {late.epoch}, and does more than note it")
        with self.journal.in_room():
            for write in writes:
                self._note(write, late.spent, late.updates)

    # What happens beside the nodes -------------------------------------------------------------------------------

    def perform(self, index: int, effects: Sequence[Any]) -> None:
        for effect in effects:
            self._perform[type(effect)](index, effect)

    def deliver(self, index: int, event: Any) -> None:
        self.perform(index, self._nodes[index].handle(event))

    def gone(self, index: int) -> None:
        if index not in self._stopped:
            self._stopped.add(index)
            self._running -= 1

    def _world_turns(self, what: Any) -> None:
        assert self.watched_delivery is not None
        if type(what) is AirDue:
            self.watched_delivery.transfers.air_due(self.at, what)
        elif type(what) is TransferDue:
            self.watched_delivery.ended(what)
        else:
            assert self.life is not None
            self.life.happen(what)
        self._check_progress()

    def _check_progress(self) -> None:
        if self.at - self._epoch_at > STALLED_AFTER_S:
            raise UserError(
                f"the run stalled: no new global model since {self._epoch_at:.0f} s, and it is {self.at:.0f} s; "
                "under [outages], does anybody survive who could send one?"
            )

    def _missed(self, index: int, what: Any, sequence: int) -> None:
        """An event that found its node down."""
        assert self.life is not None
        if type(what) is TimerFired and self._timers.get((index, what.key)) == sequence:
            self.life.timer_missed(index, what)
        elif type(what) is _TrainingDone:
            self.pool.forget(what.job)
        elif type(what) is _EvaluationDone:
            del self._evaluations[sequence]

    # Effects -----------------------------------------------------------------------------------------------------

    def _send(self, index: int, send: Send) -> None:
        message, to = send.message, send.to
        world, at = self.world, self.at
        delays = world.delays
        size = traffic(message, world.model_bytes, world.share)
        sender = self.address(index)
        total = self.byte_counts.add(sender, to, size)
        tier, number = to  # unpacked: half the price of two attributes, a million times
        concerns: JobId | UploadId | None = None
        if tier == DEVICE_TIER:
            delay = delays.to_device(sender.number, number, total)
            target = self._devices_from + number
            self.times.receive_s[number] += delay
            if type(message) is m.Train:
                concerns = job = message.job
                self.expect(job, number, message.weights)
        elif index >= self._devices_from:
            device = index - self._devices_from
            delay = delays.to_gateway(device, number, total)
            target = self._gateways_from + number
            self.times.transmit_s[device] += delay
            if type(message) is m.Update:
                concerns = message.job
            elif type(message) is m.JobDropped:
                # Declined before it began, perhaps: nobody will ask for its result.
                self.pool.forget(message.job)
        elif tier == CLOUD_TIER:
            delay = delays.gateway_to_cloud(sender.number, total)
            target = 0
            if type(message) is m.Upload:
                concerns = message.upload
        else:
            delay = delays.cloud_to_gateway(number, total)
            target = self._gateways_from + number
            if type(message) is m.Answer:
                concerns = message.upload
        self.journal.write_sent(at, sender, to, type(message).__name__, concerns, delay, *size)
        arrival = at + delay
        self.queue.push(arrival, target, Received(arrival, sender, message, delay))

    def expect(self, job: JobId, device: int, weights: Weights) -> None:
        generation = self.pool.next_generation(device)
        self.pool.expect(TrainingJob(job, device, weights, self._seed_of(job), generation))

    def spent(self) -> Spent:
        """What has been booked, and as much of the watched transfers under way as has gone so far."""
        byte_counts = self.byte_counts
        if self.watched_delivery is None:
            return byte_counts.spent()
        total, models_up = self.watched_delivery.transfers.sent_so_far(self.at)
        return Spent(byte_counts.total + round(total), byte_counts.models_up + round(models_up))

    def index(self, address: Address) -> int:
        return address.number + (0, self._gateways_from, self._devices_from)[address.tier]

    def address(self, index: int) -> Address:
        first = self._devices_from
        return self._addresses[index] if index < first else device_address(index - first)

    def _write(self, index: int, write: Write) -> None:
        self._note(write, None, self.updates)

    def _note(self, write: Write, spent: Spent | None, updates: int) -> None:
        """`spent` None: what is spent by now, which takes a while to add up."""
        record = write.record
        self.journal.write(record)
        if type(record) is EpochRecord:
            self.journal.epoch(record, self.spent() if spent is None else spent, updates)

    def _start_training(self, index: int, start: StartTraining) -> None:
        device = index - self._devices_from
        seconds = self.world.delays.compute(device)
        if self.life is not None:
            # Only now: a job that never reaches its device, or twice, is trained as often as it is begun.
            self.expect(start.job, device, start.weights)
            seconds *= self.life.compute_factor(device)
        self.times.began(device, self.at)
        self.queue.push(self.at + seconds, index, _TrainingDone(start.job, seconds))

    def _stop_training(self, index: int, stop: StopTraining) -> None:
        self.pool.forget(stop.job)
        self.times.stopped(index - self._devices_from, self.at)

    def _set_timer(self, index: int, timer: SetTimer) -> None:
        at = max(timer.at, self.at)
        if self.life is not None:
            self._check_progress()
        self._timers[(index, timer.key)] = self.queue.push(at, index, TimerFired(at, timer.key))

    def _solve(self, index: int, solve: Solve) -> None:
        association = self.world.association.solve(solve.problem)
        at = self.at + self.world.charge_solver
        self.queue.push(at, index, Solved(at, solve.number, association))

    def _evaluate(self, index: int, evaluate: Evaluate) -> None:
        self._epoch_at = self.at
        answer = self.pool.begin_evaluation(evaluate.weights)
        self._evaluations[self.queue.push(self.at, index, _EvaluationDone(evaluate.epoch))] = answer

    def _stop(self, index: int, stop: Stop) -> None:
        if stop.reason:
            raise InternalError(f"{self.address(index)} stopped: {stop.reason}")
        self._running -= 1
        self._stopped.add(index)
        if index == 0:
            self.finished_at = self._epoch_at = self.at

    def _seed_of(self, job: JobId) -> int:
        return scramble(self._training_seed ^ (job.gateway << 44) ^ (job.incarnation << 32) ^ job.number)

    # Checkpoints -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[tuple[str, Plain]]:
        """Named parts, each small: the whole never stands in memory as plain data."""
        evaluations = {sequence: answer() for sequence, answer in self._evaluations.items()}
        self._answered(evaluations)
        for part in self.pool.snapshot(_CHUNK):
            yield "pool", part
        yield (
            "simulator",
            {
                "at": self.at,
                "updates": self.updates,
                "running": self._running,
                "finished_at": self.finished_at,
                "ledger": self.byte_counts.snapshot(),
                "delays": self.world.delays.snapshot(),
                "times": self.times.snapshot(),
                "stopped": sorted(self._stopped),
                "epoch_at": self._epoch_at,
                "evaluations": [[sequence, to_plain(evaluation)] for sequence, evaluation in evaluations.items()],
                "life": None if self.life is None else self.life.snapshot(),
                "timers": [[index, key, sequence] for (index, key), sequence in self._timers.items()],
            },
        )
        # A gateway's snapshot holds its devices in flight, so few nodes make a part.
        for start in range(0, len(self._nodes), _NODES):
            yield "nodes", [node.snapshot() for node in self._nodes[start : start + _NODES]]
        for part in self.queue.snapshot(_CHUNK):
            yield "queue", part
        if self.watched_delivery is not None:
            for part in self.watched_delivery.transfers.snapshot(_CHUNK):
                yield "transfers", part

    def _answered(self, evaluations: Mapping[int, Evaluation]) -> None:
        """These are known, and told when they are due."""
        for sequence, evaluation in evaluations.items():
            self._evaluations[sequence] = partial(_known, evaluation)

    def restore(self, parts: dict[str, list[Plain]]) -> None:
        (data,) = parts["simulator"]
        self.at, self.updates, self._running = data["at"], data["updates"], data["running"]
        self.finished_at = data["finished_at"]
        self.pool.restore(parts["pool"])
        self.queue.restore(parts["queue"])
        self.byte_counts.restore(data["ledger"])
        self.world.delays.restore(data["delays"])
        self.times.restore(data["times"])
        self._stopped, self._epoch_at = set(data["stopped"]), data["epoch_at"]
        self._answered({sequence: from_plain(evaluation) for sequence, evaluation in data["evaluations"]})
        if self.watched_delivery is not None:
            self.watched_delivery.transfers.restore(parts["transfers"])
        if self.life is not None:
            self.life.restore(data["life"])
        self._timers = {(index, key): sequence for index, key, sequence in data["timers"]}
        for node, part in zip(self._nodes, chain.from_iterable(parts["nodes"]), strict=True):
            node.restore(part)
