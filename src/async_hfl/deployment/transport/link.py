"""The dialling side of a session: a gateway dials the cloud, a device each of its gateways.

A link dials with back-off until it is closed. The process decides when that is."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from async_hfl.core.errors import AsyncHflError
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport import calls, joining
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal, Role
from async_hfl.deployment.transport.calls import LinkError, link_error
from async_hfl.deployment.transport.limits import HIGHEST_VERSION, LOWEST_VERSION, PACKAGE, PROBE_BYTES, USUAL, Limits
from async_hfl.deployment.transport.session import Session
from async_hfl.deployment.transport.transfers.parts import Incoming, Outgoing
from async_hfl.deployment.transport.transport import Transport

log = logging.getLogger("async_hfl.transport")
_random = secrets.SystemRandom()
_PULL_ATTEMPTS = 3
_SETTLED_S = 10.0
_PROBE_AGAIN_S = 3600.0
_GOODBYE_S = 1.0
_EXPLAINED = (0, 3, 10)
"""After this many failures in a row, the server's certificate is examined to explain the failure."""


@asynccontextmanager
async def _link_errors() -> AsyncIterator[None]:
    """Raise LinkError instead of any error that grpc.aio raises for a broken connection.

    These include CancelledError, even if nobody cancelled the task."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise LinkError("the call was cancelled") from error
    except Exception as error:
        if (told := link_error(error)) is not None:
            raise told from error
        raise


async def _probe(channel: Any, limits: Limits) -> float:
    """Return the seconds that 64 KiB take on an open connection."""
    loop = asyncio.get_running_loop()
    send = calls.call(channel, calls.PROBE)
    await send(wire.Chunk(), timeout=limits.join_s)
    begun = loop.time()
    await send(wire.Chunk(data=bytes(PROBE_BYTES)), timeout=limits.join_s)
    return loop.time() - begun


async def enlist(
    target: str,
    server_role: Role,
    credentials: Credentials,
    stated: Joining,
    probe_s: float = 0.0,
    limits: Limits = USUAL,
) -> Admission | Refusal:
    """Ask to join without opening a session. Raises LinkError if there is no answer."""
    async with _channel(target, server_role, credentials, limits) as channel, _link_errors():
        request = joining.hello(stated, PACKAGE, probe_s)
        return joining.outcome(await calls.call(channel, calls.ENLIST)(request, timeout=limits.join_s))


async def operate(
    target: str, server_role: Role, credentials: Credentials, kind: str, payload: bytes = b"", timeout_s: float = 60.0
) -> bytes:
    """Make an operator's call, and return the answer."""
    request = wire.Operation(lowest_version=LOWEST_VERSION, highest_version=HIGHEST_VERSION, kind=kind, payload=payload)
    async with _channel(target, server_role, credentials, USUAL) as channel, _link_errors():
        answer = calls.call(channel, calls.OPERATE)(request, timeout=timeout_s)
        return b"".join([chunk.data async for chunk in answer])


@asynccontextmanager
async def _channel(target: str, role: Role, credentials: Credentials, limits: Limits) -> AsyncIterator[Any]:
    channel = credentials.channel(target, role, calls.options(limits.silence_s, server=False))
    try:
        yield channel
    finally:
        await channel.close()


