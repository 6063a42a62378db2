"""Bytes that no correct client sends to a port with TLS and HTTP/2: before the handshake, and as frames after it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from async_hfl.deployment.identity import files

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
_FRAMES_A_CONNECTION = 10
_ANSWER_S = 1.0
_CALL = (
    (b":method", b"POST"),
    (b":scheme", b"https"),
    (b":path", b"/async_hfl.wire.Link/Probe"),
    (b":authority", b"gateway"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


def tls(folder: Path) -> ssl.SSLContext:
    """Return the TLS of a peer with the certificate in this folder, for HTTP/2."""
    context = ssl.create_default_context(cafile=str(folder / files.CA_CERTIFICATE))
    context.check_hostname = False
    context.load_cert_chain(folder / files.CERTIFICATE, folder / files.KEY)
    context.set_alpn_protocols(["h2"])
    return context


def client_hello() -> bytes:
    """Return the first bytes of a correct TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def raw(random: np.random.Generator, hello: bytes) -> bytes:
    """Return bytes for a port that expects TLS; `hello`: of a correct client."""
    match random.integers(6):
        case 0:
            return random.bytes(int(random.integers(1, 2000)))
        case 1:
            return PREFACE + random.bytes(int(random.integers(200)))
        case 2:  # a record that announces more than it has
            return struct.pack(
                ">BHH", int(random.integers(20, 25)), 0x0303, int(random.integers(2**16))
            ) + random.bytes(int(random.integers(300)))
        case 3:
            return hello[: int(random.integers(1, len(hello)))]
        case 4:
            return b"GET /" + random.bytes(20).hex().encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    data = bytearray(hello)
    for _ in range(int(random.integers(1, 8))):
        data[int(random.integers(len(data)))] = int(random.integers(256))
    return bytes(data)


def frame(random: np.random.Generator) -> bytes:
    """Return an HTTP/2 frame with something wrong: kind, flags, stream, length, order or content."""
    kind, flags = int(random.integers(12)), int(random.integers(256))
    stream = int(random.choice([0, 1, 1, 2, 3, 2**31 - 1]))
    body = random.bytes(int(random.integers(64)))
    match random.integers(6):
        case 0:  # a call with a broken message
            sent = struct.pack(">BI", int(random.integers(3)), int(random.integers(2**32))) + body
            return _frame(1, 4, stream, _headers(random)) + _frame(0, flags & 1, stream, sent)
        case 1:  # a window that overflows, or does not grow
            return _frame(8, 0, stream, struct.pack(">I", int(random.choice([0, 2**31 - 1, 2**32 - 1]))))
        case 2:  # settings out of range
            return _frame(4, 0, 0, struct.pack(">HI", int(random.integers(8)), int(random.integers(2**32))))
        case 3:  # headers that never end, and are reset
            return (
                _frame(1, 0, stream | 1, _headers(random)) + _frame(9, 0, stream | 1, body) + _frame(3, 0, 1, body[:4])
            )
        case 4:  # another length than it has
            return (
                struct.pack(">I", int(random.integers(2**24)))[1:]
                + bytes([kind, flags])
                + struct.pack(">I", stream)
                + body
            )
    return _frame(kind, flags, stream, body)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def _headers(random: np.random.Generator) -> bytes:
    """Return the headers of a call as HPACK literals, most times with some bytes replaced."""
    data = bytearray()
    for name, value in _CALL:
        data += b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    for _ in range(int(random.integers(3))):
        data[int(random.integers(len(data)))] = int(random.integers(256))
    return bytes(data)


def call_of(path: bytes, stream: int) -> bytes:
    """Return the headers of a call of this method, with nothing wrong but its name."""
    data = bytearray()
    for name, value in ((name, path if name == b":path" else value) for name, value in _CALL):
        data += b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    return _frame(1, 5, stream, bytes(data))


async def send_calls(host: str, port: int, context: ssl.SSLContext, paths: Sequence[bytes]) -> None:
    """Call methods of these names on one connection, and wait for some answer."""
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(PREFACE + _SETTINGS)
        for place, path in enumerate(paths):
            writer.write(call_of(path, 2 * place + 1))
        await writer.drain()
        async with asyncio.timeout(_ANSWER_S):
            await reader.read(2**16)
    finally:
        writer.transport.abort()


async def send_raw(host: str, port: int, data: bytes) -> None:
    """Send bytes on a connection of their own, and close it."""
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(data)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def send_frames(host: str, port: int, context: ssl.SSLContext, random: np.random.Generator) -> int:
    """Send malformed frames on one connection until the server closes it; return their number."""
    sent = 0
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            writer.write(PREFACE + _SETTINGS)
            await writer.drain()
            while sent < _FRAMES_A_CONNECTION and not reader.at_eof():
                writer.write(frame(random))
                sent += 1
                await writer.drain()
                async with asyncio.timeout(_ANSWER_S):  # an answer, or the end of the connection
                    await reader.read(2**16)
        finally:
            writer.transport.abort()
    return sent
