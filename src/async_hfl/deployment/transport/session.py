"""One session: two nodes in touch, the same rules on both sides.

Small parcels travel inline. A large one is offered (length, SHA-256); the receiver says how much of it lies in its
spool, and the rest moves on a stream of its own, pushed or pulled by whoever dialled. The receiver passes it on when
length and digest match, and says `whole`. A request iterator of grpc.aio ends normally when its peer dies, so nothing
is believed to be complete because a stream ended.

Whatever is heard of a peer, heartbeat or chunk, shows that it lives; nothing for `silence_s` ends the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from async_hfl.core.errors import AsyncHflError, PeerError
from async_hfl.core.identifiers import Address
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.pacing import Pacing
from async_hfl.deployment.transport.parts import Incoming, Outgoing, digest_of
from async_hfl.deployment.transport.window import FIRST
from async_hfl.encoding import parcels
from async_hfl.encoding.parcels import Content
from async_hfl.encoding.rounding import AS_IT_IS
from async_hfl.nodes.delivery import Packet

if TYPE_CHECKING:
    from async_hfl.deployment.transport.transport import Transport

log = logging.getLogger("async_hfl.transport")
_DIGEST_BYTES = 32
_DECODED_IN_THREAD = 2**20
_FRAME_BYTES = 256
"""What any frame counts while it waits: small ones must not pile up either for a peer that does not read."""
_CROWDED_S = 0.02


def readable(text: str) -> str:
    """What a peer wrote, fit for a log: one line, nothing that moves a cursor, not long."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])


class Stream(Protocol):
    """The session's stream, whichever side opened it."""

    async def read(self) -> Any:
        """A frame, or None when the stream is over."""
        ...

    async def write(self, frame: Any) -> None: ...


