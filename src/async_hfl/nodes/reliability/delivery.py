"""Exactly-once delivery over a network that loses, repeats and reorders messages, without touching a socket.

`ReliableNode` wraps a node. Every message gets a number and is resent with back-off until its receipt arrives. A
receiver acknowledges every packet and passes each number on once. Packets of another run are ignored. Unacknowledged
messages are part of the node's state, so they survive a crash.

The transfer of a model may take minutes. A shell that watches its transfers reports their end (`TransferOver`), and the
resend timeout counts from there; in other shells it counts from the sending. A shell with sessions reports them
(`PeerJoined`, `PeerLost`): messages to a peer without a session wait, and are sent as soon as there is one.
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
    """A packet or receipt has arrived over the network."""

    at: float
    sender: Address
    content: Packet | Receipt
    transfer_s: float = 0.0


@plain
@dataclass(frozen=True, slots=True)
class Transmit:
    """Send a packet or receipt over the network, which may lose, repeat or reorder it."""

    to: Address
    content: Packet | Receipt


@plain
@dataclass(frozen=True, slots=True)
class TransferOver:
    """The transfer of a packet is complete or has broken off: the resend timeout counts from now on."""

    at: float
    to: Address
    number: int


@plain
@dataclass(slots=True)
class Parcel:
    """A message that is not acknowledged yet."""

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
    """The last number used for each peer. Each peer sees numbers without gaps, so that it can store them as a range."""
    unacknowledged: dict[tuple[Address, int], Parcel] = field(default_factory=dict)
    seen: dict[tuple[Address, int], NumberSet] = field(default_factory=dict)
    """By peer and its incarnation: numbers that were passed on. Without gaps this is one range, also if this node has
    lost its disk and the peer goes on from a number that is unknown here."""
    resend_at: float = _NEVER
    present: set[Address] = field(default_factory=set)
    """Peers with a session, in a shell with sessions."""


class Node(Protocol):
    """A cloud, gateway or device node."""

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
        """Wrap a node. `watched`: the shell reports the end of each transfer. `sessions`: it reports sessions, too.
        `confirms`: the node is told about acknowledgements."""
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
        if self._sessions and isinstance(event, PeerJoined | PeerLost | Returned):
            again = self._session_changed(event)
        return [*again, *self._wrap(self.node.handle(event), event.at)]

    def _session_changed(self, event: PeerJoined | PeerLost | Returned) -> list[Transmit]:
        state = self.state
        if isinstance(event, PeerJoined):
            state.present.add(event.peer)
            return self._all_to({event.peer})
        if isinstance(event, PeerLost):
            state.present.discard(event.peer)
        else:
            state.present.clear()
        return []

    def unacknowledged(self) -> list[Transmit]:
        """Return every message that may not have been sent before a crash. With sessions there is none to return: they
        are gone after a crash, and messages are sent when a session is up again."""
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
        """Return every unacknowledged message after an outage, which has ended all transfers."""
        if self._watched:
            for parcel in self.state.unacknowledged.values():
                parcel.resend_at = _NEVER
        return self.unacknowledged()

    def _arrived(self, event: Arrived) -> list[Effect | Transmit]:
        state, content = self.state, event.content
        if content.run != state.run:
            return []  # from a node of another run
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
            wrapped.append(Transmit(effect.to, Packet(state.run, state.incarnation, number, effect.message)))
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
    # Ten doublings exceed the limit. After a thousand, for a peer that is gone for months, the power would overflow.
    return min(RESEND_FIRST_S * 2.0 ** min(parcel.attempts - 1, 10), RESEND_MOST_S)