class Link:
    def __init__(
        self,
        transport: Transport,
        target: str,
        server_role: Role,
        credentials: Credentials,
        *,
        joining: Joining,
        admitted: Callable[[Admission], None],
        refused: Callable[[Refusal], None],
        complete: Callable[[Joining], Joining] = lambda stated: stated,
    ) -> None:
        """`complete` adds to the request to join what is true when it is sent. `admitted` is called at every admission,
        `refused` once, with a final refusal; the link then ends."""
        self.target = target
        self._transport = transport
        self._limits = transport.limits
        self._role: Role = server_role
        self._credentials = credentials
        self._joining = joining
        self._complete = complete
        self._admitted = admitted
        self._refused = refused
        self._session: Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._final = False
        self._answers = 0
        self._probed: tuple[float, float] | None = None
        """Duration and time of the last probe."""

    def take_contact(self) -> bool:
        """Return True if there is a session, or there was an answer since the last call."""
        answers, self._answers = self._answers, 0
        return self._session is not None or answers > 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._dial_for_ever())

    async def close(self, goodbye: str = "") -> None:
        self._final = True
        if self._session is not None and goodbye and self._task is not None:
            await self._session.goodbye(goodbye)
            await asyncio.wait([self._task], timeout=2 * _GOODBYE_S)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _dial_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            begun = loop.time()
            why = await self._attempt(explained=attempt in _EXPLAINED)
            if self._final:
                return
            attempt = 0 if loop.time() - begun > _SETTLED_S else attempt + 1
            most = min(self._limits.backoff_first_s * 2.0 ** min(attempt, 20), self._limits.backoff_most_s)
            wait = _random.uniform(0.5 * most, most)
            # A warning for each of the first failures, then one an hour: a server may be away for days.
            level = logging.WARNING if attempt < 4 or not attempt % 120 else logging.INFO
            log.log(level, "%s: %s; dialling again in %.1f s", self.target, why, wait)
            await asyncio.sleep(wait)

    async def _attempt(self, *, explained: bool) -> str:
        """Make one connection, and return the reason for which it ended."""
        try:
            async with _channel(self.target, self._role, self._credentials, self._limits) as channel:
                return await self._once(channel)
        except LinkError as error:
            clue = await asyncio.to_thread(self._credentials.explain, self.target, self._role) if explained else ""
            return f"{error}; {clue}" if clue else str(error)
        except AsyncHflError as error:  # for example a peer that violates the protocol, or an expired certificate
            return str(error)
        except Exception as error:
            log.exception("dialling %s failed", self.target)
            return f"internal error: {error}"

    async def _once(self, channel: Any) -> str:
        limits, transport = self._limits, self._transport
        async with _link_errors():
            probe_s = await self._measured(channel)
        call = calls.call(channel, calls.SESSION)()
        async with _link_errors(), asyncio.timeout(limits.join_s):
            await call.write(wire.Frame(hello=joining.hello(self._complete(self._joining), PACKAGE, probe_s)))
            frame = await call.read()
        if frame is grpc.aio.EOF or frame.WhichOneof("content") != "joined":
            raise LinkError("the request to join was not answered")
        answer = joining.outcome(frame.joined)
        self._answers += 1
        if isinstance(answer, Refusal):
            return self._told(answer)
        self._admitted(answer)
        asked_s = frame.joined.heartbeat_s
        heartbeat_s = min(max(asked_s, 0.05), limits.heartbeat_s * 5) if asked_s == asked_s else limits.heartbeat_s
        session = Session(transport.endpoint, answer.peer, frame.joined.session, heartbeat_s)
        session.sending.push = lambda out, transfer: self._push(channel, session, out, transfer)
        session.receiving.pull = lambda into: self._pull(channel, session, into)
        session.on_goodbye = self._goodbye
        self._session = session
        log.info("connected to %s at %s", answer.peer, self.target)
        transport.opened(session)
        why = "closed by this side"
        try:
            why = await session.run(call.read, call.write)
            return f"lost {answer.peer}: {why}"
        finally:
            self._session = None
            call.cancel()
            transport.closed(session, why)

    async def _measured(self, channel: Any) -> float:
        """Return the duration of a probe at most an hour old: probes burden a slow link that often breaks."""
        now = asyncio.get_running_loop().time()
        if self._probed is None or now - self._probed[1] > _PROBE_AGAIN_S:
            self._probed = (await _probe(channel, self._limits), now)
        return self._probed[0]

    def _told(self, refusal: Refusal) -> str:
        if refusal.kind != "not_yet":
            self._final = True
            self._refused(refusal)
        return f"{refusal.kind.replace('_', ' ')}: {refusal.reason}"

    def _goodbye(self, goodbye: Any) -> None:
        if goodbye.refusal:
            self._told(joining.unpack(goodbye.refusal, Refusal))

    # Transfers -------------------------------------------------------------------------------------------------------

    async def _push(self, channel: Any, session: Session, out: Outgoing, transfer: int) -> None:
        limits = self._limits
        call = calls.call(channel, calls.PUSH)()
        try:
            async with _link_errors():
                while out.sent < out.length:
                    data = await out.next_chunk(limits.stall_s)
                    chunk = wire.Chunk(session=session.number, transfer=transfer, offset=out.sent, data=data)
                    session.sending.sent(out, len(data))  # before the write: the acknowledgement may be faster
                    async with asyncio.timeout(limits.stall_s):
                        await call.write(chunk)
                async with asyncio.timeout(limits.stall_s):
                    await call.done_writing()
                    held = await call
        finally:
            call.cancel()
        why = "" if held.whole else held.refused or f"only {held.bytes} bytes arrived"
        session.sending.finish(transfer, why)

    async def _pull(self, channel: Any, session: Session, into: Incoming) -> None:
        """Pull a packet; a stream that breaks is reopened at the offset where it stopped."""
        for attempt in range(_PULL_ATTEMPTS):
            try:
                await self._pull_once(channel, session, into)
            except LinkError:
                if attempt + 1 == _PULL_ATTEMPTS or session.ended:
                    raise
            if into.part.whole:
                return
        raise LinkError(f"the transfer broke off after {into.part.held} of {into.part.length} bytes")

    async def _pull_once(self, channel: Any, session: Session, into: Incoming) -> None:
        await into.flush()  # bytes of an earlier attempt
        wanted = wire.Wanted(session=session.number, transfer=into.transfer, offset=into.part.held)
        call = calls.call(channel, calls.PULL)(wanted)
        try:
            async with _link_errors():
                while True:
                    async with asyncio.timeout(self._limits.stall_s):
                        chunk = await call.read()
                    if chunk is grpc.aio.EOF:
                        break
                    session.received(into, len(chunk.data))
                    await into.write(chunk.data)
            await into.flush()
        finally:
            call.cancel()
