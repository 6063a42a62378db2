"""The deployment shell: drives one node with the events in its inbox, and performs the effects.

    take a batch from the inbox -> the node handles each event, the store logs it -> one commit -> effects leave

An event is durable before any of its effects leaves. After a restart the shell restores the node, resends every
unacknowledged message and re-arms the timers with the time they had left. Long computations (training, solving,
evaluating) run on workers; their results come back through the inbox.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from async_hfl.core.errors import InternalError
from async_hfl.core.identifiers import Address, JobId
from async_hfl.core.protocol.effects import Effect, Evaluate, SetTimer, Solve, StartTraining, Stop, StopTraining, Write
from async_hfl.core.protocol.events import Returned, Started, TimerFired
from async_hfl.core.protocol.records import Record, SentRecord
from async_hfl.core.protocol.traffic import subject, traffic
from async_hfl.deployment.shell.inbox import Inbox, MakeEvent
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.nodes.reliability.delivery import DeliveryState, Packet, Receipt, Transmit, UnacknowledgedPacket
from async_hfl.nodes.reliability.recovery import DurableNode

_BATCH = 64
_SNAPSHOT_EVERY = 500
"""Events between two snapshots. A restart replays at most this many."""
_AT = "at"


def _started(at: float) -> Started:
    return Started(at, secrets.randbits(64))


class Clock:
    """A node's clock: seconds since the run began, excluding the time that the node was down.

    It shows the last durable time plus the monotonic time since the process started. Wall-clock time is never read, so
    changes of the system clock have no effect.
    """

    def __init__(self, last_at: float = 0.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._start = monotonic() - last_at

    @property
    def now(self) -> float:
        return self._monotonic() - self._start


class Workers:
    """The computations that a node may request; each result comes back through the inbox.

    A subclass implements those that its kind of node requests. The base class serves gateways, which request none."""

    def train(self, work: StartTraining) -> None:
        raise InternalError("this node does not train")

    def stop_training(self, job: JobId) -> None:
        raise InternalError("this node does not train")

    def solve(self, work: Solve) -> None:
        raise InternalError("this node does not solve")

    def evaluate(self, work: Evaluate) -> None:
        raise InternalError("this node does not evaluate")


class Shell:
    def __init__(
        self,
        address: Address,
        node: DurableNode,
        store: NodeStore,
        inbox: Inbox,
        send: Callable[[Address, Packet | Receipt], None],
        workers: Workers,
        *,
        began_at: float = 0.0,
        linger_s: float = 0.0,
        waits_for: Callable[[UnacknowledgedPacket], bool] = lambda packet: False,
        stays: Callable[[], bool] = lambda: False,
        wrote: Callable[[Record], None] = lambda record: None,
        handled: Callable[[], None] = lambda: None,
        opening: Sequence[MakeEvent] = (),
    ) -> None:
        """`began_at`: the initial time of a new node's clock. `linger_s`: after the end of the run, the longest time to
        wait for the receipts of packets that satisfy `waits_for`, and to keep running while `stays` returns True.
        `wrote` is called with every record, `handled` after every batch. `opening`: events that follow that of the
        start, before any other."""
        self.address = address
        self.node = node
        self.store = store
        self.inbox = inbox
        self._send = send
        self._linger_s = linger_s
        self._waits_for = waits_for
        self._stays = stays
        self._wrote = wrote
        self._handled = handled
        self._opening = opening
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._armed: dict[str, int] = {}
        """Timer key -> number of the SetTimer that is in force."""
        self._timer_number = 0
        self._stop: Stop | None = None
        self._lingered = False
        self.ended_before = False
        """True if the run was over before this process started. The process then only informs its peers."""
        last = store.get(_AT)
        self.fresh = last is None
        self.clock = Clock(began_at if last is None else float(last))
        self._perform: dict[type, Callable[[Any], None]] = {
            Transmit: lambda effect: send(effect.to, effect.content),
            SetTimer: self._set_timer,
            StartTraining: workers.train,
            StopTraining: lambda effect: workers.stop_training(effect.job),
            Solve: workers.solve,
            Evaluate: workers.evaluate,
            Stop: self._stopped,
            Write: lambda effect: None,  # written with its event
        }

    async def run(self) -> str:
        """Run until the node has stopped and lingered; return its reason for stopping, empty at a normal end."""
        first: MakeEvent = _started
        if self.fresh:
            self.node.checkpoint()  # a replay starts here
        else:
            for effect in self.node.recover():
                self._perform[type(effect)](effect)
            self.ended_before = self._stop is not None
            first = Returned
        self._handle([first, *self._opening])
        while not self._over:
            self._handle(await self.inbox.take(_BATCH))
        for timer in self._timers.values():
            timer.cancel()
        assert self._stop is not None
        return self._stop.reason

    def wake(self) -> None:
        """Make the loop check whether it may end."""
        self.inbox.put(lambda at: None)

    def is_known(self, sender: Address, run: int, incarnation: int, number: int) -> bool:
        """Return True if a packet was handled durably before. Its receipt is sent again, and its body is not needed."""
        delivery = self.delivery
        seen = delivery.seen.get((sender, incarnation))
        if run != delivery.run or seen is None or number not in seen:
            return False
        self._send(sender, Receipt(run, incarnation, number))
        return True

    def _handle(self, batch: Sequence[MakeEvent]) -> None:
        """Handle the events, commit once, then perform the effects."""
        effects: list[Effect | Transmit] = []
        records: list[Record] = []
        for make in batch:
            event = make(self.clock.now)
            if event is None:
                continue
            found = self.node.handle(event)
            self.store.handled(found)
            self.store.put(_AT, event.at)
            written = [effect.record for effect in found if isinstance(effect, Write)]
            for record in written:
                self.store.write(record)
            self.node.written(len(written))
            records += written
            effects += found
        for effect in effects:
            if isinstance(effect, Transmit) and isinstance(effect.content, Packet):
                message = effect.content.message
                size = traffic(message)
                kind = type(message).__name__
                sent = SentRecord(self.clock.now, self.address, effect.to, kind, subject(message), 0.0, *size)
                self.store.write(sent)
                records.append(sent)
        self.store.commit()
        for record in records:
            self._wrote(record)
        for effect in effects:
            self._perform[type(effect)](effect)
        if self.store.events_since_snapshot >= _SNAPSHOT_EVERY:
            self.node.checkpoint()
        self._handled()

    @property
    def delivery(self) -> DeliveryState:
        return self.node.node.state

    @property
    def _over(self) -> bool:
        if self._stop is None:
            return False
        if self._lingered or self._stop.reason:
            return True
        return not self._stays() and not any(map(self._waits_for, self.delivery.unacknowledged.values()))

    # Effects ---------------------------------------------------------------------------------------------------------

    def _set_timer(self, timer: SetTimer) -> None:
        if (old := self._timers.pop(timer.key, None)) is not None:
            old.cancel()
        self._timer_number += 1
        number = self._armed[timer.key] = self._timer_number
        delay = max(0.0, timer.at - self.clock.now)
        self._timers[timer.key] = asyncio.get_running_loop().call_later(delay, self._fired, timer.key, number)

    def _fired(self, key: str, number: int) -> None:
        # A timer that is replaced while its event waits in the inbox does not fire.
        self.inbox.put(lambda at: TimerFired(at, key) if self._armed.get(key) == number else None)

    def _stopped(self, stop: Stop) -> None:
        if self._stop is None:
            self._stop = stop
            asyncio.get_running_loop().call_later(self._linger_s, self._linger_over)

    def _linger_over(self) -> None:
        self._lingered = True
        self.wake()
