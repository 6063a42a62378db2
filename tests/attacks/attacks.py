"""Attacks by one device with a valid certificate. Each is a function that sends what it has to, and returns.

`ATTACKS` lists them with their names. The tests carry them out once and check what is left; `benchmarks/attacks.py`
repeats them for some seconds and prints what they cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from harness import Attacker, Federation

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.weights import frozen
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport import calls, joining
from async_hfl.deployment.transport.admission import Joining
from async_hfl.encoding import packet_codec
from async_hfl.nodes.reliability.delivery import Packet, Receipt

Act = Callable[[Federation, Attacker], Awaitable[None]]
GIB = 2**30
PLAIN = ("transfer.encoding=float32", "transfer.up=float32", "transfer.down=float32")
"""Settings with which an attack can write the numbers that it wants."""


@dataclass(frozen=True)
class Attack:
    name: str
    act: Act
    outcome: str
    """What is expected to become of it, in a few words."""
    own_devices: bool = True
    """It joins as a device; otherwise `act` opens its own connections."""
    acknowledges: bool = True
    most_sent: int = 2**30
    """Bytes that the gateway takes from it in a few strikes."""


def update(job: JobId, weights: Any, **changes: Any) -> m.Update:
    fields: dict[str, Any] = {"samples": 10, "steps": 1, "loss": 0.5, "squared_loss": 0.25, "gradient": None}
    return m.Update(job, weights, **{**fields, "download_s": 0.1, "training_s": 0.1, **changes})


async def own_job(honest: Federation, evil: Attacker) -> m.Train:
    """Wait for the next job of the attacker's own."""
    seen = len(evil.got(m.Train))
    last = evil.got(m.Train)[-1] if seen else None
    if last is not None and last.job not in evil.answered:
        evil.answered.add(last.job)
        return last
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5.0):
            while len(evil.got(m.Train)) == seen:
                await asyncio.sleep(0.02)
    if len(evil.got(m.Train)) == seen:
        raise SetAside
    train = evil.got(m.Train)[-1]
    evil.answered.add(train.job)
    return train


class SetAside(Exception):
    """The attacker is given no more jobs."""


def model(evil: Attacker) -> Any:
    size = evil.got(m.Train)[-1].weights.size if evil.got(m.Train) else evil.model_size
    return frozen(np.zeros(size, np.float32))


def answers(**changes: Any) -> Act:
    """Answer a job of its own with an update in which something is wrong."""

    async def act(honest: Federation, evil: Attacker) -> None:
        train = await own_job(honest, evil)
        weights = np.asarray(train.weights).copy()
        facts = dict(changes)
        if (huge := facts.pop("huge", None)) is not None:
            weights[0] += huge
        if (scaled := facts.pop("norm", None)) is not None:
            weights += np.float32(scaled / np.sqrt(weights.size))
        if (extra := facts.pop("longer", None)) is not None:
            weights = np.zeros(weights.size + extra, np.float32)
        if (length := facts.pop("gradient_length", None)) is not None:
            facts["gradient"] = frozen(np.ones(weights.size if length == 0 else length, np.float32))
        evil.send(update(train.job, frozen(weights), warmup=train.warmup, **facts))

    return act


def guesses(message: Callable[[Attacker, JobId], m.Message]) -> Act:
    """Send messages about the jobs that others may have."""

    async def act(honest: Federation, evil: Attacker) -> None:
        train = evil.got(m.Train)[-1] if evil.got(m.Train) else await own_job(honest, evil)
        for number in range(train.job.number + 1, train.job.number + 41):
            evil.send(message(evil, JobId(train.job.gateway, train.job.incarnation, number)))

    return act


async def drops(honest: Federation, evil: Attacker) -> None:
    train = await own_job(honest, evil)
    evil.send(m.JobDropped(train.job, "device_lost", 2**62))


async def silence(honest: Federation, evil: Attacker) -> None:
    evil.send(m.Alive())


def floods(message: Callable[[Attacker], m.Message], count: int = 300) -> Act:
    async def act(honest: Federation, evil: Attacker) -> None:
        for _ in range(count):
            if not evil.connected:
                raise SetAside
            evil.send(message(evil))
        await asyncio.sleep(0)

    return act


async def invented_lists(honest: Federation, evil: Attacker) -> None:
    """Updates of other gateways and of incarnations that never were, as many as a list may have."""
    for _ in range(5):
        if not evil.connected:
            raise SetAside
        evil.invented += m.MOST_UNSETTLED
        jobs = (JobId(1, evil.invented % 7 + 2, evil.invented + number) for number in range(m.MOST_UNSETTLED))
        evil.send(m.Unsettled(None, tuple(jobs)))
    await asyncio.sleep(0)


async def long_list(honest: Federation, evil: Attacker) -> None:
    if not evil.connected:
        raise SetAside
    evil.send(m.Unsettled(None, tuple(JobId(1, 1, number) for number in range(200_000))))


