"""A session between two connected nodes; both sides follow the same rules.

Small packets travel inline. A large one is offered (length, SHA-256); the receiver answers with the number of bytes
that are in its spool already. The rest travels on a separate stream, pushed or pulled by the side that dialled. The
receiver passes the packet on when length and digest match, and reports it as `whole`. The end of a stream never means
that a transfer is complete: a request iterator of grpc.aio ends normally even when the peer dies.

Everything that arrives from a peer, heartbeat or chunk, shows that it is alive; silence for `silence_s` ends the
session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import DEVICE_TIER, Address
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.calls import link_error
from async_hfl.deployment.transport.endpoint import Endpoint
from async_hfl.deployment.transport.transfers.pacing import Pacing
from async_hfl.deployment.transport.transfers.parts import Incoming
from async_hfl.deployment.transport.transfers.receiving import Receiving
from async_hfl.deployment.transport.transfers.sending import Sending, readable

log = logging.getLogger("async_hfl.transport")
_FRAME_BYTES = 256
"""Added to the size of every queued frame, so that small frames cannot pile up for a peer that does not read."""
_CROWDED_S = 0.02
_PUSHES_AT_ONCE = 4
_SET_ASIDE = "it sends what no correct node sends, and is set aside"
_ANSWERED_S = 1.0


Read = Callable[[], Awaitable[Any]]
"""Returns the next frame of the session's stream, or grpc.aio.EOF."""
Write = Callable[[Any], Awaitable[None]]


