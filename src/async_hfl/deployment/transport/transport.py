"""The transport of a node: its current session with each peer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from async_hfl.core.identifiers import Address
from async_hfl.deployment.transport.endpoint import ByteCount, Endpoint, Inbox, TransferProgress
from async_hfl.deployment.transport.limits import USUAL, Limits
from async_hfl.deployment.transport.session import Session
from async_hfl.deployment.transport.transfers.spool import Spool
from async_hfl.encoding.packet_codec import Content

log = logging.getLogger("async_hfl.transport")


class Transport:
    def __init__(
        self,
        inbox: Inbox,
        spool: Path,
        *,
        limits: Limits = USUAL,
        **checks: Callable[..., object],
    ) -> None:
        """`checks`: the callbacks of Endpoint (validate, is_known, digests, crowded, most_bytes)."""
        spooled = Spool(spool, limits.spool_bytes, limits.spool_s)
        self.endpoint = Endpoint(inbox, spooled, limits, **checks)  # type: ignore[arg-type]
        self._sessions: dict[Address, Session] = {}

    @property
    def limits(self) -> Limits:
        return self.endpoint.limits

    def send(self, to: Address, content: Content) -> None:
        """Send without blocking; do nothing if the peer has no session, since the node sends again when it joins."""
        session = self._sessions.get(to)
        if session is not None and not session.ended:
            session.sending.send(content)

    def send_digest(self, to: Address, digest: bytes) -> None:
        session = self._sessions.get(to)
        if session is not None and not session.ended:
            session.send_digest(digest)

    def traffic(self) -> dict[Address, ByteCount]:
        return dict(self.endpoint.bytes)

    def transfers(self) -> list[TransferProgress]:
        found = []
        for peer, session in self._sessions.items():
            found += [
                TransferProgress(peer, out.number, True, out.arrived, out.progress_at)
                for out in session.sending.open.values()
            ]
            found += [
                TransferProgress(peer, into.number, False, into.part.arrived, into.progress_at)
                for into in session.receiving.open.values()
            ]
        return found

    # For servers and links -------------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        """Register a session. It replaces an older session of the same peer, which is not reported as lost."""
        old = self._sessions.get(session.peer)
        self._sessions[session.peer] = session
        if old is not None:
            if not old.ended:
                log.warning(
                    "%s joined a second time: the newer session replaces the older one. If this repeats, two processes "
                    "have the same name, or one process dials this node at two addresses",
                    session.peer,
                )
            old.sending.replaced = True
            old.end("a newer session replaced it")
        self.endpoint.inbox.peer_joined(session.peer)

    def closed(self, session: Session, why: str) -> None:
        if self._sessions.get(session.peer) is session:
            del self._sessions[session.peer]
            self.endpoint.inbox.peer_lost(session.peer, why)
