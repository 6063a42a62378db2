"""The incoming packets of a session: spooled if large, verified, decoded, validated and passed to the inbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import Address
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.endpoint import Endpoint
from async_hfl.deployment.transport.transfers.pacing import Bucket
from async_hfl.deployment.transport.transfers.parts import Incoming
from async_hfl.deployment.transport.transfers.sending import Put
from async_hfl.deployment.transport.transfers.spool import SpoolFull, Superseded
from async_hfl.encoding import packet_codec
from async_hfl.nodes.reliability.delivery import Packet

log = logging.getLogger("async_hfl.transport")
_DIGEST_BYTES = 32
_DECODED_IN_THREAD = 2**20
_PACKETS_AT_ONCE = 4
"""A peer's transfers, and the parts that earlier ones have left, may together take as much room as so many of the
largest packets."""


class Receiving:
    def __init__(
        self, peer: Address, endpoint: Endpoint, bucket: Bucket, put: Put, half_trip_s: Callable[[], float]
    ) -> None:
        self.open: dict[int, Incoming] = {}
        """Accepted transfers that are not complete, by the peer's transfer number."""
        self.pull: Callable[[Incoming], Awaitable[None]] | None = None
        """Set on the dialling side, which pulls what it is offered; the listening side waits for a push."""
        self.incarnation: int | None = None
        """The incarnation that the peer stated when it joined; its packets must state the same one."""
        self._peer = peer
        self._endpoint = endpoint
        self._most = endpoint.largest_packet(peer)
        self._bucket = bucket
        self._put = put
        self._half_trip_s = half_trip_s
        self._loop = asyncio.get_running_loop()

    def inline(self, data: bytes) -> None:
        """Handle a packet that arrived whole, in one frame."""
        endpoint = self._endpoint
        if self.pull is None:
            self._bucket.debit(len(data))
        endpoint.bytes[self._peer].received += len(data)
        try:
            content = packet_codec.decode(data, self._most)
            self._validate(content)
        except PeerError as error:
            log.warning("refused a packet from %s: %s", self._peer, error)
            endpoint.conduct.refused(self._peer, str(error))
            return
        endpoint.inbox.arrived(self._peer, content, self._half_trip_s())

    def _validate(self, content: packet_codec.Content) -> None:
        if isinstance(content, Packet):
            self._check_incarnation(content.incarnation)
        self._endpoint.validate(self._peer, content)

    def _check_incarnation(self, stated: int) -> None:
        if self.incarnation is not None and stated != self.incarnation:
            raise PeerError(f"a packet of incarnation {stated}; this session is of incarnation {self.incarnation}")

    async def offered(self, offer: Any) -> None:
        """Answer an offer; the dialling side pulls the packet first."""
        self._put(wire.Frame(held=await self._answer(offer)), 0, None)

    async def _answer(self, offer: Any) -> Any:
        try:
            self._check(offer)
            if self._endpoint.is_known(self._peer, offer.run, offer.incarnation, offer.number):
                return wire.Held(transfer=offer.transfer, bytes=offer.length, whole=True)
            part = self._endpoint.spool.open(self._peer, offer.length, offer.sha256, _PACKETS_AT_ONCE * self._most)
        except SpoolFull as error:  # no fault of this peer, perhaps: it may offer the packet again
            log.info("no room for packet %d of %s: %s", offer.number, self._peer, error)
            return wire.Held(transfer=offer.transfer, refused=str(error))
        except (PeerError, OSError) as error:
            log.warning("refused the offer of packet %d by %s: %s", offer.number, self._peer, error)
            if isinstance(error, PeerError):
                self._endpoint.conduct.refused(self._peer, str(error))
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
        self._check_incarnation(offer.incarnation)
        if len(offer.sha256) != _DIGEST_BYTES or offer.transfer in self.open:
            raise PeerError("an offer without a valid digest, or with the number of an open transfer")
        if offer.length > self._most:
            raise PeerError(f"a packet of {offer.length} bytes; at most {self._most} are accepted")
        if len(self.open) >= self._endpoint.limits.offers:
            raise PeerError(f"this peer has {len(self.open)} open transfers already")

    def received(self, into: Incoming, count: int) -> None:
        """Count a chunk that arrived, and acknowledge it, so that the sender's window moves on."""
        into.progress_at = self._loop.time()
        self._endpoint.bytes[self._peer].received += count
        if into.part.arrived + count < into.part.length:
            arrived = wire.Held(transfer=into.transfer, bytes=into.part.arrived + count)
            self._put(wire.Frame(held=arrived), 0, None)

    async def finish(self, into: Incoming) -> wire.Held:
        """Verify, decode and pass on a packet whose bytes have all arrived; return the answer to its sender."""
        part, endpoint = into.part, self._endpoint
        self.open.pop(into.transfer, None)
        spooled = None
        try:
            if not part.matches():
                part.discard()
                raise PeerError("its bytes do not match the digest in the offer")
            spooled = part.take()
            most = self._most
            if part.length < _DECODED_IN_THREAD:
                content = packet_codec.decode(spooled.data, most)
            else:
                async with endpoint.decoding:
                    content = await asyncio.to_thread(packet_codec.decode, spooled.data, most)
            self._validate(content)
        except PeerError as error:
            log.warning("refused packet %d of %s: %s", into.number, self._peer, error)
            if not isinstance(error, Superseded):
                endpoint.conduct.refused(self._peer, str(error))
            if spooled is not None:
                spooled.path.unlink(missing_ok=True)
            return wire.Held(transfer=into.transfer, refused=str(error))
        finally:
            endpoint.spool.release(part)
        transfer_s = self._loop.time() - into.started_at + self._half_trip_s()
        endpoint.inbox.arrived(self._peer, content, transfer_s, spooled)
        return wire.Held(transfer=into.transfer, bytes=part.length, whole=True)

    def drop(self, into: Incoming) -> None:
        """End a transfer that broke off; the bytes that have arrived stay in the spool."""
        self.open.pop(into.transfer, None)
        self._endpoint.spool.release(into.part)

    def end(self) -> None:
        for into in list(self.open.values()):
            self.drop(into)
