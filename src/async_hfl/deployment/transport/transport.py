"""A node's post office: finds the session for an address, counts bytes, keeps what all sessions share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from async_hfl.core.identifiers import Address
from async_hfl.deployment.transport.limits import USUAL, Limits
from async_hfl.deployment.transport.session import Session
from async_hfl.deployment.transport.spool import Spool
from async_hfl.encoding.packet_codec import Content
from async_hfl.encoding.rounding import AS_IT_IS, Encoding

log = logging.getLogger("async_hfl.transport")
_DECODED_AT_ONCE = 2
"""Large parcels: unpacking takes up to their own size in memory once more."""


class Inbox(Protocol):
    """Where everything that comes in goes. Called on the loop's thread; must not block."""

    def arrived(self, sender: Address, content: Content, transfer_s: float) -> None: ...

    def transfer_over(self, to: Address, number: int) -> None: ...

    def peer_joined(self, peer: Address) -> None: ...

    def peer_lost(self, peer: Address, why: str) -> None: ...


@dataclass(slots=True)
class Counted:
    """Payload bytes with one peer since the process began."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """One large transfer that is open now: what has arrived of it. Times are the loop's."""

    peer: Address
    number: int
    outgoing: bool
    bytes: int
    length: int
    started_at: float
    progress_at: float


def _accept_all(sender: Address, content: Content) -> None:
    return


def _know_nothing(sender: Address, run: int, incarnation: int, number: int) -> bool:
    return False


def _ignore(sender: Address, digest: bytes) -> None:
    return


class Transport:
    def __init__(
        self,
        inbox: Inbox,
        spool: Path,
        *,
        limits: Limits = USUAL,
        encoding: Encoding = AS_IT_IS,
        vet: Callable[[Address, Content], None] = _accept_all,
        is_known: Callable[[Address, int, int, int], bool] = _know_nothing,
        digests: Callable[[Address, bytes], None] = _ignore,
        crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        """`vet` raises PeerError for content that this sender has no business to send. `is_known`: this packet is
        here for good and its receipt was sent again, so its body need not travel. `digests`: takes telemetry.
        `crowded`: too much waits in the inbox, so nothing more is to be read meanwhile."""
        self.inbox = inbox
        self.limits = limits
        self.encoding = encoding
        self.vet = vet
        self.is_known = is_known
        self.digests = digests
        self.crowded = crowded
        self.decoding = asyncio.Semaphore(_DECODED_AT_ONCE)
        self.spool = Spool(spool, limits.spool_bytes, limits.spool_s)
        self._sessions: dict[Address, Session] = {}
        self._counted: dict[Address, Counted] = {}

    def send(self, to: Address, content: Content) -> None:
        """Never blocks, never raises for a peer that is away: what is sent to nobody is sent again when it joins."""
        session = self._sessions.get(to)
        if session is not None and not session.ended:
            session.sending.send(content)

    def send_digest(self, to: Address, digest: bytes) -> None:
        session = self._sessions.get(to)
        if session is not None and not session.ended:
            session.send_digest(digest)

    def counted(self, peer: Address) -> Counted:
        return self._counted.setdefault(peer, Counted())

    def traffic(self) -> dict[Address, Counted]:
        return dict(self._counted)

    def round_trip_s(self, peer: Address) -> float:
        """0: not known."""
        session = self._sessions.get(peer)
        return 0.0 if session is None else session.round_trip_s

    def transfers(self) -> list[Progress]:
        found = []
        for peer, session in self._sessions.items():
            for out in session.sending.open.values():
                place = (out.arrived, out.length, out.started_at, out.progress_at)
                found.append(Progress(peer, out.number, True, *place))
            for into in session.receiving.open.values():
                place = (into.arrived, into.part.length, into.started_at, into.progress_at)
                found.append(Progress(peer, into.number, False, *place))
        return found

    # For servers and links -------------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        """A newer session of the same peer takes the place of the older one; that peer was never lost."""
        old = self._sessions.get(session.peer)
        self._sessions[session.peer] = session
        if old is not None:
            if not old.ended:
                log.warning(
                    "%s has come a second time: the newer session counts. If this repeats, two processes use one name, "
                    "or one process dials us by two addresses",
                    session.peer,
                )
            old.sending.replaced = True
            old.end("a newer session took its place")
        self.inbox.peer_joined(session.peer)

    def closed(self, session: Session, why: str) -> None:
        if self._sessions.get(session.peer) is session:
            del self._sessions[session.peer]
            self.inbox.peer_lost(session.peer, why)
