"""Exactly-once delivery over a network that loses, repeats and reorders messages. It does no I/O itself.

`ReliableNode` wraps a node. It sends every message as a numbered packet and resends it with exponential back-off until
the receipt arrives. The receiver acknowledges every packet and passes each number on to its node once. Packets of
another run are ignored. Unacknowledged packets are part of the node's state, so they survive a crash.

The transfer of a model may take minutes. A shell that watches its transfers reports their end (`TransferOver`), and the
resend timeout starts then; in other shells it starts when the packet is sent. A shell with sessions reports them
(`PeerJoined`, `PeerLost`): packets to a peer without a session wait until there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.effects import Effect, Send, SetTimer, Write
from async_hfl.core.protocol.events import (
    Acknowledged,
    Event,
    PeerJoined,
    PeerLost,
    Received,
    Restored,
    Returned,
    TimerFired,
)
from async_hfl.core.protocol.messages import Message
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain, value
from async_hfl.nodes.reliability.number_set import NumberSet

RESEND = "delivery.resend"
RESEND_FIRST_S = 5.0
RESEND_MOST_S = 300.0
MOST_INCARNATIONS = 8
"""Incarnations of one peer whose numbers are remembered; a node that loses its state is a new incarnation."""
MOST_GAPS = 1000
"""Gaps in the numbers from one incarnation. A packet that would make another one is left unacknowledged: its sender
sends it again, after those that are missing."""
_NEVER = float("inf")


@value
class Packet:
    """A message with its number among all messages from this incarnation of the sender to the receiver."""

    run: int
    incarnation: int
    number: int
    message: Message


@value
class Receipt:
    """The acknowledgement of a packet."""

    run: int
    incarnation: int
    number: int


@value
class Arrived:
    """A packet or receipt has arrived over the network."""

    at: float
    sender: Address
    content: Packet | Receipt
    transfer_s: float = 0.0


@value
class Transmit:
    """Send a packet or receipt over the network, which may lose, repeat or reorder it."""

    to: Address
    content: Packet | Receipt


@value
class Dropped:
    """A packet was dropped because its receiver failed to handle the message in it."""

    at: float
    sender: Address
    run: int
    incarnation: int
    number: int
    why: str


@value
class TransferOver:
    """The transfer of a packet is complete or has failed: the resend timeout starts now."""

    at: float
    to: Address
    number: int


NodeEvent = Event | Arrived | Dropped | TransferOver


@plain
@dataclass(slots=True)
class UnacknowledgedPacket:
    """A packet that was sent, or waits for a session, and whose receipt has not arrived."""

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
    """The last number used for each peer. A peer sees numbers without gaps, which it can store as one range."""
    unacknowledged: dict[tuple[Address, int], UnacknowledgedPacket] = field(default_factory=dict)
    seen: dict[tuple[Address, int], NumberSet] = field(default_factory=dict)
    """Numbers passed on to the node, by peer and its incarnation."""
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
        """Wrap a node. `watched`: the shell reports the end of each transfer. `sessions`: the shell reports sessions.
        `confirms`: the node receives an `Acknowledged` for each of its messages."""
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

    def handle(self, event: NodeEvent) -> list[Effect | Transmit]:
        if isinstance(event, Arrived):
            return self._arrived(event)
        if isinstance(event, Dropped):
            return self._dropped(event)
        if isinstance(event, TransferOver):
            return self._transfer_over(event)
        if isinstance(event, TimerFired) and event.key == RESEND:
            return self._resend(event.at)
        if isinstance(event, Restored):
            self.state.incarnation = event.incarnation  # its numbers are not those that peers have seen
        resent: list[Transmit] = []
        if self._sessions:
            if isinstance(event, PeerJoined):
                self.state.present.add(event.peer)
                resent = self._transmit_all(event.peer)
            elif isinstance(event, PeerLost):
                self.state.present.discard(event.peer)
            elif isinstance(event, Returned):
                self.state.present.clear()
        return [*resent, *self._wrap(self.node.handle(event), event.at)]

    def unacknowledged(self) -> list[Transmit]:
        """Return every packet that may not have been sent before a crash. With sessions there are none: a crash ends
        all sessions, and packets are sent when a session is established again."""
        return [] if self._sessions else self._transmit_all()

    def send_again(self) -> list[Transmit]:
        """Return every unacknowledged packet after an outage, which has ended all transfers."""
        if self._watched:
            for packet in self.state.unacknowledged.values():
                packet.resend_at = _NEVER
        return self.unacknowledged()

    def _transmit_all(self, peer: Address | None = None) -> list[Transmit]:
        """Return every unacknowledged packet to this peer, or to all peers."""
        found = []
        for (to, number), packet in self.state.unacknowledged.items():
            if peer is None or to == peer:
                if self._sessions:
                    packet.resend_at = _NEVER
                found.append(self._transmit(number, packet))
        return found

    def _arrived(self, event: Arrived) -> list[Effect | Transmit]:
        state, content = self.state, event.content
        if content.run != state.run:
            return []  # from a node of another run
        if isinstance(content, Receipt):
            if content.incarnation != state.incarnation:
                return []
            packet = state.unacknowledged.pop((event.sender, content.number), None)
            if packet is None or not self._confirms:
                return []
            acknowledged = Acknowledged(event.at, event.sender, packet.message)
            return self._wrap(self.node.handle(acknowledged), event.at)
        receipt = Transmit(event.sender, Receipt(content.run, content.incarnation, content.number))
        seen = self._seen(event.sender, content.incarnation)
        if len(seen.firsts) > MOST_GAPS and content.number > seen.lasts[-1] + 1:
            return []
        if not seen.add(content.number):
            return [receipt]
        received = Received(event.at, event.sender, content.message, event.transfer_s)
        return [receipt, *self._wrap(self.node.handle(received), event.at)]

    def _seen(self, peer: Address, incarnation: int) -> NumberSet:
        """Return the numbers seen from an incarnation. Of too many incarnations, the one seen first is forgotten."""
        seen = self.state.seen
        found = seen.get((peer, incarnation))
        if found is None:
            known = [key for key in seen if key[0] == peer]
            if len(known) >= MOST_INCARNATIONS:
                del seen[known[0]]
            found = seen[peer, incarnation] = NumberSet()
        return found

    def _dropped(self, event: Dropped) -> list[Effect | Transmit]:
        """Acknowledge a packet that the node never receives, so that it is not sent again."""
        self._seen(event.sender, event.incarnation).add(event.number)
        receipt = Transmit(event.sender, Receipt(event.run, event.incarnation, event.number))
        return [receipt, Write(LifecycleRecord(event.at, "refused", str(event.sender), event.why))]

    def _wrap(self, effects: Sequence[Effect], at: float) -> list[Effect | Transmit]:
        state = self.state
        wrapped: list[Effect | Transmit] = []
        for effect in effects:
            if not isinstance(effect, Send):
                wrapped.append(effect)
                continue
            packet = UnacknowledgedPacket(
                effect.to, effect.message, 1, _NEVER if self._watched else at + RESEND_FIRST_S
            )
            number = state.sent.get(effect.to, 0) + 1
            state.sent[effect.to] = number
            state.unacknowledged[effect.to, number] = packet
            if self._sessions and effect.to not in state.present:
                packet.resend_at = _NEVER
                continue
            wrapped.append(Transmit(effect.to, Packet(state.run, state.incarnation, number, effect.message)))
            if packet.resend_at < state.resend_at:
                state.resend_at = packet.resend_at
                wrapped.append(SetTimer(RESEND, packet.resend_at))
        return wrapped

    def _resend(self, at: float) -> list[Effect | Transmit]:
        state = self.state
        effects: list[Effect | Transmit] = []
        for (_, number), packet in state.unacknowledged.items():
            if packet.resend_at <= at and self._sessions and packet.to not in state.present:
                packet.resend_at = _NEVER
            elif packet.resend_at <= at:
                effects.append(self._transmit(number, packet))
                packet.attempts += 1
                packet.resend_at = _NEVER if self._watched else at + _patience(packet)
        state.resend_at = min((p.resend_at for p in state.unacknowledged.values()), default=_NEVER)
        if state.resend_at < _NEVER:
            effects.append(SetTimer(RESEND, state.resend_at))
        return effects

    def _transfer_over(self, event: TransferOver) -> list[Effect | Transmit]:
        packet = self.state.unacknowledged.get((event.to, event.number))
        if packet is None or (self._sessions and event.to not in self.state.present):
            return []
        packet.resend_at = event.at + _patience(packet)
        if packet.resend_at >= self.state.resend_at:
            return []
        self.state.resend_at = packet.resend_at
        return [SetTimer(RESEND, packet.resend_at)]

    def _transmit(self, number: int, packet: UnacknowledgedPacket) -> Transmit:
        return Transmit(packet.to, Packet(self.state.run, self.state.incarnation, number, packet.message))


def _patience(packet: UnacknowledgedPacket) -> float:
    # Ten doublings exceed the limit. After a thousand, for a peer that is gone for months, the power would overflow.
    return min(RESEND_FIRST_S * 2.0 ** min(packet.attempts - 1, 10), RESEND_MOST_S)