class Session:
    def __init__(
        self, transport: Transport, peer: Address, number: int, heartbeat_s: float, pacing: Pacing | None = None
    ) -> None:
        self.peer = peer
        self.number = number
        self.transport = transport
        self.pacing = pacing if pacing is not None else Pacing()
        self.push: Callable[[Outgoing, int], Awaitable[None]] | None = None
        self.pull: Callable[[Incoming], Awaitable[None]] | None = None
        """Set on the dialling side."""
        self.on_goodbye: Callable[[Any], None] = lambda goodbye: None
        self.round_trip_s = 0.0
        self.window = FIRST
        """Bytes under way at once: the next transfer begins with what the last one learnt of the link."""
        self.outgoing: dict[int, Outgoing] = {}
        self.incoming: dict[int, Incoming] = {}
        self.said_goodbye = False
        self.replaced = False
        """By a newer session of the same peer."""
        self._heartbeat_s = heartbeat_s
        self._limits = transport.limits
        self._loop = asyncio.get_running_loop()
        self._frames: asyncio.Queue[tuple[Any, int, int | None]] = asyncio.Queue()
        self._waiting_bytes = 0
        self._heard_at = self._loop.time()
        self._pinged: tuple[int, float] = (0, 0.0)
        self._transfers = 0
        self._moving: set[int] = set()
        """Numbers of the packets on offer."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[str] = self._loop.create_future()

    # Sending ---------------------------------------------------------------------------------------------------------

    def send(self, content: Content) -> None:
        if isinstance(content, Packet) and content.number in self._moving:
            return  # it is on its way already
        pieces = parcels.encode(content)  # large arrays are not copied, so this is quick
        length = sum(map(len, pieces))
        if length <= self._limits.inline_bytes:
            self._send_inline(content, b"".join(parcels.encode(content, self.transport.encoding)))
        else:
            assert isinstance(content, Packet)  # a receipt is small
            self._moving.add(content.number)
            self.spawn(self._offer(content, pieces, length))

    def send_digest(self, data: bytes) -> None:
        self._put(wire.Frame(digest=data), len(data))

    def _send_inline(self, content: Content, parcel: bytes) -> None:
        if self.push is None:
            self.pacing.down.debit(len(parcel))
        self._put(wire.Frame(parcel=parcel), len(parcel), content.number if isinstance(content, Packet) else None)

    async def _offer(self, content: Packet, pieces: list[parcels.Buffer], length: int) -> None:
        encoding = self.transport.encoding
        if encoding != AS_IT_IS:
            pieces = await asyncio.to_thread(parcels.encode, content, encoding)
            length = sum(map(len, pieces))
        digest = await digest_of(pieces, length)
        self._transfers += 1
        now = self._loop.time()
        self.outgoing[self._transfers] = Outgoing(content.number, pieces, length, digest, now, now)
        offer = wire.Offer(
            transfer=self._transfers,
            length=length,
            sha256=digest,
            run=content.run,
            incarnation=content.incarnation,
            number=content.number,
        )
        self._put(wire.Frame(offer=offer))

    def sent(self, out: Outgoing, count: int) -> None:
        """That many more bytes are on the wire."""
        out.sent += count
        if out.window is not None:
            out.window.sent(out.sent, self._loop.time())
        self.transport.counted(self.peer).sent += count

    def finish_outgoing(self, transfer: int, why: str = "") -> None:
        """It is whole at the peer, or (with a reason) broken off."""
        out = self.outgoing.pop(transfer, None)
        if out is None:
            return
        self._moving.discard(out.number)
        if out.window is not None:
            self.window = out.window.size
        if self.replaced:
            return  # the newer session has sent it again already
        if why:
            log.warning(
                "packet %d to %s broken off after %d of %d bytes: %s",
                out.number,
                self.peer,
                out.arrived,
                out.length,
                why,
            )
        self.transport.inbox.transfer_over(self.peer, out.number)

    # Receiving -------------------------------------------------------------------------------------------------------

    def received(self, into: Incoming, count: int) -> None:
        self.heard()
        into.progress_at = self._heard_at
        self.transport.counted(self.peer).received += count
        if into.arrived + count < into.part.length:
            self._put(wire.Frame(held=wire.Held(transfer=into.transfer, bytes=into.arrived + count)))

    async def finish_incoming(self, into: Incoming) -> wire.Held:
        """All bytes are here: check, pass on. The answer goes to the sender."""
        part, transport = into.part, self.transport
        self.incoming.pop(into.transfer, None)
        try:
            if not part.matches():
                part.discard()
                raise PeerError("its bytes do not have the digest that was announced")
            data = part.take()
            most = self._limits.parcel_bytes
            if len(data) < _DECODED_IN_THREAD:
                content = parcels.decode(data, most)
            else:
                async with transport.decoding:
                    content = await asyncio.to_thread(parcels.decode, data, most)
            transport.vet(self.peer, content)
        except PeerError as error:
            log.warning("packet %d of %s refused: %s", into.number, self.peer, error)
            return wire.Held(transfer=into.transfer, refused=str(error))
        finally:
            transport.spool.release(part)
        transport.inbox.arrived(self.peer, content, self._loop.time() - into.started_at + self.round_trip_s / 2)
        return wire.Held(transfer=into.transfer, bytes=part.length, whole=True)

    async def _offered(self, offer: Any) -> None:
        held = await self._accept(offer)
        if held is not None:
            self._put(wire.Frame(held=held))

    async def _accept(self, offer: Any) -> Any:
        """The answer to an offer; None where the dialling side answers when it has pulled."""
        transport, limits = self.transport, self._limits
        try:
            if len(offer.sha256) != _DIGEST_BYTES or offer.transfer in self.incoming:
                raise PeerError("an offer without a proper digest, or numbered as an open one")
            if offer.length > limits.parcel_bytes:
                raise PeerError(f"{offer.length} bytes; at most {limits.parcel_bytes} are taken here")
            promised = sum(into.part.length for into in self.incoming.values())
            if promised + offer.length > limits.parcel_bytes:
                raise PeerError(f"{promised} bytes of this peer are under way; at most {limits.parcel_bytes} at once")
            if len(self.incoming) >= limits.offers:
                raise PeerError(f"{len(self.incoming)} transfers of this peer are open already")
            if transport.is_known(self.peer, offer.run, offer.incarnation, offer.number):
                return wire.Held(transfer=offer.transfer, bytes=offer.length, whole=True)
            part = transport.spool.open(self.peer, offer.length, offer.sha256)
        except (PeerError, OSError) as error:
            log.warning("offer of packet %d by %s refused: %s", offer.number, self.peer, error)
            return wire.Held(transfer=offer.transfer, refused=str(error))
        now = self._loop.time()
        into = Incoming(offer.transfer, offer.number, part, now, now)
        self.incoming[offer.transfer] = into
        if part.has_leftovers:
            await asyncio.to_thread(part.rehash)
        if part.whole:
            return await self.finish_incoming(into)
        if self.pull is None:
            return wire.Held(transfer=offer.transfer, bytes=part.held)
        try:
            await self.pull(into)
        except PeerError as error:
            self.drop_incoming(into)
            return wire.Held(transfer=offer.transfer, bytes=part.held, refused=str(error))
        return await self.finish_incoming(into)

    def drop_incoming(self, into: Incoming) -> None:
        """It broke off; what is here stays in the spool."""
        self.incoming.pop(into.transfer, None)
        self.transport.spool.release(into.part)

    # The session itself ----------------------------------------------------------------------------------------------

    async def run(self, stream: Stream) -> str:
        """Until it is over; says why. Every packet that was under way is over then, too."""
        parts = [self._read(stream), self._write(stream), self._beat()]
        tasks = [self._loop.create_task(part) for part in parts]
        ends: list[asyncio.Future[Any]] = [*tasks, self._over]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    self.end(str(error) or type(error).__name__)
                    if not isinstance(error, (PeerError, ConnectionError)):
                        log.error("session with %s failed", self.peer, exc_info=error)
            return self._over.result() if self._over.done() else "its stream ended"
        finally:
            self.end("closed here")
            mine = [*tasks, *self._tasks]
            for task in mine:
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)
            for transfer in list(self.outgoing):
                self.finish_outgoing(transfer, "the session ended")
            for into in list(self.incoming.values()):
                self.drop_incoming(into)

    def end(self, why: str) -> None:
        if not self._over.done():
            self._over.set_result(why)

    @property
    def ended(self) -> bool:
        return self._over.done()

    async def goodbye(self, reason: str, refusal: bytes = b"", patience_s: float = 2.0) -> None:
        """Say what is queued and then goodbye; do not wait long for a peer that does not listen."""
        self._put(wire.Frame(goodbye=wire.Goodbye(reason=reason, refusal=refusal)))
        try:
            await asyncio.wait_for(self._frames.join(), patience_s)
        except TimeoutError:
            log.info("%s did not take our goodbye", self.peer)
        self.said_goodbye = True
        self.end(f"we said goodbye: {reason}")

    def spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_done)

    def _spawned_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work for %s failed", self.peer, exc_info=error)
            self.end(f"failed here: {error}")

    def heard(self) -> None:
        self._heard_at = self._loop.time()

    def _put(self, frame: Any, size: int = 0, number: int | None = None) -> None:
        self._waiting_bytes += size + _FRAME_BYTES
        if self._waiting_bytes > self._limits.waiting_bytes:
            self.end(f"it does not read: {self._waiting_bytes} bytes are waiting for it")
            return
        self._frames.put_nowait((frame, size, number))

    async def _write(self, stream: Stream) -> None:
        while True:
            frame, size, number = await self._frames.get()
            await stream.write(frame)
            self._waiting_bytes -= size + _FRAME_BYTES
            if size:
                self.transport.counted(self.peer).sent += size
            if number is not None:
                self.transport.inbox.transfer_over(self.peer, number)
            self._frames.task_done()

    async def _read(self, stream: Stream) -> None:
        while (frame := await stream.read()) is not None:
            self.heard()
            while self.transport.crowded():  # the peer then waits, too: its window is full
                await asyncio.sleep(_CROWDED_S)
                self.heard()  # it is we who do not listen
            kind = frame.WhichOneof("content")
            if kind == "parcel":
                self._inline(frame.parcel)
            elif kind == "offer":
                if len(self._tasks) > 4 * self._limits.offers:
                    raise PeerError("it floods us with offers")
                self.spawn(self._offered(frame.offer))
            elif kind == "held":
                self._held(frame.held)
            elif kind == "heartbeat":
                self._heartbeat(frame.heartbeat)
            elif kind == "digest":
                self.transport.digests(self.peer, frame.digest)
            elif kind == "goodbye":
                self.on_goodbye(frame.goodbye)
                self.end(f"it said goodbye: {readable(frame.goodbye.reason)}")
                return
            # Anything else is of a newer protocol that promised to be understood without it.

    def _inline(self, data: bytes) -> None:
        if self.push is None:
            self.pacing.up.debit(len(data))
        self.transport.counted(self.peer).received += len(data)
        try:
            content = parcels.decode(data, self._limits.parcel_bytes)
            self.transport.vet(self.peer, content)
        except PeerError as error:
            log.warning("a parcel of %s refused: %s", self.peer, error)
            return
        self.transport.inbox.arrived(self.peer, content, self.round_trip_s / 2)

    def _held(self, held: Any) -> None:
        out = self.outgoing.get(held.transfer)
        if out is None:
            return
        if held.whole or held.refused:
            self.finish_outgoing(held.transfer, f"refused there: {readable(held.refused)}" if held.refused else "")
        elif out.window is not None:
            out.acknowledged(held.bytes, self._loop.time())
        elif self.push is not None:
            out.begin(min(held.bytes, out.length), self.window)
            self.spawn(self._push(self.push, out, held.transfer))

    async def _push(self, push: Callable[[Outgoing, int], Awaitable[None]], out: Outgoing, transfer: int) -> None:
        try:
            await push(out, transfer)
        except AsyncHflError as error:
            self.finish_outgoing(transfer, str(error))

    async def _beat(self) -> None:
        """Be heard every `heartbeat_s`, and listen whether the other is."""
        number, next_beat = 0, self._loop.time()
        step = min(self._heartbeat_s, self._limits.silence_s) / 4
        while True:
            now = self._loop.time()
            if now >= next_beat:
                number, next_beat = number + 1, now + self._heartbeat_s
                self._pinged = (number, now)
                self._put(wire.Frame(heartbeat=wire.Heartbeat(number=number)))
            await asyncio.sleep(step)
            # A loop that was held up (a slow disk, a suspended machine) has not listened either.
            self._heard_at += max(0.0, self._loop.time() - now - 2 * step)
            silent = self._loop.time() - self._heard_at
            if silent > self._limits.silence_s:
                self.end(f"nothing heard for {silent:.1f} s")
                return

    def _heartbeat(self, beat: Any) -> None:
        if beat.number:
            self._put(wire.Frame(heartbeat=wire.Heartbeat(echo=beat.number)))
        elif beat.echo == self._pinged[0]:
            self.round_trip_s = self._loop.time() - self._pinged[1]
