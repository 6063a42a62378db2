"""Shell 2: one node, driven by its inbox.

    take a batch from the inbox -> the node handles each event, the store notes it -> one commit -> effects leave

An event is durable before any effect of it leaves; a restart restores the node, sends again what is unacknowledged and
re-arms timers with what was left of them. Everything that takes long (training, solving, evaluating) happens elsewhere
and comes back through the inbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from async_hfl.core.errors import InternalError
from async_hfl.core.identifiers import Address, JobId
from async_hfl.core.protocol.effects import Effect, Evaluate, SetTimer, Solve, StartTraining, Stop, StopTraining, Write
from async_hfl.core.protocol.events import Returned, Started, TimerFired
from async_hfl.core.protocol.records import Record, SentRecord
from async_hfl.core.protocol.traffic import subject, traffic
from async_hfl.deployment.shell.clock import Clock
from async_hfl.deployment.shell.inbox import Happening, Inbox
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.nodes.reliability.delivery import Packet, Parcel, Receipt, Transmit
from async_hfl.nodes.reliability.recovery import DurableNode

_BATCH = 64
_SNAPSHOT_EVERY = 500
"""Events; a restart replays at most so many."""
_AT = "at"


class Sender(Protocol):
    """What a shell needs of a transport."""

    def send(self, to: Address, content: Packet | Receipt) -> None: ...


class Workers(Protocol):
    """What a node has others do; each answer comes through the inbox."""

    def train(self, work: StartTraining) -> None: ...

    def stop_training(self, job: JobId) -> None: ...

    def solve(self, work: Solve) -> None: ...

    def evaluate(self, work: Evaluate) -> None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a shell's loop is over."""

    reason: str
    """Empty: the run is over, as it should be."""


