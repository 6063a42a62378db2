"""Attacks below the messages: frames, transfers, calls, connections and bytes that no correct device would send."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
from typing import Any

import grpc
import malformed
import numpy as np
from attack import Act, SetAside
from attacker import Attacker
from harness import Federation

from async_hfl.core.errors import PeerError
from async_hfl.core.protocol import messages as m
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport import calls, joining
from async_hfl.deployment.transport.admission import Joining
from async_hfl.nodes.reliability.delivery import Packet, Receipt


def put(evil: Attacker, frame: Any) -> Any:
    """Put a frame into the session's stream, and return the session."""
    session = evil.transport._sessions.get(evil.gateway)
    if session is None:
        raise SetAside
    session._put(frame)
    return session


def offer(evil: Attacker, length: int, **changes: Any) -> Any:
    evil.offers += 1
    fields = {
        "transfer": 10_000 + evil.offers,
        "length": length,
        "sha256": hashlib.sha256(str(evil.offers).encode()).digest(),
        "run": evil.run,
        "incarnation": evil.incarnation,
        "number": 10_000 + evil.offers,
    }
    return wire.Frame(offer=wire.Offer(**{**fields, **changes}))


def offers(length: int, count: int) -> Act:
    """Offer packets, and send nothing of them."""

    async def act(honest: Federation, evil: Attacker) -> None:
        for _ in range(count):
            put(evil, offer(evil, length))
        await asyncio.sleep(0)

    return act


async def garbage(honest: Federation, evil: Attacker) -> None:
    for size in (0, 1, 24, 200, 20_000):
        put(evil, wire.Frame(packet=os.urandom(size)))


def pushes(length: int, sent: int, *, right: bool) -> Act:
    """Push a packet of random bytes. `right`: the digest is that of the bytes; otherwise the push breaks off."""

    async def act(honest: Federation, evil: Attacker) -> None:
        data = os.urandom(length)
        frame = offer(evil, length, **({"sha256": hashlib.sha256(data).digest()} if right else {}))
        session = put(evil, frame)
        await asyncio.sleep(0.05)
        async with honest.channel(evil.name) as channel:
            call = calls.call(channel, calls.PUSH)()
            transfer = frame.offer.transfer
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for start in range(0, sent, 2**17):
                    part = data[start : min(start + 2**17, sent)]
                    chunk = wire.Chunk(session=session.number, transfer=transfer, offset=start, data=part)
                    await call.write(chunk)
                if right:
                    await call.done_writing()
                    await call
            call.cancel()

    return act


async def parallel_pushes(honest: Federation, evil: Attacker) -> None:
    await asyncio.gather(*(pushes(20_000, 20_000, right=True)(honest, evil) for _ in range(8)))


async def drip(honest: Federation, evil: Attacker) -> None:
    """Push single bytes, so that there is always some progress."""
    if evil.dripping is None:
        frame = offer(evil, 20_000)
        session = put(evil, frame)

        async def slowly() -> None:
            async with honest.channel(evil.name) as channel:
                call = calls.call(channel, calls.PUSH)()
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    for start in range(20_000):
                        place = {"session": session.number, "transfer": frame.offer.transfer, "offset": start}
                        await call.write(wire.Chunk(**place, data=b"x"))
                        await asyncio.sleep(0.2)

        evil.dripping = asyncio.get_running_loop().create_task(slowly())
    if not evil.connected:
        raise SetAside
    evil.send(m.Alive())


async def impersonation(honest: Federation, evil: Attacker) -> None:
    """Join under the name of another device, and as a gateway."""
    async with honest.channel(evil.name) as channel:
        for role, name in (("device", "d0"), ("gateway", honest.gateway), ("device", "nobody")):
            stated = Joining(role, name, 5)  # type: ignore[arg-type]
            with contextlib.suppress(PeerError, grpc.aio.AioRpcError):
                answer = await calls.call(channel, calls.ENLIST)(joining.hello(stated, "9", 0.1))
                assert not answer.admission, f"admitted as {role} {name}"


async def impossible_joins(honest: Federation, evil: Attacker) -> None:
    async with honest.channel(evil.name) as channel:
        for changes in ({"samples": 2**63 - 1}, {"samples": -1}, {"compute_s": 1e300}, {"compute_s": float("nan")}):
            stated = Joining("device", evil.name, 5, **changes)  # type: ignore[arg-type]
            answer = await calls.call(channel, calls.ENLIST)(joining.hello(stated, "9", 0.1))
            assert not answer.admission, changes