class Session:
    def __init__(
        self, endpoint: Endpoint, peer: Address, number: int, heartbeat_s: float, pacing: Pacing | None = None
    ) -> None:
        self.peer = peer
        self.number = number
        self.pacing = pacing if pacing is not None else Pacing()
        self.sending = Sending(peer, endpoint, self.pacing.down, self._put, self._spawn)
        self.receiving = Receiving(peer, endpoint, self.pacing.up, self._put, lambda: self.round_trip_s / 2)
        self.on_goodbye: Callable[[Any], None] = lambda goodbye: None
        self.round_trip_s = 0.0
        self._endpoint = endpoint
        self._heartbeat_s = heartbeat_s
        self._limits = endpoint.limits
        self._loop = asyncio.get_running_loop()
        self._frames: asyncio.Queue[tuple[Any, int, int | None]] = asyncio.Queue()
        self._waiting_bytes = 0
        self._heard_at = self._loop.time()
        self._reads = True
        """False while this side does not read: the peer is not silent then."""
        self._pinged: tuple[int, float] = (0, 0.0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self.moving = asyncio.Semaphore(_PUSHES_AT_ONCE)
        """Held by each transfer that the peer pushes."""
        self._served = pacing is not None
        conduct, limits = endpoint.conduct, endpoint.limits
        self._packets = conduct.allowance(peer, "packets", limits.packets_per_s, limits.packets_at_once)
        self._others = conduct.allowance(peer, "other frames", limits.frames_per_s, limits.frames_at_once)
        # A peer sends heartbeats of its own and answers ours.
        self._heartbeats = conduct.allowance(peer, "heartbeats", 4.0 / heartbeat_s, limits.heartbeats_at_once)
        self.peer_knows = False
        """True if the peer said goodbye, or answered a goodbye."""

    def send_digest(self, data: bytes) -> None:
        self._put(wire.Frame(digest=data), len(data), None)

    def received(self, into: Incoming, count: int) -> None:
        self._heard_at = self._loop.time()
        self.receiving.received(into, count)

    async def run(self, read: Read, write: Write) -> str:
        """Run until the session ends, with all its transfers; return the reason."""
        parts = [self._read(read), self._write(write), self._beat()]
        tasks = [self._loop.create_task(part) for part in parts]
        ends: list[asyncio.Future[Any]] = [*tasks, self._over]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    told = link_error(error) or error
                    self.end(str(told) or type(told).__name__)
                    if not isinstance(told, (PeerError, ConnectionError)):
                        log.error("session with %s failed", self.peer, exc_info=error)
            return self._over.result() if self._over.done() else "the stream ended"
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
        """Send the queued frames and a goodbye, and wait at most `patience_s` for the peer to end the stream.

        If this side ended it, grpc.aio could drop frames that it has not sent yet: abandoning a read cancels the
        call."""
        self._put(wire.Frame(goodbye=wire.Goodbye(reason=reason, refusal=refusal)))
        try:
            async with asyncio.timeout(patience_s):
                await self._frames.join()
                await asyncio.shield(self._over)
        except TimeoutError:
            log.info("%s did not answer the goodbye", self.peer)
        self.end(f"goodbye sent: {reason}")

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_done)

    def _spawned_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the session with %s failed", self.peer, exc_info=error)
            self.end(f"internal error: {error}")

    def _put(self, frame: Any, size: int = 0, number: int | None = None) -> None:
        """Queue a frame. `number`: the packet that it delivers, whose transfer is over when the frame is written."""
        self._waiting_bytes += size + _FRAME_BYTES
        if self._waiting_bytes > self._limits.waiting_bytes:
            self.end(f"the peer does not read: {self._waiting_bytes} bytes are waiting for it")
            return
        self._frames.put_nowait((frame, size, number))

    async def _write(self, write: Write) -> None:
        while True:
            frame, size, number = await self._frames.get()
            await write(frame)
            self._waiting_bytes -= size + _FRAME_BYTES
            if size:
                self._endpoint.bytes[self.peer].sent += size
            if number is not None:
                self._endpoint.inbox.transfer_over(self.peer, number)
            self._frames.task_done()

    async def _read(self, read: Read) -> None:
        while (frame := await read()) is not grpc.aio.EOF:
            self._reads = False
            kind = frame.WhichOneof("content")
            while self._endpoint.crowded():  # the peer has to wait as well once its window is full
                await asyncio.sleep(_CROWDED_S)
            if self._served and kind in ("packet", "offer"):
                await self._restrain()
            elif self._served and self.peer.tier == DEVICE_TIER:
                allowance = self._heartbeats if kind == "heartbeat" else self._others
                await asyncio.sleep(allowance.take(self._endpoint.conduct.clock()))
            self._reads, self._heard_at = True, self._loop.time()
            if kind == "packet":
                self.receiving.inline(frame.packet)
            elif kind == "offer":
                if len(self._tasks) > 4 * self._limits.offers:
                    raise PeerError("the peer sends offers faster than they can be answered")
                self._spawn(self.receiving.offered(frame.offer))
            elif kind == "held":
                self.sending.held(frame.held)
            elif kind == "heartbeat":
                self._heartbeat(frame.heartbeat)
            elif kind == "digest":
                self._endpoint.digests(self.peer, frame.digest)
            elif kind == "goodbye":
                self.peer_knows = True
                if frame.goodbye.refusal:
                    await self._answer_goodbye(read)
                self.on_goodbye(frame.goodbye)
                self.end(f"the peer said goodbye: {readable(frame.goodbye.reason)}")
                return
            # Any other kind belongs to a newer protocol and is ignored.

    async def _restrain(self) -> None:
        """End the session of a peer that is set aside; let a device wait that sends too much."""
        if self._endpoint.conduct.pause_left(self.peer) > 0.0:
            raise PeerError(_SET_ASIDE)
        if self.peer.tier != DEVICE_TIER:
            return
        wait = self._packets.take(self._endpoint.conduct.clock())
        if wait > 0.0:
            await asyncio.sleep(wait)
        while self._endpoint.waiting(self.peer) >= self._limits.packets_waiting:
            await asyncio.sleep(_CROWDED_S)
        await self.pacing.up.settle(self.peer)

    async def _answer_goodbye(self, read: Read) -> None:
        """Confirm a goodbye, and read until the peer ends the stream."""
        self._put(wire.Frame(goodbye=wire.Goodbye(reason="heard")))
        with contextlib.suppress(TimeoutError, PeerError, grpc.RpcError, grpc.aio.UsageError):
            async with asyncio.timeout(_ANSWERED_S):
                while await read() is not grpc.aio.EOF:
                    pass

    async def _beat(self) -> None:
        """Send a heartbeat every `heartbeat_s`, and end the session if the peer is silent."""
        number, next_beat = 0, self._loop.time()
        step = min(self._heartbeat_s, self._limits.silence_s) / 4
        while True:
            now = self._loop.time()
            if now >= next_beat:
                number, next_beat = number + 1, now + self._heartbeat_s
                self._pinged = (number, now)
                self._put(wire.Frame(heartbeat=wire.Heartbeat(number=number)))
            await asyncio.sleep(step)
            if self._served and self._endpoint.conduct.pause_left(self.peer) > 0.0:
                self.end(_SET_ASIDE)
                return
            # Time for which the loop was blocked (a slow disk, a suspended machine) does not count as silence.
            self._heard_at += max(0.0, self._loop.time() - now - 2 * step)
            silent = self._loop.time() - self._heard_at
            if self._reads and silent > self._limits.silence_s:
                self.end(f"nothing heard for {silent:.1f} s")
                return

    def _heartbeat(self, beat: Any) -> None:
        if beat.number:
            self._put(wire.Frame(heartbeat=wire.Heartbeat(echo=beat.number)))
        elif beat.echo == self._pinged[0]:
            self.round_trip_s = self._loop.time() - self._pinged[1]