class Shell:
    def __init__(
        self,
        address: Address,
        node: DurableNode,
        store: NodeStore,
        inbox: Inbox,
        post: Sender,
        hands: Workers,
        model_bytes: int,
        *,
        began_at: float = 0.0,
        share: float = 1.0,
        linger_s: float = 0.0,
        waits_for: Callable[[Parcel], bool] = lambda parcel: False,
        stays: Callable[[], bool] = lambda: False,
        wrote: Callable[[Record], None] = lambda record: None,
        handled: Callable[[], None] = lambda: None,
    ) -> None:
        """`began_at`: where the clock of a new node begins. `share`: of four bytes a number that arrays take when sent
        (`model_bytes` knows it already). `linger_s`: how long to wait at the end for the receipts that it `waits_for`,
        and while it `stays` to acknowledge what still comes.
        `wrote` sees every record, `handled` is called after every batch."""
        self.address = address
        self.node = node
        self.store = store
        self.inbox = inbox
        self.post = post
        self.hands = hands
        self.model_bytes = model_bytes
        self._share = share
        self._linger_s = linger_s
        self._waits_for = waits_for
        self._stays = stays
        self._wrote = wrote
        self._handled = handled
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._armed: dict[str, int] = {}
        """By key: the number of the SetTimer in force."""
        self._timer_number = 0
        self._stop: Stop | None = None
        self._lingered = False
        self.came_back_over = False
        """The run was over before this process began: it is here to say so."""
        last = store.get(_AT)
        self.fresh = last is None
        self.clock = Clock(began_at if last is None else float(last))
        self._perform: dict[type, Callable[[Any], None]] = {
            Transmit: self._transmit,
            SetTimer: self._set_timer,
            StartTraining: hands.train,
            StopTraining: lambda effect: hands.stop_training(effect.job),
            Solve: hands.solve,
            Evaluate: hands.evaluate,
            Stop: self._stopped,
            Write: lambda effect: None,  # written with the event it belongs to
        }

    async def run(self) -> Ended:
        """Until the node has stopped and what it had to say at the end was heard, or not in time."""
        first: Happening
        if self.fresh:
            self.node.checkpoint()  # where a replay begins
            first = Started(self.clock.now())
        else:
            self._perform_all(self.node.recover())
            self.came_back_over = self.stopping
            first = Returned(self.clock.now())
        self._handle([first])
        while not self._over():
            batch = await self.inbox.take(_BATCH)
            self._handle([event for made in batch if (event := made(self.clock.now())) is not None])
        for timer in self._timers.values():
            timer.cancel()
        assert self._stop is not None
        return Ended(self._stop.reason)

    @property
    def stopping(self) -> bool:
        """Its node has nothing left to do."""
        return self._stop is not None

    def wake(self) -> None:
        """Let the loop look again whether it is over."""
        self.inbox.put(lambda at: None)

    def is_known(self, sender: Address, run: int, incarnation: int, number: int) -> bool:
        """Is that packet handled and durable? Then its receipt goes out again, and its body need not travel."""
        state = self.node.node.state
        seen = state.seen.get((sender, incarnation))
        if run != state.run or seen is None or number not in seen:
            return False
        self.post.send(sender, Receipt(run, incarnation, number))
        return True

    def _handle(self, events: Sequence[Happening]) -> None:
        effects: list[Effect | Transmit] = []
        for event in events:
            found = self.node.handle(event)
            self.store.handled(found)
            for effect in found:
                if isinstance(effect, Write):
                    self.store.write(effect.record)
                    self.node.written(1)
            effects.extend(found)
        if events:
            self.store.put(_AT, events[-1].at)
        for effect in effects:
            if isinstance(effect, Transmit) and isinstance(effect.content, Packet):
                self._note_sent(effect.to, effect.content)
        self.store.commit()
        for effect in effects:
            if isinstance(effect, Write):
                self._wrote(effect.record)
        self._perform_all(effects)
        if self.store.events_since_snapshot >= _SNAPSHOT_EVERY:
            self.node.checkpoint()
        self._handled()

    def _note_sent(self, to: Address, packet: Packet) -> None:
        message = packet.message
        size = traffic(message, self.model_bytes, self._share)
        record = SentRecord(self.clock.now(), self.address, to, type(message).__name__, subject(message), 0.0, *size)
        self.store.write(record)
        self._wrote(record)

    # Effects ---------------------------------------------------------------------------------------------------------

    def _perform_all(self, effects: Sequence[Effect | Transmit]) -> None:
        for effect in effects:
            self._perform[type(effect)](effect)

    def _transmit(self, transmit: Transmit) -> None:
        self.post.send(transmit.to, transmit.content)

    def _set_timer(self, timer: SetTimer) -> None:
        if (old := self._timers.pop(timer.key, None)) is not None:
            old.cancel()
        self._timer_number += 1
        number = self._armed[timer.key] = self._timer_number
        delay = max(0.0, timer.at - self.clock.now())
        loop = asyncio.get_running_loop()
        self._timers[timer.key] = loop.call_later(delay, self._fired, timer.key, number)

    def _fired(self, key: str, number: int) -> None:
        def made(at: float) -> TimerFired | None:
            # Replaced while it stood in line: then the new one counts.
            return TimerFired(at, key) if self._armed.get(key) == number else None

        self.inbox.put(made)

    def _stopped(self, stop: Stop) -> None:
        if self._stop is None:
            self._stop = stop
            asyncio.get_running_loop().call_later(self._linger_s, self._linger_over)

    def _linger_over(self) -> None:
        self._lingered = True
        self.wake()

    def _over(self) -> bool:
        if self._stop is None:
            return False
        waiting = self.node.node.state.unacknowledged.values()
        if self._lingered or self._stop.reason:
            return True
        return not self._stays() and not any(map(self._waits_for, waiting))


class NoWorkers:
    """For nodes that have nothing done for them."""

    def train(self, work: StartTraining) -> None:
        raise InternalError("this node does not train")

    def stop_training(self, job: JobId) -> None:
        raise InternalError("this node does not train")

    def solve(self, work: Solve) -> None:
        raise InternalError("this node does not solve")

    def evaluate(self, work: Evaluate) -> None:
        raise InternalError("this node does not evaluate")
