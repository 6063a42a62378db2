"""One session: two nodes in touch, the same rules on both sides.

Small parcels travel inline. A large one is offered (length, SHA-256); the receiver says how much of it lies in its
spool, and the rest moves on a stream of its own, pushed or pulled by whoever dialled. The receiver passes it on when
length and digest match, and says `whole`. A request iterator of grpc.aio ends normally when its peer dies, so nothing
is believed to be complete because a stream ended.

Whatever is heard of a peer, heartbeat or chunk, shows that it lives; nothing for `silence_s` ends the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import Address
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.pacing import Pacing
from async_hfl.deployment.transport.parts import Incoming
from async_hfl.deployment.transport.receiving import Receiving
from async_hfl.deployment.transport.sending import Sending, readable

if TYPE_CHECKING:
    from async_hfl.deployment.transport.transport import Transport

log = logging.getLogger("async_hfl.transport")
_FRAME_BYTES = 256
"""What any frame counts while it waits: small ones must not pile up either for a peer that does not read."""
_CROWDED_S = 0.02
_ANSWERED_S = 1.0


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
        self.sending = Sending(peer, transport, self.pacing.down, self._put, self._spawn)
        self.receiving = Receiving(peer, transport, self.pacing.up, self._put, lambda: self.round_trip_s / 2)
        self.on_goodbye: Callable[[Any], None] = lambda goodbye: None
        self.round_trip_s = 0.0
        self._heartbeat_s = heartbeat_s
        self._limits = transport.limits
        self._loop = asyncio.get_running_loop()
        self._frames: asyncio.Queue[tuple[Any, int, int | None]] = asyncio.Queue()
        self._waiting_bytes = 0
        self._heard_at = self._loop.time()
        self._pinged: tuple[int, float] = (0, 0.0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self.peer_knows = False
        """It said goodbye, or answered ours."""

    def send_digest(self, data: bytes) -> None:
        self._put(wire.Frame(digest=data), len(data), None)

    def received(self, into: Incoming, count: int) -> None:
        self.heard()
        self.receiving.received(into, count)

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
            self.sending.end()
            self.receiving.end()

    def end(self, why: str) -> None:
        if not self._over.done():
            self._over.set_result(why)

    @property
    def ended(self) -> bool:
        return self._over.done()

    async def goodbye(self, reason: str, refusal: bytes = b"", patience_s: float = 2.0) -> None:
        """Say what is queued and then goodbye; do not wait long for a peer that does not listen.

        The peer then ends the stream. If we ended it first, grpc.aio could drop what it has not sent yet: to give up a
        read cancels the call."""
        self._put(wire.Frame(goodbye=wire.Goodbye(reason=reason, refusal=refusal)))
        try:
            async with asyncio.timeout(patience_s):
                await self._frames.join()
                await asyncio.shield(self._over)
        except TimeoutError:
            log.info("%s did not take our goodbye", self.peer)
        self.end(f"we said goodbye: {reason}")

    def _spawn(self, work: Any) -> None:
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
        """`number`: of the packet that is over when the frame is written."""
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
                self.receiving.inline(frame.parcel)
            elif kind == "offer":
                if len(self._tasks) > 4 * self._limits.offers:
                    raise PeerError("it floods us with offers")
                self._spawn(self.receiving.offered(frame.offer))
            elif kind == "held":
                self.sending.held(frame.held)
            elif kind == "heartbeat":
                self._heartbeat(frame.heartbeat)
            elif kind == "digest":
                self.transport.digests(self.peer, frame.digest)
            elif kind == "goodbye":
                self.peer_knows = True
                if frame.goodbye.refusal:
                    await self._answer_goodbye(stream)
                self.on_goodbye(frame.goodbye)
                self.end(f"it said goodbye: {readable(frame.goodbye.reason)}")
                return
            # Anything else is of a newer protocol that promised to be understood without it.

    async def _answer_goodbye(self, stream: Stream) -> None:
        """So that who says it knows that we do: a connection that breaks just then says nothing. It ends the stream."""
        self._put(wire.Frame(goodbye=wire.Goodbye(reason="heard")))
        with contextlib.suppress(TimeoutError, PeerError):
            async with asyncio.timeout(_ANSWERED_S):
                while await stream.read() is not None:
                    pass

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
