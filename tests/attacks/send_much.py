"""A program that sends one message of so many zero bytes to a server, and prints the status of the call.

python send_much.py HOST:PORT CERTIFICATES BYTES COMPRESSION
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc

from async_hfl.deployment.identity.credentials import Certified
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport import calls


async def send(target: str, folder: Path, count: int, compression: grpc.Compression) -> str:
    options = [("grpc.max_send_message_length", -1)]
    async with Certified(folder).channel(target, "gateway", options) as channel:
        try:
            await calls.call(channel, calls.PROBE)(wire.Chunk(data=bytes(count)), compression=compression)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
    return "OK"


target, folder, count, compression = sys.argv[1:]
sys.stdout.write(asyncio.run(send(target, Path(folder), int(count), grpc.Compression(int(compression)))))