async def wrong_kinds(honest: Federation, evil: Attacker) -> None:
    for message in (
        m.Hello(2),
        m.Upload(UploadId(0, 1, 1), model(evil), 1, 1, 1, False, 1, ()),
        m.Finish(1),
        m.Fenced(1),
        m.Refused("stop"),
        m.LeasesRevoked(1, ()),
    ):
        evil.send(message)


async def other_incarnations(honest: Federation, evil: Attacker) -> None:
    for number in range(20):
        evil.send(m.Alive(), incarnation=1000 + number)


async def gaps(honest: Federation, evil: Attacker) -> None:
    for _ in range(200):
        evil.number += 2
        evil.send(m.Alive(), number=evil.number)
    await asyncio.sleep(0)


# Below the messages --------------------------------------------------------------------------------------------------


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


def encoded(content: Packet) -> bytes:
    return b"".join(packet_codec.encode(content))


NAN = float("nan")
ATTACKS = (
    Attack("updates of guessed jobs", guesses(lambda evil, job: update(job, model(evil))), "refused, set aside"),
    Attack(
        "guessed jobs are dropped", guesses(lambda _, job: m.JobDropped(job, "device_lost", 1)), "refused, set aside"
    ),
    Attack("packets of other incarnations", other_incarnations, "refused, set aside"),
    Attack("an update of norm 1e6", answers(norm=1e6), "refused, set aside"),
    Attack("one weight of 3.4e38", answers(huge=3.4e38), "refused, set aside"),
    Attack("weights of NaN", answers(huge=NAN), "refused, set aside"),
    Attack("a loss of 1e300", answers(loss=1e300), "refused, set aside"),
    Attack("2^63 - 1 samples", answers(samples=2**63 - 1), "refused"),
    Attack("1e10 samples", answers(samples=10**10), "refused"),
    Attack("a download of infinite duration", answers(download_s=float("inf")), "refused"),
    Attack("a model that is too long", answers(longer=1), "refused"),
    Attack("a model of 8 MB, where others have 8 kB", answers(longer=2_000_000), "refused", most_sent=2**20),
    Attack("a gradient of the wrong length", answers(gradient_length=17), "refused"),
    Attack("a projected gradient, where none are", answers(gradient_length=4, compressed=True), "refused"),
    Attack("lists of invented updates", invented_lists, "refused, set aside"),
    Attack("a list of 200,000 updates", long_list, "refused", most_sent=2**20),
    Attack("messages of a cloud and of a gateway", wrong_kinds, "refused, set aside"),
    Attack("jobs are accepted and never answered", silence, "its bandwidth is freed"),
    Attack("every job is dropped", drops, "set aside"),
    Attack("a flood of signs of life", floods(lambda _: m.Alive()), "slowed down"),
    Attack("a flood of evaluations", floods(lambda _: m.EvaluateResult(1, 1e308, 0.0)), "slowed down"),
    Attack("receipts for nothing", receipts, "slowed down"),
    Attack("packets of another run", foreign_run, "ignored"),
    Attack("packet numbers with gaps", gaps, "bounded"),
    Attack("nothing is acknowledged", silence, "its bandwidth is freed", acknowledges=False),
    Attack("offers of 1 GiB", offers(GIB, 20), "refused, set aside"),
    Attack("offers of which nothing comes", offers(70_000, 50), "bounded"),
    Attack("transfers that break off", pushes(70_000, 60_000, right=False), "bounded"),
    Attack("garbage of the right digest", parallel_pushes, "refused, set aside"),
    Attack("a transfer of 5 bytes a second", drip, "its bandwidth is freed"),
    Attack("garbage in a session", garbage, "refused, set aside"),
    Attack("joining under another name", impersonation, "refused", own_devices=False),
    Attack("joining with impossible numbers", impossible_joins, "refused", own_devices=False),
    Attack("joining over and over", reconnects, "served", own_devices=False),
    Attack("40 sessions of one certificate", many_sessions, "8 are served", own_devices=False),
    Attack("a message of 32 MB", huge_calls(grpc.Compression.NoCompression), "refused", own_devices=False),
    Attack("a message of 32 MB as 32 kB", huge_calls(grpc.Compression.Gzip), "refused", own_devices=False),
    Attack("400 idle connections", idle_connections, "closed", own_devices=False),
    Attack("random bytes at the port", raw_bytes, "closed", own_devices=False),
)
BY_NAME = {attack.name: attack for attack in ATTACKS}


async def carry_out(attack: Attack, honest: Federation, evil: Attacker) -> bool:
    """Carry out an attack once; return False if the attacker is set aside already."""
    try:
        if attack.own_devices and not evil.connected:
            raise SetAside
        await attack.act(honest, evil)
    except SetAside:
        return False
    return True
