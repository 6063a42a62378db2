"""At-least-once delivery made exactly-once, without touching a socket.

Wraps a node for a network that loses, repeats and reorders: every message gets a number and is resent with back-off
until its receipt comes; a receiver acknowledges everything and passes on each number once. A message of another run is
refused. What is unacknowledged is part of the node's state, so it survives a crash.

A model may be under way for minutes. A shell that watches its transfers says when one is over (`TransferOver`), and
patience counts from there; without such a shell it counts from the sending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from async_hfl.core.effects import Effect, Send, SetTimer
from async_hfl.core.events import Event, Received, TimerFired
from async_hfl.core.identifiers import Address
from async_hfl.core.messages import Message
from async_hfl.core.plain import Plain, from_plain, plain, to_plain

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
class Seen:
    """Numbers of one peer's incarnation that were passed on: all up to `floor`, and these above it."""

    floor: int = 0
    above: set[int] = field(default_factory=set)

    def first_time(self, number: int) -> bool:
        if number <= self.floor or number in self.above:
            return False
        self.above.add(number)
        while self.floor + 1 in self.above:
            self.floor += 1
            self.above.discard(self.floor)
        return True


@plain
@dataclass(slots=True)
class DeliveryState:
    run: int
    incarnation: int
    sent: dict[Address, int] = field(default_factory=dict)
    """The last number used towards each peer: each peer sees them without gaps, so it need not remember them all."""
    unacknowledged: dict[tuple[Address, int], Parcel] = field(default_factory=dict)
    seen: dict[tuple[Address, int], Seen] = field(default_factory=dict)
    resend_at: float = _NEVER


class Node(Protocol):
    def handle(self, event: Event) -> list[Effect]: ...

    def snapshot(self) -> Plain: ...

    def restore(self, data: Plain) -> None: ...


class ReliableNode:
    def __init__(self, node: Node, run: int, incarnation: int = 1, *, watched: bool = False) -> None:
        """`watched`: the shell says when a transfer is over."""
        self.node = node
        self.state = DeliveryState(run, incarnation)
        self._watched = watched

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
        return self._wrap(self.node.handle(event), event.at)

    def unacknowledged(self) -> list[Transmit]:
        """Everything that may not have left before a crash."""
        return [self._transmit(number, parcel) for (_, number), parcel in self.state.unacknowledged.items()]

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
            if content.incarnation == state.incarnation:
                state.unacknowledged.pop((event.sender, content.number), None)
            return []
        receipt = Transmit(event.sender, Receipt(content.run, content.incarnation, content.number))
        seen = state.seen.setdefault((event.sender, content.incarnation), Seen())
        if not seen.first_time(content.number):
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
            wrapped.append(self._transmit(number, parcel))
            if parcel.resend_at < state.resend_at:
                state.resend_at = parcel.resend_at
                wrapped.append(SetTimer(RESEND, parcel.resend_at))
        return wrapped

    def _resend(self, at: float) -> list[Effect | Transmit]:
        state = self.state
        effects: list[Effect | Transmit] = []
        for (_, number), parcel in state.unacknowledged.items():
            if parcel.resend_at <= at:
                effects.append(self._transmit(number, parcel))
                parcel.attempts += 1
                parcel.resend_at = _NEVER if self._watched else at + _patience(parcel)
        state.resend_at = min((p.resend_at for p in state.unacknowledged.values()), default=_NEVER)
        if state.resend_at < _NEVER:
            effects.append(SetTimer(RESEND, state.resend_at))
        return effects

    def _transfer_over(self, event: TransferOver) -> list[Effect | Transmit]:
        parcel = self.state.unacknowledged.get((event.to, event.number))
        if parcel is None:
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
