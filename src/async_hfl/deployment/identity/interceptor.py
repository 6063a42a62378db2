"""Authorisation of every call, by the role in the caller's certificate, before it reaches its handler.

grpc.aio gives an interceptor neither the caller's certificate nor its address. So the interceptor wraps the handler,
and checks there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import grpc

from async_hfl.core.errors import IdentityError
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.identity.names import Caller
from async_hfl.deployment.transport.admission import Role
from async_hfl.deployment.transport.conduct import Allowance

log = logging.getLogger("async_hfl.identity")
_caller: ContextVar[Caller] = ContextVar("caller")
_CONNECTIONS: Mapping[Role, int] = {"device": 8, "gateway": 64, "operator": 8}
"""Connections at a time for each name in a certificate. A device needs two: its session, and a request to join."""
_CALLS_PER_S, _CALLS_AT_ONCE = 2.0, 20.0
"""Sessions, probes and requests to join of each name in a device's certificate. It makes four of them at its start."""
_REFUSED_AFTER_S = 0.5
"""A caller hears of a refusal after this time: whoever repeats refused calls at once would keep the server busy."""


def caller() -> Caller:
    """Return the caller of the running handler."""
    return _caller.get()


class CheckEveryCall(grpc.aio.ServerInterceptor):  # type: ignore[misc] # grpc has no types
    def __init__(
        self, credentials: Credentials, allowed: Mapping[str, frozenset[Role]], rationed: frozenset[str]
    ) -> None:
        """`allowed`: the roles that may call each method, by its full name. Other methods are refused. `rationed`: the
        methods that a device may not call all the time: each join is forwarded to the cloud."""
        self._credentials = credentials
        self._allowed = allowed
        self._rationed = rationed
        self._calls: dict[int, Allowance] = {}
        """By the serial number of a device's certificate."""
        self._open: dict[int, Counter[str]] = {}
        """Number of open calls by certificate and connection."""
        self._connections = 0

    def take_connections(self) -> int:
        """Return the number of connections with a permitted call since the last call of this function."""
        count, self._connections = self._connections, 0
        return count

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        inner = await continuation(details)
        if inner is None:
            return None
        method: str = details.method
        streams = (inner.request_streaming, inner.response_streaming)
        kind = "_".join("stream" if streaming else "unary" for streaming in streams)
        behaviour = getattr(inner, kind)

        async def answered(request: Any, context: Any) -> Any:
            with await self._check(method, context):
                return await behaviour(request, context)

        async def streamed(request: Any, context: Any) -> AsyncIterator[Any]:
            with await self._check(method, context):
                async for message in behaviour(request, context):
                    yield message

        # The handler of a session (stream_stream) is a coroutine that reads and writes its streams itself.
        wrapped = streamed if kind == "unary_stream" else answered
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(wrapped, inner.request_deserializer, inner.response_serializer)

    async def _check(self, method: str, context: Any) -> AbstractContextManager[None]:
        """Return a context that counts the call as open. Aborts the call if the caller must not make it."""
        status = grpc.StatusCode.PERMISSION_DENIED
        try:
            found = self._credentials.caller(context)
            roles = self._allowed.get(method, frozenset())
            if not any(found.has(role) for role in roles):
                raise IdentityError(f"{found.names()} may not call {method.rpartition('/')[2]}")
            status = grpc.StatusCode.RESOURCE_EXHAUSTED
            self._check_connections(found)
            if method in self._rationed:
                self._check_calls(found)
        except IdentityError as error:
            log.warning("refused a call from %s: %s", context.peer(), error)
            await asyncio.sleep(_REFUSED_AFTER_S)
            await context.abort(status, str(error))
        _caller.set(found)
        return self._counted(found)

    def _check_connections(self, caller: Caller) -> None:
        """Raise IdentityError if one certificate has too many connections: each costs memory and a descriptor."""
        if caller.identities is None:
            return
        most = sum(_CONNECTIONS.get(one.role, 1) for one in caller.identities)
        mine: Mapping[str, int] = self._open.get(caller.serial, {})
        if caller.address not in mine and len(mine) >= most:
            raise IdentityError(f"{caller.names()} has {len(mine)} connections to this node already; at most {most}")

    def _check_calls(self, caller: Caller) -> None:
        """Raise IdentityError if a device makes too many calls, before its request is read."""
        if caller.identities is None or not caller.has("device"):
            return
        names, now = len(caller.identities), asyncio.get_running_loop().time()
        fresh = Allowance(_CALLS_PER_S * names, _CALLS_AT_ONCE * names, now)
        wait = self._calls.setdefault(caller.serial, fresh).refused(now)
        if wait > 0.0:
            raise IdentityError(f"{caller.names()} makes too many calls; it may make one in {wait:.1f} s")

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        mine = self._open.setdefault(caller.serial, Counter())
        self._connections += caller.address not in mine
        mine[caller.address] += 1
        try:
            yield
        finally:
            mine[caller.address] -= 1
            if not mine[caller.address]:
                del mine[caller.address]
            if not mine and self._open.get(caller.serial) is mine:
                del self._open[caller.serial]
