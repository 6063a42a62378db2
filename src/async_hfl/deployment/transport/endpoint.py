"""The state that all sessions of a node share: limits, encoding, inbox, spool, validation, byte counts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from async_hfl.core.identifiers import Address
from async_hfl.deployment.transport.conduct import Conduct
from async_hfl.deployment.transport.limits import USUAL, Limits
from async_hfl.deployment.transport.transfers.spool import Spool, SpooledPacket
from async_hfl.encoding.packet_codec import Content

_DECODED_AT_ONCE = 2
"""Large packets decoded at the same time: decoding a packet may take as much memory again as it has bytes."""


class Inbox(Protocol):
    """The receiver of packets and of changes of sessions. Called on the loop's thread; must not block."""

    def arrived(
        self, sender: Address, content: Content, transfer_s: float, spooled: SpooledPacket | None = None
    ) -> None:
        """`spooled`: the file of a large packet, which the inbox must move or delete."""
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
class TransferProgress:
    peer: Address
    number: int
    """Number of the packet."""
    outgoing: bool
    bytes: int
    """Bytes that have arrived at the receiver."""
    progress_at: float
    """The event loop's time of the last progress."""


@dataclass(slots=True)
class Endpoint:
    inbox: Inbox
    spool: Spool
    limits: Limits = USUAL
    validate: Callable[[Address, Content], None] = lambda sender, content: None
    """Raises PeerError for content that this sender must not send."""
    is_known: Callable[[Address, int, int, int], bool] = lambda sender, run, incarnation, number: False
    """Returns True if this packet was handled before. It then sends the receipt again; the body is not needed."""
    digests: Callable[[Address, bytes], None] = lambda sender, digest: None
    """Receives telemetry."""
    crowded: Callable[[], bool] = lambda: False
    """Returns True while the inbox is so full that nothing more should be read."""
    waiting: Callable[[Address], int] = lambda sender: 0
    """Returns the number of a peer's packets that wait in the inbox."""
    most_bytes: Callable[[Address], int] | None = None
    """Returns the size of the largest packet that is accepted from a peer; None: that of `limits`."""
    conduct: Conduct = field(default_factory=lambda: Conduct(asyncio.get_running_loop().time))
    decoding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_DECODED_AT_ONCE))
    bytes: defaultdict[Address, ByteCount] = field(default_factory=lambda: defaultdict(ByteCount))
    """Byte counts by peer."""

    def largest_packet(self, peer: Address) -> int:
        most = self.limits.packet_bytes
        return most if self.most_bytes is None else min(self.most_bytes(peer), most)
