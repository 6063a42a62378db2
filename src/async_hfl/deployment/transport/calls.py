"""The methods of wire.proto for grpc.aio, with their serialisers, connection options and errors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc

from async_hfl.core.errors import PeerError
from async_hfl.deployment.protocol import wire_pb2 as wire

# gRPC logs every failed handshake, but the messages of this package say more. Set the variable to see gRPC's.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
SERVICE = "async_hfl.wire.Link"
_FRAME_BYTES = 4 * 2**20
"""Size of the largest message on the wire. Chunks and inline packets are far smaller; admissions must be as well."""


class LinkError(PeerError):
    """The connection failed or broke."""


def link_error(error: BaseException) -> LinkError | None:
    """Translate an error of grpc.aio for a broken connection; return None for any other error."""
    if isinstance(error, grpc.aio.AioRpcError):
        return LinkError(f"{error.code().name.lower()}: {error.details()}")
    if isinstance(error, (grpc.aio.UsageError, asyncio.InvalidStateError)):
        return LinkError("the stream is over")
    if isinstance(error, TimeoutError):
        return LinkError("no answer in time")
    return None


class Method(NamedTuple):
    name: str
    kind: str
    request: Any
    answer: Any

    @property
    def path(self) -> str:
        return f"/{SERVICE}/{self.name}"


SESSION = Method("Session", "stream_stream", wire.Frame, wire.Frame)
PUSH = Method("Push", "stream_unary", wire.Chunk, wire.Held)
PULL = Method("Pull", "unary_stream", wire.Wanted, wire.Chunk)
PROBE = Method("Probe", "unary_unary", wire.Chunk, wire.Held)
ENLIST = Method("Enlist", "unary_unary", wire.Hello, wire.Joined)
OPERATE = Method("Operate", "unary_stream", wire.Operation, wire.Chunk)
METHODS = (SESSION, PUSH, PULL, PROBE, ENLIST, OPERATE)


def call(channel: Any, method: Method) -> Any:
    """Return the method, bound to a channel."""
    return getattr(channel, method.kind)(
        method.path, request_serializer=method.request.SerializeToString, response_deserializer=method.answer.FromString
    )


def handler(method: Method, behaviour: Any) -> Any:
    make = getattr(grpc, f"{method.kind}_rpc_method_handler")
    return make(
        behaviour, request_deserializer=method.request.FromString, response_serializer=method.answer.SerializeToString
    )


def options(keepalive_s: float, *, server: bool) -> Sequence[tuple[str, int]]:
    """Return the options of a channel or server.

    Keepalive detects dead connections. Sessions have faster heartbeats of their own, so its period may be long (it is
    also TCP's timeout for an acknowledgement)."""
    milliseconds = int(1000 * keepalive_s)
    common = [
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", 2 * milliseconds),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_receive_message_length", _FRAME_BYTES),
        ("grpc.max_send_message_length", _FRAME_BYTES),
        ("grpc.max_metadata_size", 64 * 1024),
    ]
    if server:
        return [
            *common,
            ("grpc.max_concurrent_streams", 256),  # on one connection
            ("grpc.so_reuseport", 0),  # two servers on one port would each get half of the devices
            ("grpc.http2.min_ping_interval_without_data_ms", milliseconds // 2),
            ("grpc.http2.max_ping_strikes", 0),
        ]
    return [
        *common,
        ("grpc.use_local_subchannel_pool", 1),  # nodes in one process must not share connections
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
