"""Plain gRPC: chunks are sent from memory to memory, without sessions, spools, digests or messages.

Used by `transport.py --bare` as the baseline for the cost of the transport.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Any

import grpc

from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.transport import calls

_SERVICE = "bare"
_CHUNK = 256 * 1024
_OPTIONS = calls.options(120.0, server=False)


def chunks(model: bytes) -> AsyncIterator[bytes]:
    async def one_by_one() -> AsyncIterator[bytes]:
        for start in range(0, len(model), _CHUNK):
            yield model[start : start + _CHUNK]

    return one_by_one()


async def serve(pipe: Connection, credentials: Credentials) -> None:
    model = b""

    async def up(requests: Any, context: Any) -> bytes:
        return b"".join([chunk async for chunk in requests])[:8]

    async def down(request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for chunk in chunks(model):
            yield chunk

    server = grpc.aio.server(options=calls.options(120.0, server=True))
    handlers = {"Up": grpc.stream_unary_rpc_method_handler(up), "Down": grpc.unary_stream_rpc_method_handler(down)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    port = credentials.bind(server, "127.0.0.1:0")
    await server.start()
    pipe.send(port)
    while (order := await asyncio.to_thread(pipe.recv)) is not None:
        if order == "memory":
            pipe.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time()))
        else:
            model = bytes(int(order * 1e6))
            pipe.send("ready")
    await server.stop(0.5)


async def dial(pipe: Connection, clients: int, port: int, credentials: Credentials) -> None:
    channels = [credentials.channel(f"127.0.0.1:{port}", "gateway", _OPTIONS) for _ in range(clients)]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    pipe.send("ready")
    while (order := await asyncio.to_thread(pipe.recv)) is not None:
        megabytes, rounds = order
        model = bytes(int(megabytes * 1e6))

        async def one(channel: Any, model: bytes = model, rounds: int = rounds) -> list[float]:
            took = []
            for _ in range(rounds):
                begun = time.monotonic()
                await channel.stream_unary(f"/{_SERVICE}/Up")(chunks(model))
                b"".join([chunk async for chunk in channel.unary_stream(f"/{_SERVICE}/Down")(b"")])
                took.append(time.monotonic() - begun)
            return took

        found = await asyncio.gather(*(one(channel) for channel in channels))
        pipe.send([seconds for some in found for seconds in some])
    for channel in channels:
        await channel.close()
