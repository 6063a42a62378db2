"""The listening side of sessions: the cloud serves gateways, a gateway serves devices."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc

from async_hfl.core.errors import AsyncHflError, IdentityError, PeerError, SettingsError
from async_hfl.core.identifiers import DEVICE_TIER, GATEWAY_TIER, Address
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.identity.interceptor import CheckEveryCall, caller
from async_hfl.deployment.identity.names import Caller
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport import calls, joining
from async_hfl.deployment.transport.admission import Admission, Admit, Joining, Refusal, Role
from async_hfl.deployment.transport.call_server import call_server
from async_hfl.deployment.transport.descriptors import Descriptors
from async_hfl.deployment.transport.earlier_versions import admission_for_2
from async_hfl.deployment.transport.limits import PACKAGE
from async_hfl.deployment.transport.session import Session
from async_hfl.deployment.transport.transfers.pacing import Pacing
from async_hfl.deployment.transport.transfers.parts import Incoming
from async_hfl.deployment.transport.transport import Transport

log = logging.getLogger("async_hfl.transport")
Operate = Callable[[str, bytes], Awaitable[bytes]]
_TIERS: dict[Role, int] = {"gateway": GATEWAY_TIER, "device": DEVICE_TIER}
_ANSWER_CHUNK = 256 * 1024
_STRANGERS_EVERY_S = 60.0
_FEW_STRANGERS = 20
"""So many connections without a call are usual: nodes that give up, health checks, port scans."""


async def _operates_nothing(kind: str, payload: bytes) -> bytes:
    raise PeerError("this node does not answer operators")


class Server:
    def __init__(
        self,
        transport: Transport,
        listen: str,
        admit: Admit,
        credentials: Credentials,
        *,
        pacing: Pacing | None = None,
        operate: Operate = _operates_nothing,
        serves: frozenset[Role] = frozenset(_TIERS),
    ) -> None:
        """`listen`: host:port; with port 0, `start()` chooses a free one. `serves`: the roles that may join."""
        self.pacing = pacing if pacing is not None else Pacing()
        self._transport = transport
        self._limits = transport.limits
        self._listen = listen
        self._admit = admit
        self._credentials = credentials
        self._operate = operate
        self._serves = serves
        self._sessions: dict[int, tuple[Session, Caller, Joining]] = {}
        self._gateways: dict[str, Address] = {}
        """Addresses of the admitted gateways, by name. Only they may forward a device's request to join."""
        self.informed: set[str] = set()
        """Names of the peers that said goodbye, or answered a goodbye."""
        self._closing: Callable[[Joining], Refusal] | None = None
        self._server: Any = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen, and return the port."""
        operators: frozenset[Role] = frozenset({"operator"})
        allowed = {method.path: self._serves for method in calls.METHODS} | {calls.OPERATE.path: operators}
        rationed = frozenset(method.path for method in (calls.SESSION, calls.PROBE, calls.ENLIST))
        self._checks = CheckEveryCall(self._credentials, allowed, rationed)
        handshake_s, connections = self._limits.handshake_s, Descriptors.now().connections
        options = calls.options(self._limits.silence_s, server=True, handshake_s=handshake_s, connections=connections)
        self._server = call_server((self._checks,), options)
        methods = {
            calls.SESSION: self._session,
            calls.PUSH: self._push,
            calls.PULL: self._pull,
            calls.PROBE: self._probe,
            calls.ENLIST: self._enlist,
            calls.OPERATE: self._operation,
        }
        # The single request of these two is read as a stream, once the caller is known and may make a call.
        streamed = {calls.PROBE: "stream_unary", calls.ENLIST: "stream_unary"}
        handlers = {
            method.name: calls.handler(method._replace(kind=streamed.get(method, method.kind)), does)
            for method, does in methods.items()
        }
        self._server.add_registered_method_handlers(calls.SERVICE, handlers)
        try:
            port = self._credentials.bind(self._server, self._listen)
        except RuntimeError as error:
            raise SettingsError(f"cannot listen on {self._listen}: {error}; is the port taken?") from error
        if not port:
            raise SettingsError(
                f"cannot listen on {self._listen}: is the port taken, or the address another machine's?"
            )
        await self._server.start()
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        return port

    async def _watch(self) -> None:
        """End sessions whose certificate was revoked or has expired, and log the number of unidentified connections."""
        loop = asyncio.get_running_loop()
        counted_at = loop.time()
        while True:
            await asyncio.sleep(self._limits.heartbeat_s)
            if loop.time() - counted_at > _STRANGERS_EVERY_S:
                self._note_strangers(loop.time() - counted_at)
                counted_at = loop.time()
            for session, who, _ in list(self._sessions.values()):
                try:
                    self._credentials.recheck(who)
                except IdentityError as error:
                    session.end(str(error))

    def _note_strangers(self, seconds: float) -> None:
        """Log the number of connections that were opened and never identified, in one line a minute."""
        opened, identified = self._credentials.take_handshakes(), self._checks.take_connections()
        if opened - identified > _FEW_STRANGERS:
            log.warning(
                "%d of the %d connections to %s in the last %.0f s made no call with a valid certificate; each was "
                "closed within %.0f s. If this goes on, limit them in the firewall (docs/security.md)",
                opened - identified,
                opened,
                self._listen,
                seconds,
                self._limits.handshake_s,
            )

    async def goodbye(self, tell: Callable[[Joining], Refusal]) -> None:
        """Say goodbye to every peer, and refuse to admit any more; `tell` returns the message for each peer."""
        self._closing = tell
        answers = [(session, tell(stated)) for session, _, stated in self._sessions.values()]
        await asyncio.gather(*(session.goodbye(refusal.reason, joining.pack(refusal)) for session, refusal in answers))

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        for session, *_ in list(self._sessions.values()):
            session.end("this node closes")
        await self._server.stop(1.0)

    # Calls -----------------------------------------------------------------------------------------------------------

    async def _session(self, _: Any, context: Any) -> None:
        try:
            async with asyncio.timeout(self._limits.join_s):
                frame = await context.read()
        except TimeoutError:
            frame = grpc.aio.EOF
        if frame is grpc.aio.EOF or frame.WhichOneof("content") != "hello":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a session begins with Hello")
        stated, joined, admission = await self._join(frame.hello, caller())
        number = secrets.randbits(63) + 1
        joined.session = number
        joined.heartbeat_s = self._limits.heartbeat_s
        await context.write(wire.Frame(joined=joined))
        if admission is None or stated is None:
            return
        peer = Address(_TIERS[stated.role], admission.number)
        session = Session(self._transport.endpoint, peer, number, self._limits.heartbeat_s, self.pacing)
        session.receiving.incarnation = stated.incarnation
        self._sessions[number] = (session, caller(), stated)
        self.informed.discard(stated.name)
        log.info("%s %s joined as %s from %s", stated.role, stated.name, peer, context.peer())
        self._transport.opened(session)
        why = "the connection broke"
        try:
            why = await session.run(context.read, context.write)
        finally:
            del self._sessions[number]
            if session.peer_knows:
                self.informed.add(stated.name)
            log.info("%s %s (%s) left: %s", stated.role, stated.name, peer, why)
            self._transport.closed(session, why)

    async def _enlist(self, _: Any, context: Any) -> Any:
        hello = await self._request(context)
        _, joined, _ = await self._join(hello, caller())
        return joined

    async def _request(self, context: Any) -> Any:
        """Return the single request of a call that is read as a stream."""
        try:
            async with asyncio.timeout(self._limits.join_s):
                request = await context.read()
        except TimeoutError:
            request = grpc.aio.EOF
        if request is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a call without a request")
        return request

    async def _join(self, hello: Any, who: Caller) -> tuple[Joining | None, Any, Admission | None]:
        """Return the statement of a peer that wants to join, the answer to send, and the admission if there is one."""
        version = joining.agreed_version(hello.lowest_version, hello.highest_version)
        stated: Joining | None = None
        answer: Admission | Refusal
        if not version:
            answer = joining.no_common_version(hello.lowest_version, hello.highest_version, hello.package)
        else:
            try:
                stated = joining.stated(hello)
                answer = self._may_say(stated, who) or await self._admitted(stated, joining.probe_s(hello))
            except PeerError as error:
                answer = Refusal("refused", str(error))
            except Exception as error:
                log.exception("admitting %s failed", stated)
                answer = Refusal("not_yet", f"internal error of this server: {type(error).__name__}")
        if version == 2 and isinstance(answer, Admission):
            answer = admission_for_2(answer)
        if isinstance(answer, Refusal):
            name = "a peer" if stated is None else f"{stated.role} {stated.name}"
            log.warning("refused %s from %s: %s", name, who.address, answer.reason)
            return stated, wire.Joined(version=version, package=PACKAGE, refusal=joining.pack(answer)), None
        assert stated is not None
        if stated.role == "gateway":
            self._gateways[stated.name] = Address(GATEWAY_TIER, answer.number)
        return stated, wire.Joined(version=version, package=PACKAGE, admission=joining.pack(answer)), answer

    async def _admitted(self, stated: Joining, probe_s: float) -> Admission | Refusal:
        answer = None if self._closing is not None else await self._admit(stated, probe_s)
        if answer is None or self._closing is not None:  # a peer admitted during the goodbye would not receive it
            assert self._closing is not None
            self.informed.add(stated.name)
            return self._closing(stated)
        if isinstance(answer, Admission):
            peer = Address(_TIERS[stated.role], answer.number)
            wait = self._transport.endpoint.conduct.pause_left(peer)
            if wait > 0.0:
                return Refusal("not_yet", f"it has sent what no correct node sends; try again in {wait:.0f} s")
        return answer

    def _may_say(self, stated: Joining, who: Caller) -> Refusal | None:
        """Refuse a name that is not in the caller's certificate; only a gateway may join on behalf of a device."""
        if stated.via is None:
            if stated.role not in self._serves:
                joiners = " and ".join(sorted(f"{role}s" for role in self._serves))
                return Refusal("refused", f"a {stated.role} cannot join here; this node serves {joiners}")
            if who.has(stated.role, stated.name):
                return None
            return Refusal(
                "refused",
                f"{stated.role}/{stated.name[:80]} is not among the names of its certificate: {who.names()}; "
                "use one of these, or issue a certificate with that name",
            )
        if stated.role != "device" or not who.has("gateway"):
            return Refusal("refused", f"only a gateway may join on behalf of a device; this is {who.names()}")
        names = [name for name, address in self._gateways.items() if address == stated.via]
        if not any(who.has("gateway", name) for name in names):
            return Refusal("not_yet", f"gateway {stated.via} must join before its devices can")
        return None

    async def _push(self, _: Any, context: Any) -> Any:
        session, into, turn = None, None, AsyncExitStack()
        try:
            while True:
                async with asyncio.timeout(self._limits.stall_s):
                    chunk = await context.read()
                if chunk is grpc.aio.EOF:
                    break
                if session is None or into is None:
                    session = self._session_of(chunk.session)
                    into = self._expected(session, chunk)
                    await turn.enter_async_context(session.moving)
                await session.pacing.up.take(len(chunk.data), session.peer)
                session.received(into, len(chunk.data))
                await into.write(chunk.data)
            if session is None or into is None:
                raise PeerError("a push without a chunk")
            await into.flush()
            if into.part.whole:
                held = await session.receiving.finish(into)
                into = None
                return held
            return wire.Held(transfer=into.transfer, bytes=into.part.held)
        except TimeoutError:
            return await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no progress")
        except (AsyncHflError, OSError) as error:
            log.warning("refused a push by %s: %s", session.peer if session else context.peer(), error)
            return await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        finally:
            if session is not None and into is not None:
                session.receiving.drop(into)
            await turn.aclose()

    async def _pull(self, wanted: Any, context: Any) -> AsyncIterator[Any]:
        try:
            session = self._session_of(wanted.session)
            out = session.sending.open.get(wanted.transfer)
            if out is None or wanted.offset > out.length:
                raise PeerError(f"transfer {wanted.transfer} is not offered from byte {wanted.offset} on")
        except AsyncHflError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            return
        out.begin(wanted.offset, session.sending.window)
        moving = out.window
        try:
            # A second pull of the same transfer replaces the first.
            while out.sent < out.length and wanted.transfer in session.sending.open and out.window is moving:
                data = await out.next_chunk(self._limits.stall_s, session.pacing.down.most_at_once)
                await session.pacing.down.take(len(data), session.peer)
                chunk = wire.Chunk(offset=out.sent, data=data)
                session.sending.sent(out, len(data))  # before the write: the acknowledgement may be faster
                yield chunk
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no progress")

    async def _probe(self, _: Any, context: Any) -> Any:
        return wire.Held(bytes=len((await self._request(context)).data))

    async def _operation(self, operation: Any, context: Any) -> AsyncIterator[Any]:
        if not joining.agreed_version(operation.lowest_version, operation.highest_version):
            refusal = joining.no_common_version(operation.lowest_version, operation.highest_version, "")
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal.reason)
        try:
            answer = await self._operate(operation.kind, operation.payload)
        except AsyncHflError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            return
        for start in range(0, max(len(answer), 1), _ANSWER_CHUNK):
            yield wire.Chunk(offset=start, data=answer[start : start + _ANSWER_CHUNK])

    def _session_of(self, number: int) -> Session:
        session, _, stated = self._sessions.get(number, (None, None, None))
        if session is None or stated is None:
            raise PeerError("no such session: join first")
        if not caller().has(stated.role, stated.name):
            raise IdentityError("this session belongs to another peer")
        return session

    def _expected(self, session: Session, chunk: Any) -> Incoming:
        into = session.receiving.open.get(chunk.transfer)
        if into is None or into.part.arrived != chunk.offset:
            raise PeerError(f"transfer {chunk.transfer} is not expected from byte {chunk.offset} on")
        return into
