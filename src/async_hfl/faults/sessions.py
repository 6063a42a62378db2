"""Sessions and transfers between the nodes of a fault simulation, as a deployment has them.

Two nodes have a session while both are up and the link between them works. Each end notices some time later that a
session has broken (PeerLost). When the link works again, both are told (PeerJoined), and now and then twice, as if a
new session had replaced one that still worked. A message sent without a session is lost. A transfer may break off; the
receiver keeps the part that has arrived for as long as it has its disk, and the transfer of a packet that is sent again
is resumed from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.events import PeerJoined, PeerLost
from async_hfl.core.protocol.messages import Answer, GlobalModel, Train, Update, Upload, WarmUp
from async_hfl.core.serialization import to_plain
from async_hfl.faults.profile import FaultProfile
from async_hfl.nodes.reliability.delivery import Arrived, Packet, Receipt, TransferOver, Transmit

_LARGE = (Answer, GlobalModel, Train, Update, Upload, WarmUp)
Pair = tuple[int, int]
"""Indices of two hosts, the lower first."""
TransferKey = tuple[int, int, int, int]
"""Sender, receiver, incarnation and number of a packet."""


@dataclass(frozen=True, slots=True)
class LinkChange:
    pair: Pair
    up: bool


@dataclass(frozen=True, slots=True)
class Connect:
    pair: Pair
    session: int
    """Void if the session has changed since."""


@dataclass(frozen=True, slots=True)
class BreakNoticed:
    """One end notices that a session has broken."""

    pair: Pair
    session: int
    host: int


@dataclass(frozen=True, slots=True)
class TransferEnd:
    pair: Pair
    session: int
    key: TransferKey
    content: Packet | Receipt
    began_at: float
    at: float
    missing: float
    """Share of the packet that the receiver did not have at the beginning."""
    arrived: float
    """Share that it has at the end; less than 1 if the transfer breaks off."""


SessionEvent = LinkChange | Connect | BreakNoticed | TransferEnd


class Hosts(Protocol):
    """The part of the simulator that sessions need."""

    @property
    def at(self) -> float: ...

    @property
    def faulty(self) -> bool: ...

    def is_up(self, index: int) -> bool: ...

    def address(self, index: int) -> Address: ...

    def deliver(self, index: int, event: Any) -> None: ...

    def push(self, at: float, event: SessionEvent) -> None: ...


@dataclass(slots=True)
class _Link:
    up: bool = True
    session: int = 0
    """Grows with every change; odd while there is a session."""
    transfers: list[TransferEnd] = field(default_factory=list)
    """Transfers in progress."""


class Sessions:
    def __init__(self, hosts: Hosts, pairs: Iterable[Pair], profile: FaultProfile, rng: np.random.Generator) -> None:
        self.hosts, self.profile, self.rng = hosts, profile, rng
        self._links = {pair: _Link() for pair in pairs}
        self._partial: dict[TransferKey, tuple[float, Packet]] = {}
        """Packets that have partly arrived: the share, and the packet."""
        self._told: set[tuple[int, Pair]] = set()
        """(host, pair): the host was told of a session and not yet of its end."""
        self.resumed = self.broken = self.outages = 0

    def begin(self) -> None:
        profile = self.profile
        for pair in self._links:
            self._connect_soon(pair)
            at = float(self.rng.exponential(profile.outage_every_s))
            while at < profile.faults_end_at:
                outage = float(self.rng.exponential(profile.mean_outage_s))
                self.hosts.push(at, LinkChange(pair, False))
                self.hosts.push(at + outage, LinkChange(pair, True))
                at += outage + float(self.rng.exponential(profile.outage_every_s))

    def host_down(self, index: int, *, disk_lost: bool) -> None:
        for pair in self._pairs_of(index):
            self._told.discard((index, pair))
            self._break(pair)
        if disk_lost:
            self._partial = {key: partial for key, partial in self._partial.items() if key[1] != index}

    def host_up(self, index: int) -> None:
        for pair in self._pairs_of(index):
            self._connect_soon(pair)

    def happen(self, event: SessionEvent) -> None:
        link = self._links[event.pair]
        if isinstance(event, LinkChange):
            link.up = event.up
            if event.up:
                self._connect_soon(event.pair)
            else:
                self.outages += 1
                self._break(event.pair)
        elif event.session != link.session:
            return
        elif isinstance(event, TransferEnd):
            self._end_transfer(event)
        elif isinstance(event, Connect):
            self._connect(event.pair, link)
        else:
            self._notice(event)

    # Sessions ----------------------------------------------------------------------------------------------------

    def _pairs_of(self, index: int) -> list[Pair]:
        return [pair for pair in self._links if index in pair]

    def _connect_soon(self, pair: Pair) -> None:
        link = self._links[pair]
        self.hosts.push(self.hosts.at + float(self.rng.exponential(2.0)), Connect(pair, link.session))

    def _connect(self, pair: Pair, link: _Link) -> None:
        if not link.up or not all(map(self.hosts.is_up, pair)):
            return
        if link.session % 2:
            self._break_transfers(pair)  # the new session replaces one that still worked
            link.session += 2
        else:
            link.session += 1
        session = link.session
        if self.hosts.faulty and self.rng.random() < 0.1:
            self.hosts.push(self.hosts.at + float(self.rng.exponential(60.0)), Connect(pair, session))
        for index in self.rng.permutation(pair):
            # The host that is told first may crash, which ends the session.
            if link.session == session and self.hosts.is_up(int(index)):
                self._told.add((int(index), pair))
                self.hosts.deliver(int(index), PeerJoined(self.hosts.at, self._peer(int(index), pair)))

    def _break(self, pair: Pair) -> None:
        link = self._links[pair]
        if link.session % 2 == 0:
            return
        self._break_transfers(pair)
        link.session += 1
        for index in pair:
            if (index, pair) in self._told:
                wait = float(self.rng.exponential(self.profile.detection_s / 10))
                self.hosts.push(self.hosts.at + wait, BreakNoticed(pair, link.session, index))

    def _notice(self, notice: BreakNoticed) -> None:
        if self.hosts.is_up(notice.host) and (notice.host, notice.pair) in self._told:
            self._told.discard((notice.host, notice.pair))
            self.hosts.deliver(notice.host, PeerLost(self.hosts.at, self._peer(notice.host, notice.pair)))

    def _peer(self, index: int, pair: Pair) -> Address:
        return self.hosts.address(pair[1] if index == pair[0] else pair[0])

    # Transfers ---------------------------------------------------------------------------------------------------

    def transmit(self, index: int, to: int, transmit: Transmit) -> None:
        pair = (min(index, to), max(index, to))
        link = self._links[pair]
        if link.session % 2 == 0:
            return
        content = transmit.content
        large = isinstance(content, Packet) and isinstance(content.message, _LARGE)
        delay = float(self.rng.exponential(self.profile.mean_delay_s * (1.0 if large else 0.1)))
        key, missing, arrived = (index, to, content.incarnation, content.number), 1.0, 1.0
        if isinstance(content, Packet):
            missing -= self._resume(key, content)
            if large and self.hosts.faulty and self.rng.random() < self.profile.loss:
                arrived -= missing * float(self.rng.random())
        at = self.hosts.at + delay * (arrived - 1.0 + missing)
        end = TransferEnd(pair, link.session, key, content, self.hosts.at, at, missing, arrived)
        link.transfers.append(end)
        self.hosts.push(at, end)
        if self.hosts.faulty and self.rng.random() < self.profile.duplication:
            self.hosts.push(at + delay, end)

    def _resume(self, key: TransferKey, content: Packet) -> float:
        """Return the share of this packet that has arrived before."""
        partial = self._partial.get(key)
        if partial is None:
            return 0.0
        if not _same(to_plain(partial[1]), to_plain(content)):
            raise InvariantViolation(f"packet {key} has another content than when its transfer broke off")
        self.resumed += 1
        return partial[0]

    def _end_transfer(self, end: TransferEnd) -> None:
        link, (sender, receiver, *_) = self._links[end.pair], end.key
        if end in link.transfers:
            link.transfers.remove(end)
        if end.arrived < 1.0:
            self._keep(end, end.arrived)
        else:
            took = self.hosts.at - end.began_at
            self.hosts.deliver(receiver, Arrived(self.hosts.at, self.hosts.address(sender), end.content, took))
        # The receiver may have crashed while it handled the message, which ends the session.
        if isinstance(end.content, Packet) and link.session == end.session:
            self.hosts.deliver(sender, TransferOver(self.hosts.at, self.hosts.address(receiver), end.content.number))

    def _break_transfers(self, pair: Pair) -> None:
        link = self._links[pair]
        for end in link.transfers:
            if isinstance(end.content, Packet):
                elapsed = (self.hosts.at - end.began_at) / max(end.at - end.began_at, 1e-9)
                self._keep(end, (1.0 - end.missing) + elapsed * (end.arrived - 1.0 + end.missing))
        link.transfers = []

    def _keep(self, end: TransferEnd, arrived: float) -> None:
        """Keep the part of a packet that has arrived."""
        assert isinstance(end.content, Packet)
        self.broken += 1
        before = self._partial.get(end.key, (0.0, end.content))
        self._partial[end.key] = (max(before[0], min(arrived, 1.0)), before[1])


def _same(one: Any, other: Any) -> bool:
    """True if two plain values are equal, NaN being equal to NaN."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other or (one != one and other != other))
