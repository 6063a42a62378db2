"""The state that all sessions of a node share: limits, encoding, inbox, spool, validation, byte counts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from async_hfl.core.identifiers import Address
from async_hfl.deployment.transport.limits import USUAL, Limits
from async_hfl.deployment.transport.transfers.spool import Spool, SpooledPacket
from async_hfl.encoding.packet_codec import Content
from async_hfl.encoding.rounding import AS_IT_IS, Encoding

_DECODED_AT_ONCE = 2
"""Large packets decoded at a time: decoding may take as much memory again as a packet has bytes."""


class Inbox(Protocol):
    """The receiver of everything that arrives. Called on the loop's thread; must not block."""

    def arrived(
        self, sender: Address, content: Content, transfer_s: float, spooled: SpooledPacket | None = None
    ) -> None:
        """`spooled`: the file that a large packet arrived in; the inbox must move or delete it."""
        ...

    def transfer_over(self, to: Address, number: int) -> None: ...

    def peer_joined(self, peer: Address) -> None: ...

    def peer_lost(self, peer: Address, why: str) -> None: ...


@dataclass(slots=True)
class ByteCount:
    """Payload bytes exchanged with one peer since the process started."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of one large transfer. Times are those of the event loop."""

    peer: Address
    number: int
    outgoing: bool
    bytes: int
    """Bytes that have arrived."""
    length: int
    started_at: float
    progress_at: float


def _accept_all(sender: Address, content: Content) -> None:
    return


def _know_nothing(sender: Address, run: int, incarnation: int, number: int) -> bool:
    return False


def _ignore(sender: Address, digest: bytes) -> None:
    return


@dataclass(slots=True)
class Endpoint:
    inbox: Inbox
    spool: Spool
    limits: Limits = USUAL
    encoding: Encoding = AS_IT_IS
    validate: Callable[[Address, Content], None] = _accept_all
    """Raises PeerError for content that this sender must not send."""
    is_known: Callable[[Address, int, int, int], bool] = _know_nothing
    """True if this packet was handled before; its receipt is sent again, so its body need not travel."""
    digests: Callable[[Address, bytes], None] = _ignore
    """Receives telemetry."""
    crowded: Callable[[], bool] = lambda: False
    """True while so much waits in the inbox that nothing more should be read."""
    decoding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_DECODED_AT_ONCE))
    bytes: defaultdict[Address, ByteCount] = field(default_factory=lambda: defaultdict(ByteCount))
    """Byte counts by peer."""
