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
_FRAME_BYTES = 2 * 2**20
"""Size of the largest message on the wire. Chunks and inline packets are far smaller; admissions must be as well."""
_UNCOMPRESSED_ONLY = 1
"""A bit set of compression algorithms that contains only identity."""


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


def options(
    keepalive_s: float, *, server: bool, handshake_s: float = 10.0, connections: int = 2**31 - 1
) -> Sequence[tuple[str, int]]:
    """Return the options of a channel or server.

    Keepalive detects dead connections. Sessions have faster heartbeats of their own, so its period may be long (it is
    also TCP's timeout for an acknowledgement). A message is refused as soon as its header announces too many bytes, and
    a compressed one in any case: a few bytes could become gigabytes. A server holds at most `connections`, and closes
    those that have no TLS handshake or no call for `handshake_s`."""
    milliseconds = int(1000 * keepalive_s)
    common = [
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", 2 * milliseconds),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_receive_message_length", _FRAME_BYTES),
        ("grpc.max_send_message_length", _FRAME_BYTES),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.absolute_max_metadata_size", 32 * 1024),
        ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED_ONLY),
    ]
    if server:
        return [
            *common,
            ("grpc.max_concurrent_streams", 32),  # on one connection: a session and its transfers
            ("grpc.max_allowed_incoming_connections", connections),
            ("grpc.server_handshake_timeout_ms", int(1000 * handshake_s)),
            ("grpc.max_connection_idle_ms", int(1000 * handshake_s)),
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
