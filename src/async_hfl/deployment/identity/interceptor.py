"""Authorisation of every call, by the role in the caller's certificate, before it reaches its handler.

grpc.aio gives an interceptor neither the caller's certificate nor its address. So the interceptor wraps the handler,
and checks there.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Any

import grpc

from async_hfl.core.errors import IdentityError
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.identity.names import Caller
from async_hfl.deployment.transport.admission import Role

log = logging.getLogger("async_hfl.identity")
_caller: ContextVar[Caller] = ContextVar("caller")


def caller() -> Caller:
    """Return the caller of the running handler."""
    return _caller.get()


class CheckEveryCall(grpc.aio.ServerInterceptor):  # type: ignore[misc] # grpc has no types
    def __init__(self, credentials: Credentials, allowed: Mapping[str, frozenset[Role]]) -> None:
        """`allowed`: the roles that may call each method, by its full name. Other methods are refused."""
        self._credentials = credentials
        self._allowed = allowed

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        inner = await continuation(details)
        if inner is None:
            return None
        method: str = details.method
        streams = (inner.request_streaming, inner.response_streaming)
        kind = "_".join("stream" if streaming else "unary" for streaming in streams)
        behaviour = getattr(inner, kind)

        async def answered(request: Any, context: Any) -> Any:
            await self._check(method, context)
            return await behaviour(request, context)

        async def streamed(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._check(method, context)
            async for message in behaviour(request, context):
                yield message

        # The handler of a session (stream_stream) is a coroutine that reads and writes its streams itself.
        wrapped = streamed if kind == "unary_stream" else answered
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(wrapped, inner.request_deserializer, inner.response_serializer)

    async def _check(self, method: str, context: Any) -> None:
        try:
            found = self._credentials.caller(context)
            roles = self._allowed.get(method, frozenset())
            if not any(found.has(role) for role in roles):
                raise IdentityError(f"{found.names()} may not call {method.rpartition('/')[2]}")
        except IdentityError as error:
            log.warning("refused a call from %s: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            return
        _caller.set(found)
