"""Packets on their way to a peer: small ones inline, large ones offered and moved when the peer has answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from async_hfl.core.errors import AsyncHflError
from async_hfl.core.identifiers import Address
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.pacing import Bucket
from async_hfl.deployment.transport.parts import Outgoing, digest_of
from async_hfl.deployment.transport.window import FIRST
from async_hfl.encoding import packet_codec
from async_hfl.encoding.packet_codec import Content
from async_hfl.encoding.rounding import AS_IT_IS
from async_hfl.nodes.reliability.delivery import Packet

if TYPE_CHECKING:
    from async_hfl.deployment.transport.transport import Transport

log = logging.getLogger("async_hfl.transport")
Say = Callable[[Any, int, int | None], None]
"""Put a frame on the session's stream: the frame, its payload bytes, and the packet that is over when it is written."""


def readable(text: str) -> str:
    """What a peer wrote, fit for a log: one line, nothing that moves a cursor, not long."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])


class Sending:
    def __init__(
        self, peer: Address, transport: Transport, bucket: Bucket, say: Say, spawn: Callable[[Any], None]
    ) -> None:
        self.open: dict[int, Outgoing] = {}
        """On offer or moving, by transfer number."""
        self.push: Callable[[Outgoing, int], Awaitable[None]] | None = None
        """Set on the dialling side, which moves what is answered; the other side waits to be asked for it."""
        self.replaced = False
        """A newer session of the same peer took over."""
        self.window = FIRST
        """Bytes under way at once: the next transfer begins with what the last one learnt of the link."""
        self._peer = peer
        self._transport = transport
        self._bucket = bucket
        self._say = say
        self._spawn = spawn
        self._transfers = 0
        self._moving: set[int] = set()
        """Numbers of the packets on offer."""
        self._loop = asyncio.get_running_loop()

    def send(self, content: Content) -> None:
        if isinstance(content, Packet) and content.number in self._moving:
            return  # it is on its way already
        pieces = packet_codec.encode(content)  # large arrays are not copied, so this is quick
        length = sum(map(len, pieces))
        if length <= self._transport.limits.inline_bytes:
            self._inline(content, b"".join(packet_codec.encode(content, self._transport.encoding)))
        else:
            assert isinstance(content, Packet)  # a receipt is small
            self._moving.add(content.number)
            self._spawn(self._offer(content, pieces, length))

    def _inline(self, content: Content, parcel: bytes) -> None:
        if self.push is None:
            self._bucket.debit(len(parcel))
        self._say(wire.Frame(parcel=parcel), len(parcel), content.number if isinstance(content, Packet) else None)

    async def _offer(self, content: Packet, pieces: list[packet_codec.Buffer], length: int) -> None:
        encoding = self._transport.encoding
        if encoding != AS_IT_IS:
            pieces = await asyncio.to_thread(packet_codec.encode, content, encoding)
            length = sum(map(len, pieces))
        digest = await digest_of(pieces, length)
        self._transfers += 1
        now = self._loop.time()
        self.open[self._transfers] = Outgoing(content.number, pieces, length, digest, now, now)
        offer = wire.Offer(
            transfer=self._transfers,
            length=length,
            sha256=digest,
            run=content.run,
            incarnation=content.incarnation,
            number=content.number,
        )
        self._say(wire.Frame(offer=offer), 0, None)

    def held(self, held: Any) -> None:
        """What the peer says of a transfer: how much of it is there, that it is whole, that it is not wanted."""
        out = self.open.get(held.transfer)
        if out is None:
            return
        if held.whole or held.refused:
            self.finish(held.transfer, f"refused there: {readable(held.refused)}" if held.refused else "")
        elif out.window is not None:
            out.acknowledged(held.bytes, self._loop.time())
        elif self.push is not None:
            out.begin(min(held.bytes, out.length), self.window)
            self._spawn(self._push(self.push, out, held.transfer))

    async def _push(self, push: Callable[[Outgoing, int], Awaitable[None]], out: Outgoing, transfer: int) -> None:
        try:
            await push(out, transfer)
        except AsyncHflError as error:
            self.finish(transfer, str(error))

    def sent(self, out: Outgoing, count: int) -> None:
        """That many more bytes are on the wire."""
        out.sent += count
        if out.window is not None:
            out.window.sent(out.sent, self._loop.time())
        self._transport.counted(self._peer).sent += count

    def finish(self, transfer: int, why: str = "") -> None:
        """It is whole at the peer, or (with a reason) broken off."""
        out = self.open.pop(transfer, None)
        if out is None:
            return
        self._moving.discard(out.number)
        if out.window is not None:
            self.window = out.window.size
        if self.replaced:
            return  # the newer session has sent it again already
        if why:
            place = (out.number, self._peer, out.arrived, out.length)
            log.warning("packet %d to %s broken off after %d of %d bytes: %s", *place, why)
        self._transport.inbox.transfer_over(self._peer, out.number)

    def end(self) -> None:
        for transfer in list(self.open):
            self.finish(transfer, "the session ended")
