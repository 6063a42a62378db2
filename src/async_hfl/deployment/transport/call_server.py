"""The gRPC server of a node, which outlives calls of methods that it does not have.

grpc.aio decodes the name of a method that is not registered, in the loop that accepts calls. A name that is not UTF-8
ends that loop, and with it the server: one frame of one peer would be enough. So all methods are registered here, and
calls of others are cancelled, whatever their names.

This overrides two methods that grpcio does not document. With a release that does not have them, the server is an
ordinary one, and a warning says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import grpc
from grpc._cython import cygrpc

log = logging.getLogger(__name__)
_KNOWN = "1.85.1"
"""The release of grpcio with which this was tried."""
_OVERRIDDEN = ("_make_request_call_future", "_request_call")


def call_server(interceptors: Sequence[Any], options: Sequence[tuple[str, int]]) -> Any:
    """Return a server for handlers that are added by `add_registered_method_handlers`."""
    if all(hasattr(cygrpc.AioServer, name) for name in _OVERRIDDEN):
        return _CallServer(interceptors, options)
    log.warning(
        "grpcio %s differs from %s: one malformed call of a peer can stop this node from accepting others; "
        "install grpcio==%s",
        grpc.__version__,
        _KNOWN,
        _KNOWN,
    )
    return grpc.aio.server(interceptors=tuple(interceptors), options=tuple(options))


class _CallServer(grpc.aio._server.Server):  # type: ignore[misc] # grpc has no types
    """A server of grpc.aio that cancels calls of other methods."""

    def __init__(self, interceptors: Sequence[Any], options: Sequence[tuple[str, int]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = _Calls(self._loop, None, (), tuple(interceptors), tuple(options), None)


class _Calls(cygrpc.AioServer):  # type: ignore[misc]
    def _make_request_call_future(self, method: bytes | None) -> Any:
        """Return the next call of a registered method. None stands for all others, of which none is ever returned."""
        if method is not None:
            return super()._make_request_call_future(method)
        return asyncio.get_running_loop().create_task(self._refuse_others())

    async def _refuse_others(self) -> None:
        while True:
            await self._request_call()  # a call that nobody keeps is cancelled
