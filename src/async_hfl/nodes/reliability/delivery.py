"""At-least-once delivery made exactly-once, without touching a socket.

Wraps a node for a network that loses, repeats and reorders: every message gets a number and is resent with back-off
until its receipt comes; a receiver acknowledges everything and passes on each number once. A message of another run is
refused. What is unacknowledged is part of the node's state, so it survives a crash.

A model may be under way for minutes. A shell that watches its transfers says when one is over (`TransferOver`), and
patience counts from there; without such a shell it counts from the sending. A shell that holds sessions says who is
there (`PeerJoined`, `PeerLost`): what is meant for somebody away waits, and leaves the moment that peer is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.effects import Effect, Send, SetTimer
from async_hfl.core.protocol.events import Acknowledged, Event, PeerJoined, PeerLost, Received, Returned, TimerFired
from async_hfl.core.protocol.messages import Message
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.nodes.reliability.number_set import NumberSet

RESEND = "delivery.resend"
RESEND_FIRST_S = 5.0
RESEND_MOST_S = 300.0
_NEVER = float("inf")


@plain
@dataclass(frozen=True, slots=True)
class Packet:
    run: int
    incarnation: int
    number: int
    message: Message


@plain
@dataclass(frozen=True, slots=True)
class Receipt:
    run: int
    incarnation: int
    number: int


@plain
@dataclass(frozen=True, slots=True)
class Arrived:
    """Something came over the network."""

    at: float
    sender: Address
    content: Packet | Receipt
    transfer_s: float = 0.0


@plain
@dataclass(frozen=True, slots=True)
class Transmit:
    """Put something on the network; it may be lost, repeated or overtaken."""

    to: Address
    content: Packet | Receipt


@plain
@dataclass(frozen=True, slots=True)
class TransferOver:
    """A packet has arrived, or its transfer broke off: from now on silence means something."""

    at: float
    to: Address
    number: int


@plain
@dataclass(slots=True)
class Parcel:
    to: Address
    message: Message
    attempts: int
    resend_at: float


@plain
@dataclass(slots=True)
class DeliveryState:
    run: int
    incarnation: int
    sent: dict[Address, int] = field(default_factory=dict)
    """The last number used towards each peer: each peer sees them without gaps, so it need not remember them all."""
    unacknowledged: dict[tuple[Address, int], Parcel] = field(default_factory=dict)
    seen: dict[tuple[Address, int], NumberSet] = field(default_factory=dict)
    """By peer and its incarnation: numbers that were passed on. Without gaps it is one range, and also where we lost
    our disk and a peer goes on from a number that we have not seen."""
    resend_at: float = _NEVER
    present: set[Address] = field(default_factory=set)
    """Peers with a session, where there are sessions."""


class Node(Protocol):
    def handle(self, event: Event) -> list[Effect]: ...

    def snapshot(self) -> Plain: ...

    def restore(self, data: Plain) -> None: ...


class ReliableNode:
    def __init__(
        self,
        node: Node,
        run: int,
        incarnation: int = 1,
        *,
        watched: bool = False,
        sessions: bool = False,
        confirms: bool = False,
    ) -> None:
        """`watched`: the shell says when a transfer is over. `sessions`: it says who is there, too. `confirms`: the
        node is told what was acknowledged."""
        self.node = node
        self.state = DeliveryState(run, incarnation)
        self._watched = watched
        self._sessions = sessions
        self._confirms = confirms

    def snapshot(self) -> Plain:
        return {"delivery": to_plain(self.state), "node": self.node.snapshot()}

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data["delivery"])
        self.node.restore(data["node"])

    def handle(self, event: Event | Arrived | TransferOver) -> list[Effect | Transmit]:
        if isinstance(event, Arrived):
            return self._arrived(event)
        if isinstance(event, TransferOver):
            return self._transfer_over(event)
        if isinstance(event, TimerFired) and event.key == RESEND:
            return self._resend(event.at)
        again: list[Transmit] = []
        if self._sessions:
            again = self._session_changed(event)
        return [*again, *self._wrap(self.node.handle(event), event.at)]

    def _session_changed(self, event: Event) -> list[Transmit]:
        state = self.state
        if isinstance(event, PeerLost):
            state.present.discard(event.peer)
        elif isinstance(event, Returned):
            state.present.clear()
        elif isinstance(event, PeerJoined):
            state.present.add(event.peer)
            return self._all_to({event.peer})
        return []

    def unacknowledged(self) -> list[Transmit]:
        """Everything that may not have left before a crash. Where there are sessions they are gone, too: nothing can
        leave before one is up again."""
        return [] if self._sessions else self._all_to(None)

    def _all_to(self, peers: set[Address] | None) -> list[Transmit]:
        found = []
        for (to, number), parcel in self.state.unacknowledged.items():
            if peers is None or to in peers:
                if self._sessions:
                    parcel.resend_at = _NEVER
                found.append(self._transmit(number, parcel))
        return found

    def send_again(self) -> list[Transmit]:
        """After an outage: nothing of what is unacknowledged is under way any more."""
        if self._watched:
            for parcel in self.state.unacknowledged.values():
                parcel.resend_at = _NEVER
        return self.unacknowledged()

    def _arrived(self, event: Arrived) -> list[Effect | Transmit]:
        state, content = self.state, event.content
        if content.run != state.run:
            return []  # a node of another run: nothing it says concerns us
        if isinstance(content, Receipt):
            if content.incarnation != state.incarnation:
                return []
            parcel = state.unacknowledged.pop((event.sender, content.number), None)
            if parcel is None or not self._confirms:
                return []
            acknowledged = Acknowledged(event.at, event.sender, parcel.message)
            return self._wrap(self.node.handle(acknowledged), event.at)
        receipt = Transmit(event.sender, Receipt(content.run, content.incarnation, content.number))
        seen = state.seen.setdefault((event.sender, content.incarnation), NumberSet())
        if not seen.add(content.number):
            return [receipt]
        received = Received(event.at, event.sender, content.message, event.transfer_s)
        return [receipt, *self._wrap(self.node.handle(received), event.at)]

    def _wrap(self, effects: Sequence[Effect], at: float) -> list[Effect | Transmit]:
        state = self.state
        wrapped: list[Effect | Transmit] = []
        for effect in effects:
            if not isinstance(effect, Send):
                wrapped.append(effect)
                continue
            parcel = Parcel(effect.to, effect.message, 1, _NEVER if self._watched else at + RESEND_FIRST_S)
            number = state.sent.get(effect.to, 0) + 1
            state.sent[effect.to] = number
            state.unacknowledged[effect.to, number] = parcel
            if self._sessions and effect.to not in state.present:
                parcel.resend_at = _NEVER
                continue
            wrapped.append(self._transmit(number, parcel))
            if parcel.resend_at < state.resend_at:
                state.resend_at = parcel.resend_at
                wrapped.append(SetTimer(RESEND, parcel.resend_at))
        return wrapped

    def _resend(self, at: float) -> list[Effect | Transmit]:
        state = self.state
        effects: list[Effect | Transmit] = []
        for (_, number), parcel in state.unacknowledged.items():
            if parcel.resend_at <= at and self._sessions and parcel.to not in state.present:
                parcel.resend_at = _NEVER
            elif parcel.resend_at <= at:
                effects.append(self._transmit(number, parcel))
                parcel.attempts += 1
                parcel.resend_at = _NEVER if self._watched else at + _patience(parcel)
        state.resend_at = min((p.resend_at for p in state.unacknowledged.values()), default=_NEVER)
        if state.resend_at < _NEVER:
            effects.append(SetTimer(RESEND, state.resend_at))
        return effects

    def _transfer_over(self, event: TransferOver) -> list[Effect | Transmit]:
        parcel = self.state.unacknowledged.get((event.to, event.number))
        if parcel is None or (self._sessions and event.to not in self.state.present):
            return []
        parcel.resend_at = event.at + _patience(parcel)
        if parcel.resend_at >= self.state.resend_at:
            return []
        self.state.resend_at = parcel.resend_at
        return [SetTimer(RESEND, parcel.resend_at)]

    def _transmit(self, number: int, parcel: Parcel) -> Transmit:
        return Transmit(parcel.to, Packet(self.state.run, self.state.incarnation, number, parcel.message))


def _patience(parcel: Parcel) -> float:
    # A peer may be gone for months: after ten doublings nothing changes, after a thousand the power would overflow.
    return min(RESEND_FIRST_S * 2.0 ** min(parcel.attempts - 1, 10), RESEND_MOST_S)
