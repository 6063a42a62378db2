"""Packets on their way from a peer: offered, spooled, checked, decoded, passed on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import Address
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.pacing import Bucket
from async_hfl.deployment.transport.parts import Incoming
from async_hfl.deployment.transport.sending import Say
from async_hfl.encoding import packet_codec

if TYPE_CHECKING:
    from async_hfl.deployment.transport.transport import Transport

log = logging.getLogger("async_hfl.transport")
_DIGEST_BYTES = 32
_DECODED_IN_THREAD = 2**20


class Receiving:
    def __init__(
        self, peer: Address, transport: Transport, bucket: Bucket, say: Say, half_trip_s: Callable[[], float]
    ) -> None:
        self.open: dict[int, Incoming] = {}
        """Accepted and not whole, by the peer's transfer number."""
        self.pull: Callable[[Incoming], Awaitable[None]] | None = None
        """Set on the dialling side, which fetches what it is offered; the other side waits for it."""
        self._peer = peer
        self._transport = transport
        self._bucket = bucket
        self._say = say
        self._half_trip_s = half_trip_s
        self._loop = asyncio.get_running_loop()

    def inline(self, data: bytes) -> None:
        transport = self._transport
        if self.pull is None:
            self._bucket.debit(len(data))
        transport.counted(self._peer).received += len(data)
        try:
            content = packet_codec.decode(data, transport.limits.parcel_bytes)
            transport.vet(self._peer, content)
        except PeerError as error:
            log.warning("a parcel of %s refused: %s", self._peer, error)
            return
        transport.inbox.arrived(self._peer, content, self._half_trip_s())

    async def offered(self, offer: Any) -> None:
        self._say(wire.Frame(held=await self._answer(offer)), 0, None)

    async def _answer(self, offer: Any) -> Any:
        """How much of it is here; on the dialling side, after fetching it, that it is whole."""
        try:
            self._check(offer)
            if self._transport.is_known(self._peer, offer.run, offer.incarnation, offer.number):
                return wire.Held(transfer=offer.transfer, bytes=offer.length, whole=True)
            part = self._transport.spool.open(self._peer, offer.length, offer.sha256)
        except (PeerError, OSError) as error:
            log.warning("offer of packet %d by %s refused: %s", offer.number, self._peer, error)
            return wire.Held(transfer=offer.transfer, refused=str(error))
        now = self._loop.time()
        into = Incoming(offer.transfer, offer.number, part, now, now, now)
        self.open[offer.transfer] = into
        if part.has_leftovers:
            await asyncio.to_thread(part.rehash)
        if part.whole:
            return await self.finish(into)
        if self.pull is None:
            return wire.Held(transfer=offer.transfer, bytes=part.held)
        try:
            await self.pull(into)
        except PeerError as error:
            self.drop(into)
            return wire.Held(transfer=offer.transfer, bytes=part.held, refused=str(error))
        return await self.finish(into)

    def _check(self, offer: Any) -> None:
        limits = self._transport.limits
        if len(offer.sha256) != _DIGEST_BYTES or offer.transfer in self.open:
            raise PeerError("an offer without a proper digest, or numbered as an open one")
        if offer.length > limits.parcel_bytes:
            raise PeerError(f"{offer.length} bytes; at most {limits.parcel_bytes} are taken here")
        promised = sum(into.part.length for into in self.open.values())
        if promised + offer.length > limits.parcel_bytes:
            raise PeerError(f"{promised} bytes of this peer are under way; at most {limits.parcel_bytes} at once")
        if len(self.open) >= limits.offers:
            raise PeerError(f"{len(self.open)} transfers of this peer are open already")

    def received(self, into: Incoming, count: int) -> None:
        """That many more bytes have come; the sender is told, so that more may follow."""
        into.progress_at = self._loop.time()
        self._transport.counted(self._peer).received += count
        if into.arrived + count < into.part.length:
            self._say(wire.Frame(held=wire.Held(transfer=into.transfer, bytes=into.arrived + count)), 0, None)

    async def finish(self, into: Incoming) -> wire.Held:
        """All bytes are here: check, pass on. The answer goes to the sender."""
        part, transport = into.part, self._transport
        self.open.pop(into.transfer, None)
        try:
            if not part.matches():
                part.discard()
                raise PeerError("its bytes do not have the digest that was announced")
            data = part.take()
            most = transport.limits.parcel_bytes
            if len(data) < _DECODED_IN_THREAD:
                content = packet_codec.decode(data, most)
            else:
                async with transport.decoding:
                    content = await asyncio.to_thread(packet_codec.decode, data, most)
            transport.vet(self._peer, content)
        except PeerError as error:
            log.warning("packet %d of %s refused: %s", into.number, self._peer, error)
            return wire.Held(transfer=into.transfer, refused=str(error))
        finally:
            transport.spool.release(part)
        transport.inbox.arrived(self._peer, content, self._loop.time() - into.started_at + self._half_trip_s())
        return wire.Held(transfer=into.transfer, bytes=part.length, whole=True)

    def drop(self, into: Incoming) -> None:
        """It broke off; what is here stays in the spool."""
        self.open.pop(into.transfer, None)
        self._transport.spool.release(into.part)

    def end(self) -> None:
        for into in list(self.open.values()):
            self.drop(into)