async def reconnects(honest: Federation, evil: Attacker) -> None:
    """End the session at once, over and over."""
    async with honest.channel(evil.name) as channel:
        for _ in range(10):
            call = calls.call(channel, calls.SESSION)()
            stated = Joining("device", evil.name, evil.incarnation, evil.run, 10, 0.01)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(wire.Frame(hello=joining.hello(stated, "9", 0.1)))
                await call.read()
            call.cancel()


async def many_sessions(honest: Federation, evil: Attacker) -> None:
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(40):
            channel = await opened.enter_async_context(honest.channel(evil.name))
            opened.callback(calls.call(channel, calls.SESSION)().cancel)
        await asyncio.sleep(0.5)


async def idle_connections(honest: Federation, evil: Attacker) -> None:
    host, _, port = honest.cluster.addresses[honest.gateway].rpartition(":")
    with contextlib.ExitStack() as opened:
        for _ in range(400):
            opened.enter_context(socket.create_connection((host, int(port))))
        await asyncio.sleep(1.0)


async def broken_bits(honest: Federation, evil: Attacker) -> None:
    """Transfers that break off after a byte: each leaves a file."""
    for _ in range(20):
        await pushes(20_000, 1, right=False)(honest, evil)


async def heartbeats(honest: Federation, evil: Attacker) -> None:
    for number in range(5_000):
        put(evil, wire.Frame(heartbeat=wire.Heartbeat(number=number + 1)))
    await asyncio.sleep(0)


async def probes(honest: Federation, evil: Attacker) -> None:
    """A hundred probes at a time, each as long as a frame may be."""
    async with honest.channel(evil.name) as channel:
        call = calls.call(channel, calls.PROBE)
        probing = (call(wire.Chunk(data=bytes(2**21 - 100)), timeout=20.0) for _ in range(100))
        await asyncio.gather(*probing, return_exceptions=True)


async def requests_to_join(honest: Federation, evil: Attacker) -> None:
    """Ask to join, each time with another incarnation."""
    async with honest.channel(evil.name) as channel:
        for _ in range(50):
            evil.invented += 1
            stated = Joining("device", evil.name, 10**6 + evil.invented, evil.run, 10, 0.01)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await calls.call(channel, calls.ENLIST)(joining.hello(stated, "9", 0.1), timeout=20.0)


async def malformed_frames(honest: Federation, evil: Attacker) -> None:
    """Malformed HTTP/2, after a TLS handshake with a valid certificate."""
    host, _, port = honest.cluster.addresses[honest.gateway].rpartition(":")
    honest.credentials(evil.name)
    context = malformed.tls(honest.cluster.certificates(evil.name))
    evil.invented += 1
    await malformed.send_frames(host, int(port), context, np.random.default_rng(evil.invented))


async def odd_methods(honest: Federation, evil: Attacker) -> None:
    """Call methods that do not exist, with names that are not UTF-8."""
    host, _, port = honest.cluster.addresses[honest.gateway].rpartition(":")
    honest.credentials(evil.name)
    context = malformed.tls(honest.cluster.certificates(evil.name))
    names = [b"/async_hfl.wire.Link/Pr\xfabe", b"/\xff\xfe", b"/async_hfl.wire.Link/Nothing"]
    with contextlib.suppress(OSError, TimeoutError):
        await malformed.send_calls(host, int(port), context, 5 * names)


async def raw_bytes(honest: Federation, evil: Attacker) -> None:
    """Random bytes, and HTTP/2 without TLS, at the port."""
    host, _, port = honest.cluster.addresses[honest.gateway].rpartition(":")
    for number in range(50):
        data = os.urandom(200) if number % 2 else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(100)
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0) as connection:
            connection.sendall(data)
    await asyncio.sleep(0)


def huge_calls(compression: grpc.Compression) -> Act:
    async def act(honest: Federation, evil: Attacker) -> None:
        async with honest.channel(evil.name) as channel:
            with contextlib.suppress(grpc.aio.AioRpcError):
                call = calls.call(channel, calls.PROBE)
                await call(wire.Chunk(data=bytes(32 * 2**20)), compression=compression)

    return act


async def receipts(honest: Federation, evil: Attacker) -> None:
    """Acknowledge what was never sent."""
    for number in range(300):
        evil.transport.send(evil.gateway, Receipt(evil.run, 1, 2**40 + number))
    await asyncio.sleep(0)


async def foreign_run(honest: Federation, evil: Attacker) -> None:
    for number in range(100):
        evil.transport.send(evil.gateway, Packet(evil.run + 1, evil.incarnation, number + 1, m.Alive()))
    await asyncio.sleep(0)
