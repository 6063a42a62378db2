"""The outgoing packets of a session: small ones travel inline, large ones are offered and transferred on request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from async_hfl.core.errors import AsyncHflError
from async_hfl.core.identifiers import Address
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.endpoint import Endpoint
from async_hfl.deployment.transport.transfers.pacing import Bucket
from async_hfl.deployment.transport.transfers.parts import Outgoing, digest_of
from async_hfl.deployment.transport.transfers.window import FIRST
from async_hfl.encoding import packet_codec
from async_hfl.encoding.packet_codec import Content
from async_hfl.nodes.reliability.delivery import Packet

log = logging.getLogger("async_hfl.transport")
Put = Callable[[Any, int, int | None], None]
"""Queues a frame. Arguments: the frame, its payload bytes, and the number of the packet that it delivers, if any."""


def readable(text: str) -> str:
    """Return a peer's text in a form that is safe to log: short, on one line, without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])


class Sending:
    def __init__(
        self, peer: Address, endpoint: Endpoint, bucket: Bucket, put: Put, spawn: Callable[[Any], None]
    ) -> None:
        self.open: dict[int, Outgoing] = {}
        """Transfers offered or started, by transfer number."""
        self.push: Callable[[Outgoing, int], Awaitable[None]] | None = None
        """Set on the dialling side, which pushes what the peer accepts; the listening side waits for a pull."""
        self.replaced = False
        """True if a newer session of the same peer has replaced this one."""
        self.window = FIRST
        """The most bytes in flight: a transfer starts with the window that the last one ended with."""
        self._peer = peer
        self._endpoint = endpoint
        self._bucket = bucket
        self._put = put
        self._spawn = spawn
        self._transfers = 0
        self._moving: set[int] = set()
        """Numbers of the packets on offer."""
        self._loop = asyncio.get_running_loop()

    def send(self, content: Content) -> None:
        if isinstance(content, Packet) and content.number in self._moving:
            return  # in flight already
        pieces = packet_codec.encode(content)  # does not copy large arrays, so this is quick
        length = sum(map(len, pieces))
        if length > self._endpoint.limits.inline_bytes:
            assert isinstance(content, Packet)  # a receipt is small
            self._moving.add(content.number)
            self._spawn(self._offer(content, pieces, length))
            return
        packet = b"".join(pieces)
        if self.push is None:
            self._bucket.debit(len(packet))
        self._put(wire.Frame(packet=packet), len(packet), content.number if isinstance(content, Packet) else None)

    async def _offer(self, content: Packet, pieces: list[packet_codec.Buffer], length: int) -> None:
        digest = await digest_of(pieces, length)
        self._transfers += 1
        self.open[self._transfers] = Outgoing(content.number, pieces, length, self._loop.time())
        offer = wire.Offer(
            transfer=self._transfers,
            length=length,
            sha256=digest,
            run=content.run,
            incarnation=content.incarnation,
            number=content.number,
        )
        self._put(wire.Frame(offer=offer), 0, None)

    def held(self, held: Any) -> None:
        """Handle the peer's report on a transfer: bytes received, complete, or refused."""
        out = self.open.get(held.transfer)
        if out is None:
            return
        if held.whole or held.refused:
            self.finish(held.transfer, f"refused by the peer: {readable(held.refused)}" if held.refused else "")
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
        """Count bytes that are put on the wire."""
        out.sent += count
        if out.window is not None:
            out.window.sent(out.sent, self._loop.time())
        self._endpoint.bytes[self._peer].sent += count

    def finish(self, transfer: int, why: str = "") -> None:
        """End a transfer: complete, or broken off if a reason is given."""
        out = self.open.pop(transfer, None)
        if out is None:
            return
        self._moving.discard(out.number)
        if out.window is not None:
            self.window = out.window.size
        if self.replaced:
            return  # the newer session has sent the packet again
        if why:
            state = (out.number, self._peer, out.arrived, out.length)
            log.warning("transfer of packet %d to %s broke off after %d of %d bytes: %s", *state, why)
        self._endpoint.inbox.transfer_over(self._peer, out.number)

    def end(self) -> None:
        for transfer in list(self.open):
            self.finish(transfer, "the session ended")
