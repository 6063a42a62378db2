"""Sessions and transfers between the nodes of a fault simulation, as a deployment has them.

Two nodes have a session while both are up and the link between them is. Either end notices a break by itself, some time
later (PeerLost); when the link is back both are told (PeerJoined), and now and then twice, as when a new session takes
the place of one that nobody missed. What is sent without a session is gone. A transfer may break off; what was carried
stays with the receiver as long as its disk does, and the same packet sent again is carried on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.events import PeerJoined, PeerLost
from async_hfl.core.protocol.messages import Answer, GlobalModel, Train, Update, Upload, WarmUp
from async_hfl.core.serialization import to_plain
from async_hfl.faults.fault_profile import FaultProfile
from async_hfl.nodes.reliability.delivery import Arrived, Packet, Receipt, TransferOver, Transmit

_LARGE = (Answer, GlobalModel, Train, Update, Upload, WarmUp)
Pair = tuple[int, int]
"""Indices of hosts, the lower first."""


@dataclass(frozen=True, slots=True)
class LinkTurn:
    pair: Pair
    up: bool


@dataclass(frozen=True, slots=True)
class Connect:
    pair: Pair
    session: int
    """It comes to nothing if the session has changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One end notices that a session is over."""

    pair: Pair
    session: int
    whose: int


@dataclass(frozen=True, slots=True)
class TransferEnds:
    pair: Pair
    session: int
    sender: int
    key: tuple[int, int, int, int]
    content: Packet | Receipt
    began: float
    at: float
    left: float
    """Of the whole, when it began."""
    carried: float
    """Of the whole, when it ends: 1, or it broke off."""


Happening = LinkTurn | Connect | Notice | TransferEnds


class Hosts(Protocol):
    """What sessions need of the simulator."""

    @property
    def at(self) -> float: ...

    def is_up(self, index: int) -> bool: ...

    def address(self, index: int) -> Address: ...

    def deliver(self, index: int, event: Any) -> None: ...

    def push(self, at: float, what: Happening) -> None: ...


@dataclass(slots=True)
class _Line:
    up: bool = True
    session: int = 0
    """Grows with every change; odd while there is a session."""


class Sessions:
    def __init__(
        self,
        hosts: Hosts,
        pairs: Iterable[Pair],
        fault_profile: FaultProfile,
        rng: np.random.Generator,
        stormy: Callable[[], bool],
    ) -> None:
        self.hosts, self.fault_profile, self.rng, self.stormy = hosts, fault_profile, rng, stormy
        self._lines = {pair: _Line() for pair in pairs}
        self._under_way: dict[Pair, list[TransferEnds]] = {pair: [] for pair in self._lines}
        self._held: dict[tuple[int, int, int, int], tuple[float, Packet]] = {}
        """By sender, receiver, incarnation and number: how much of it the receiver has, and of what."""
        self._knows: set[tuple[int, Pair]] = set()
        """(host, pair): that host was told of a session and not yet of its end."""
        self.resumed = self.broken = self.outages = 0

    def begin(self) -> None:
        fault_profile = self.fault_profile
        for pair in self._lines:
            self._connect_soon(pair)
            at = float(self.rng.exponential(fault_profile.outage_every_s))
            while at < fault_profile.calm_after:
                outage = float(self.rng.exponential(fault_profile.mean_outage_s))
                self.hosts.push(at, LinkTurn(pair, False))
                self.hosts.push(at + outage, LinkTurn(pair, True))
                at += outage + float(self.rng.exponential(fault_profile.outage_every_s))

    def of(self, index: int) -> list[Pair]:
        return [pair for pair in self._lines if index in pair]

    # What happens to sessions -------------------------------------------------------------------------------------

    def went_down(self, index: int, *, disk_lost: bool) -> None:
        for pair in self.of(index):
            self._knows.discard((index, pair))
            self._break(pair)
        if disk_lost:
            self._held = {key: held for key, held in self._held.items() if key[1] != index}

    def came_back(self, index: int) -> None:
        for pair in self.of(index):
            self._connect_soon(pair)

    def happen(self, what: Happening) -> None:
        line = self._lines[what.pair]
        if isinstance(what, LinkTurn):
            line.up = what.up
            if what.up:
                self._connect_soon(what.pair)
            else:
                self.outages += 1
                self._break(what.pair)
        elif isinstance(what, TransferEnds):
            if what.session == line.session:
                self._transfer_ends(what)
        elif what.session != line.session:
            return
        elif isinstance(what, Connect):
            self._connect(what.pair, line)
        else:
            self._notice(what)

    def _connect_soon(self, pair: Pair) -> None:
        line = self._lines[pair]
        self.hosts.push(self.hosts.at + float(self.rng.exponential(2.0)), Connect(pair, line.session))

    def _connect(self, pair: Pair, line: _Line) -> None:
        if not line.up or not all(map(self.hosts.is_up, pair)):
            return
        if line.session % 2:
            self._break_transfers(pair)  # a new session in place of one that seemed fine
            line.session += 2
        else:
            line.session += 1
        session = line.session
        if self.stormy() and self.rng.random() < 0.1:
            self.hosts.push(self.hosts.at + float(self.rng.exponential(60.0)), Connect(pair, session))
        for index in self.rng.permutation(pair):
            # The first to hear of it may crash over what it does then.
            if line.session == session and self.hosts.is_up(int(index)):
                self._knows.add((int(index), pair))
                self.hosts.deliver(int(index), PeerJoined(self.hosts.at, self._peer(int(index), pair)))

    def _break(self, pair: Pair) -> None:
        line = self._lines[pair]
        if line.session % 2 == 0:
            return
        self._break_transfers(pair)
        line.session += 1
        for index in pair:
            if (index, pair) in self._knows:
                wait = float(self.rng.exponential(self.fault_profile.detection_s / 10))
                self.hosts.push(self.hosts.at + wait, Notice(pair, line.session, index))

    def _notice(self, notice: Notice) -> None:
        if self.hosts.is_up(notice.whose) and (notice.whose, notice.pair) in self._knows:
            self._knows.discard((notice.whose, notice.pair))
            self.hosts.deliver(notice.whose, PeerLost(self.hosts.at, self._peer(notice.whose, notice.pair)))

    def _peer(self, index: int, pair: Pair) -> Address:
        return self.hosts.address(pair[1] if index == pair[0] else pair[0])

    # Transfers ---------------------------------------------------------------------------------------------------

    def transmit(self, index: int, to: int, transmit: Transmit) -> None:
        pair = (min(index, to), max(index, to))
        line = self._lines[pair]
        if line.session % 2 == 0:
            return
        content = transmit.content
        large = isinstance(content, Packet) and isinstance(content.message, _LARGE)
        delay = float(self.rng.exponential(self.fault_profile.mean_delay_s * (1.0 if large else 0.1)))
        key, left, until = (index, to, content.incarnation, content.number), 1.0, 1.0
        if isinstance(content, Packet):
            left -= self._resume(key, content)
            if large and self.stormy() and self.rng.random() < self.fault_profile.loss:
                until -= left * float(self.rng.random())
        at = self.hosts.at + delay * (until - 1.0 + left)
        ends = TransferEnds(pair, line.session, index, key, content, self.hosts.at, at, left, until)
        self._under_way[pair].append(ends)
        self.hosts.push(at, ends)
        if self.stormy() and self.rng.random() < self.fault_profile.duplication:
            self.hosts.push(at + delay, ends)

    def _resume(self, key: tuple[int, int, int, int], content: Packet) -> float:
        held = self._held.get(key)
        if held is None:
            return 0.0
        if not _same(to_plain(held[1]), to_plain(content)):
            raise InvariantViolation(f"packet {key} has another content than when its transfer broke off")
        self.resumed += 1
        return held[0]

    def _transfer_ends(self, ends: TransferEnds) -> None:
        if ends in self._under_way[ends.pair]:
            self._under_way[ends.pair].remove(ends)
        sender, receiver = ends.key[0], ends.key[1]
        if ends.carried < 1.0:
            self._keep(ends, ends.carried)
        else:
            took = self.hosts.at - ends.began
            self.hosts.deliver(receiver, Arrived(self.hosts.at, self.hosts.address(sender), ends.content, took))
        # The receiver may have crashed over it.
        if isinstance(ends.content, Packet) and self._lines[ends.pair].session == ends.session:
            over = TransferOver(self.hosts.at, self.hosts.address(receiver), ends.content.number)
            self.hosts.deliver(sender, over)

    def _break_transfers(self, pair: Pair) -> None:
        for ends in self._under_way[pair]:
            if isinstance(ends.content, Packet):
                share = (self.hosts.at - ends.began) / max(ends.at - ends.began, 1e-9)
                self._keep(ends, (1.0 - ends.left) + share * (ends.carried - 1.0 + ends.left))
        self._under_way[pair] = []

    def _keep(self, ends: TransferEnds, carried: float) -> None:
        assert isinstance(ends.content, Packet)
        self.broken += 1
        before = self._held.get(ends.key, (0.0, ends.content))
        self._held[ends.key] = (max(before[0], min(carried, 1.0)), before[1])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other or (one != one and other != other))
