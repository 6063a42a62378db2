"""Broken and hostile peers on real sockets: the server stays up, others are served, invalid data is refused."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from two_nodes import GATEWAY, HANG_GUARD_S, QUICK, Numbers, dialling, same, serving, until, update, weights

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD, Address, JobId, UploadId, device_address, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.deployment.identity.authority import Authority
from async_hfl.deployment.identity.credentials import Certified
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.shell.message_validation import validator
from async_hfl.deployment.transport import calls, joining
from async_hfl.deployment.transport.admission import Joining
from async_hfl.deployment.transport.transfers.sending import readable
from async_hfl.encoding import packet_codec
from async_hfl.nodes.reliability.delivery import Packet

DEVICE = device_address(0)
CALLS, HEADERS, RESET = 20, 1, 3


class Rogue:
    """Speaks the protocol by hand."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.stream = calls.call(channel, calls.SESSION)()
        self.session = 0

    async def say(self, frame: Any) -> None:
        await self.stream.write(frame)

    async def hear(self, kind: str) -> Any:
        """The next frame of that kind."""
        async with asyncio.timeout(HANG_GUARD_S):
            while True:
                frame = await self.stream.read()
                assert frame is not grpc.aio.EOF, "the stream ended"
                if frame.WhichOneof("content") == kind:
                    return getattr(frame, kind)

    async def join(self, name: str = "rogue") -> Any:
        await self.say(wire.Frame(hello=joining.hello(Joining("device", name, 5), "9", 0.1)))
        joined = await self.hear("joined")
        self.session = joined.session
        return joined

    async def push(self, *chunks: Any) -> Any:
        call = calls.call(self.channel, calls.PUSH)()
        for chunk in chunks:
            await call.write(chunk)
        await call.done_writing()
        return await call


@asynccontextmanager
async def rogue(port: int) -> AsyncIterator[Rogue]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Rogue(channel)


def offer(data: bytes, transfer: int = 1, **changes: Any) -> Any:
    digest = hashlib.sha256(data).digest()
    fields = {"transfer": transfer, "length": len(data), "sha256": digest, "incarnation": 5, "number": 1}
    return wire.Frame(offer=wire.Offer(**{**fields, **changes}))


async def an_honest_device_is_served(folder: Path, server: Any, port: int) -> None:
    async with dialling(folder / "honest", port, "honest") as device:
        await until(lambda: bool(device.inbox.joined))
        before = len(server.inbox.arrived_)
        device.transport.send(GATEWAY, update(1, 50_000))
        await until(lambda: len(server.inbox.arrived_) == before + 1)
        assert same(server.inbox.contents()[-1], update(1, 50_000))


def test_garbage_is_refused_and_the_session_continues(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), rogue(port) as peer:
            await peer.join()
            good = b"".join(packet_codec.encode(update(9, 100)))
            for bad in (b"x", b"ahp1", good[:-1], good + b"x", good[:40] + b"\xff" + good[41:], bytes(1000)):
                await peer.say(wire.Frame(packet=bad))
            await peer.say(wire.Frame())
            await peer.say(wire.Frame(held=wire.Held(transfer=77, whole=True)))
            await peer.say(wire.Frame(packet=good))
            await until(lambda: bool(server.inbox.arrived_))
            assert same(server.inbox.contents()[0], update(9, 100))
            assert len(server.inbox.arrived_) == 1
            await an_honest_device_is_served(tmp_path, server, port)

    asyncio.run(story())


@pytest.mark.parametrize("path", [b"/async_hfl.wire.Link/Pr\xfabe", b"\xff\xfe", b"/async_hfl.wire.Link/None", b"/"])
def test_calls_of_methods_that_do_not_exist_stop_nothing(tmp_path: Path, path: bytes) -> None:
    """A name that is not UTF-8 would end the loop of grpc.aio that accepts calls."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"content-type", b"application/grpc")]
    fields += [(b":authority", b"gateway"), (b"te", b"trailers")]
    headers = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)

    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
            for stream in range(1, 2 * CALLS, 2):  # headers that end the stream, or announce a message that never comes
                writer.write(frame(HEADERS, 4 + stream // 2 % 2, stream, headers))
            answered: set[int] = set()
            async with asyncio.timeout(HANG_GUARD_S):
                while len(answered) < CALLS:
                    start = await reader.readexactly(9)
                    await reader.readexactly(int.from_bytes(start[:3]))
                    if start[3] in (HEADERS, RESET):
                        answered.add(int.from_bytes(start[5:]))
            writer.close()
            await an_honest_device_is_served(tmp_path, server, port)

    asyncio.run(story())


def test_impossible_offers_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), rogue(port) as peer:
            await peer.join()
            data = bytes(100_000)
            for bad in (
                offer(data, sha256=b"short"),
                offer(data, length=2**62),
                offer(data, length=QUICK.packet_bytes + 1),
            ):
                await peer.say(bad)
                assert (await peer.hear("held")).refused
            await peer.say(offer(data, incarnation=6))
            assert "incarnation 5" in (await peer.hear("held")).refused
            for transfer in range(2, 6):  # the room of four packets
                packet = bytes([transfer]) * 100_000
                await peer.say(offer(packet, transfer=transfer, length=QUICK.packet_bytes))
                assert not (await peer.hear("held")).refused
            await peer.say(offer(data, transfer=6))
            assert "in flight" in (await peer.hear("held")).refused
            await an_honest_device_is_served(tmp_path, server, port)

    asyncio.run(story())


def test_chunks_that_do_not_fit_break_the_push_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), rogue(port) as peer:
            await peer.join()
            data = b"".join(packet_codec.encode(update(1, 50_000)))
            await peer.say(offer(data))
            await peer.hear("held")

            def chunk(offset: int, body: bytes, **changes: Any) -> Any:
                return wire.Chunk(**{"session": peer.session, "transfer": 1, "offset": offset, "data": body, **changes})

            for bad in (
                [chunk(5, data)],
                [chunk(0, data, transfer=9)],
                [chunk(0, data, session=peer.session + 1)],
                [],
                [chunk(0, data + b"more")],
            ):
                with pytest.raises(grpc.aio.AioRpcError) as told:
                    await peer.push(*bad)
                assert told.value.code() == grpc.StatusCode.FAILED_PRECONDITION
            # The last one took the offer with it: who breaks a push offers again.
            await peer.say(offer(data, transfer=2))
            assert not (await peer.hear("held")).refused
            lied = bytes(len(data))
            held = await peer.push(chunk(0, lied, transfer=2))
            assert "digest" in held.refused
            await peer.say(offer(data, transfer=3))
            assert (await peer.hear("held")).bytes == 0
            assert (await peer.push(chunk(0, data, transfer=3))).whole
            assert len(server.inbox.arrived_) == 1

    asyncio.run(story())


def test_a_stream_that_ends_early_is_not_a_whole_one(tmp_path: Path) -> None:
    """grpc.aio ends the request iterator normally when its peer dies."""

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), rogue(port) as peer:
            await peer.join()
            data = b"".join(packet_codec.encode(update(1, 50_000)))
            await peer.say(offer(data))
            await peer.hear("held")
            half = len(data) // 2
            held = await peer.push(wire.Chunk(session=peer.session, transfer=1, data=data[:half]))
            assert (held.whole, held.bytes) == (False, half)
            assert not server.inbox.arrived_
            await peer.say(offer(data, transfer=2))
            while (answer := await peer.hear("held")).transfer != 2:
                pass  # the news of how far the first one came
            assert answer.bytes == half
            rest = wire.Chunk(session=peer.session, transfer=2, offset=half, data=data[half:])
            assert (await peer.push(rest)).whole
            assert len(server.inbox.arrived_) == 1

    asyncio.run(story())


def test_a_session_belongs_to_its_opener(tmp_path: Path) -> None:
    """Another device's certificate, and the right session number: not enough."""

    async def story() -> None:
        authority = Authority.create(tmp_path / "ca", "lab")
        for role, name in (("gateway", "g0"), ("device", "d0"), ("device", "d1")):
            authority.bundle(role, [name], tmp_path / name)
        gateway, first, second = (Certified(tmp_path / name) for name in ("g0", "d0", "d1"))
        async with serving(tmp_path / "s", Numbers(), credentials=gateway) as (server, _, port):
            target, options = f"127.0.0.1:{port}", calls.options(5.0, server=False)
            async with (
                first.channel(target, "gateway", options) as one,
                second.channel(target, "gateway", options) as two,
            ):
                victim, thief = Rogue(one), Rogue(two)
                await victim.join("d0")
                thief.session = victim.session
                data = b"".join(packet_codec.encode(update(1, 50_000)))
                await victim.say(offer(data))
                await victim.hear("held")
                chunk = wire.Chunk(session=victim.session, transfer=1, data=data)
                with pytest.raises(grpc.aio.AioRpcError, match="another peer"):
                    await thief.push(chunk)
                with pytest.raises(grpc.aio.AioRpcError, match="another peer"):
                    async for _ in calls.call(two, calls.PULL)(wire.Wanted(session=victim.session, transfer=1)):
                        pass
                assert (await victim.push(chunk)).whole
                assert len(server.inbox.arrived_) == 1

    asyncio.run(story())


def test_a_peer_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    async def story() -> None:
        narrow = replace(QUICK, waiting_bytes=100_000, silence_s=600.0)
        async with serving(tmp_path / "s", Numbers(), limits=narrow) as (server, _, port), rogue(port) as peer:
            await peer.join()
            for number in range(2000):
                if server.inbox.lost:
                    break
                server.transport.send(DEVICE, Packet(7, 1, number, m.Train(JobId(0, 1, number), weights(900), 1, 1, 1)))
                await asyncio.sleep(0)
            await until(lambda: bool(server.inbox.lost))
            assert "does not read" in server.inbox.lost[0][1]

    asyncio.run(story())


def test_a_crowded_inbox_makes_peers_wait(tmp_path: Path) -> None:
    async def story() -> None:
        crowd = [True]
        async with (
            serving(tmp_path / "s", Numbers(), crowded=lambda: crowd[0]) as (server, _, port),
            dialling(tmp_path / "d", port) as device,
        ):
            await until(lambda: bool(device.inbox.joined))
            device.transport.send(GATEWAY, update(1, 100))
            await asyncio.sleep(QUICK.silence_s + 1)
            assert not server.inbox.arrived_
            assert not server.inbox.lost
            crowd[0] = False
            await until(lambda: len(server.inbox.arrived_) == 1)

    asyncio.run(story())


def test_a_peer_whose_packets_wait_is_not_read_and_others_are(tmp_path: Path) -> None:
    async def story() -> None:
        waiting: dict[Address, int] = {DEVICE: QUICK.packets_waiting}
        async with (
            serving(tmp_path / "s", Numbers(), waiting=lambda peer: waiting.get(peer, 0)) as (server, _, port),
            dialling(tmp_path / "d", port) as device,
            dialling(tmp_path / "e", port, "other") as other,
        ):
            await until(lambda: bool(device.inbox.joined) and bool(other.inbox.joined))
            device.transport.send(GATEWAY, update(1, 100))
            other.transport.send(GATEWAY, update(2, 100))
            await until(lambda: len(server.inbox.arrived_) == 1)
            assert server.inbox.arrived_[0][0] != DEVICE
            waiting[DEVICE] -= 1
            await until(lambda: len(server.inbox.arrived_) == 2)
            assert not server.inbox.lost

    asyncio.run(story())


def test_a_peer_that_is_set_aside_loses_its_session_even_if_it_sends_nothing_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), rogue(port) as peer:
            await peer.join()
            for _ in range(9):  # eight are forgiven
                await peer.say(wire.Frame(packet=b"x"))
            async with asyncio.timeout(HANG_GUARD_S):
                while (frame := await peer.stream.read()) is not grpc.aio.EOF:
                    if frame.WhichOneof("content") == "heartbeat":
                        await peer.say(wire.Frame(heartbeat=wire.Heartbeat(echo=frame.heartbeat.number)))
            assert not server.inbox.arrived_
            async with rogue(port) as again:
                refused = await again.join()
                assert b"try again in" in refused.refusal
            await an_honest_device_is_served(tmp_path, server, port)

    asyncio.run(story())


RATIONS = {
    "packets": (replace(QUICK, packets_at_once=10.0, packets_per_s=0.001), None),
    "frames": (replace(QUICK, frames_at_once=10.0, frames_per_s=0.001), wire.Frame()),  # of a kind that is not known
    "heartbeats": (
        replace(QUICK, heartbeats_at_once=10.0, heartbeat_s=4000.0),
        wire.Frame(heartbeat=wire.Heartbeat(number=1)),
    ),
}


@pytest.mark.parametrize("kind", RATIONS)
def test_a_device_is_read_no_faster_than_its_ration_and_others_are_served(tmp_path: Path, kind: str) -> None:
    few, frame = RATIONS[kind]

    async def story() -> None:
        limits = replace(few, silence_s=HANG_GUARD_S)
        async with serving(tmp_path / "s", Numbers(), limits=limits) as (server, _, port), rogue(port) as peer:
            await peer.join()
            alive = b"".join(packet_codec.encode(Packet(7, 5, 1, m.Alive())))
            for _ in range(10):
                if frame is not None:
                    await peer.say(frame)
                await peer.say(wire.Frame(packet=alive))
            await until(lambda: len(server.inbox.arrived_) == 10)
            if frame is not None:
                await peer.say(frame)
            for _ in range(10):
                await peer.say(wire.Frame(packet=alive))
            before = len(server.inbox.arrived_)
            await an_honest_device_is_served(tmp_path, server, port)
            assert before == 10
            assert len(server.inbox.arrived_) == 11, "the honest device's, and none of the rogue's"

    asyncio.run(story())


def test_joining_with_nonsense_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        numbers = Numbers()
        async with serving(tmp_path / "s", numbers) as (server, _, port):
            for bad in (
                Joining("device", "../../etc", 1),
                Joining("device", "a\nb", 1),
                Joining("device", "", 1),
                Joining("cloud", "x", 1),
                Joining("device", "x", -1),
                Joining("device", "x", 1, compute_s=float("nan")),
            ):
                async with rogue(port) as peer:
                    hello = joining.hello(bad, "9", 0.1)
                    await peer.say(wire.Frame(hello=hello))
                    assert (await peer.hear("joined")).refusal, bad
            for raw in (b"", b"\xc1", b"\x80", b"\x91" * 10_000):
                async with rogue(port) as peer:
                    hello = wire.Hello(lowest_version=1, highest_version=1, joining=raw)
                    await peer.say(wire.Frame(hello=hello))
                    assert (await peer.hear("joined")).refusal
            async with rogue(port) as peer:
                await peer.say(wire.Frame(packet=b"first"))
                with pytest.raises(grpc.aio.AioRpcError, match="begins with Hello"):
                    await peer.stream.read()
            assert not numbers.joinings
            async with rogue(port) as peer:
                await peer.say(wire.Frame(hello=joining.hello(Joining("device", "x", 1), "9", float("nan"))))
                assert not (await peer.hear("joined")).refusal
                assert numbers.probes == [0.0]
            await until(lambda: len(server.inbox.joined) == 1)

    asyncio.run(story())


def test_what_a_peer_writes_cannot_forge_a_log() -> None:
    assert readable("a\nERROR all is lost\x1b[2J") == "a?ERROR all is lost?[2J"
    assert len(readable("x" * 10_000)) == 300


def packet(message: m.Message) -> Packet:
    return Packet(7, 1, 1, message)


MODEL = weights(10)
UPDATE = m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, None, 0.1, 0.1)
KNOWN = m.DeviceKnowledge(3, 1.0, True, 5, 0.5, 0.5)
PROJECTED = ModelCodec(size=10, trained=10, encodes_gradients=False)
"""Models as float32; gradients of 10 numbers, or projected ones of 4."""


@pytest.mark.parametrize(
    ("sender", "receiver", "message", "why"),
    [
        (DEVICE, GATEWAY, m.Hello(1), "must not send"),
        (DEVICE, CLOUD, UPDATE, "must not send"),
        (GATEWAY, CLOUD, m.Finish(3), "must not send"),
        (GATEWAY, GATEWAY, m.Probe(), "must not send"),
        (GATEWAY, CLOUD, m.Upload(UploadId(1, 1, 1), MODEL, 1, 1, 1, False, 1, ()), "another gateway issues"),
        (GATEWAY, DEVICE, m.Train(JobId(1, 1, 1), MODEL, 1, 1, 1), "another gateway issues"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), weights(9), 1, 1, 0.5, 0.5, None, 0.1, 0.1), "10 float32 numbers"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, weights(3), 0.1, 0.1), "gradient"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, weights(4), 0.1, 0.1), "gradient"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, weights(10), 0.1, 0.1, True), "gradient"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, -1, 1, 0.5, 0.5, None, 0.1, 0.1), "samples -1"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, None, -0.1, 0.1), "download_s"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, None, float("nan"), 0.1), "not a finite"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, None, float("inf"), 0.1), "not a finite"),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, None, 0.1, 2e9), "training_s"),
        (
            DEVICE,
            GATEWAY,
            m.Update(JobId(0, 1, 1), MODEL, 2**63 - 1, 1, 0.5, 0.5, None, 0.1, 0.1),
            "at most 1000000000",
        ),
        (DEVICE, GATEWAY, m.Unsettled(None, (JobId(0, 1, 1),) * 1025), "at most 1024"),
        (GATEWAY, CLOUD, m.Report(1, 1, (replace(KNOWN, samples=10**10),)), "at most 1000000000"),
        (GATEWAY, CLOUD, m.Report(1, 1, (KNOWN, KNOWN)), "a device twice"),
        (GATEWAY, CLOUD, m.Report(1, 1, heard=(1, 2, 1)), "a device twice"),
        (
            GATEWAY,
            CLOUD,
            m.Upload(UploadId(0, 1, 1), MODEL, 1, 1, 1, False, 1, (), jobs=tuple(range(2**17 + 1))),
            "131073 items",
        ),
        (GATEWAY, CLOUD, m.Report(1, 1, lost=(3, 99)), "no such device"),
        (GATEWAY, CLOUD, m.LeaseReleased(m.Lease(99, 1, 1), KNOWN, False), "no such device"),
        (CLOUD, GATEWAY, m.GlobalModel(1, MODEL, np.zeros((2, 9), np.float32)), "basis"),
        (CLOUD, GATEWAY, m.Refused("x" * 5000), "characters"),
    ],
)
def test_messages_that_no_correct_node_sends_are_refused(
    sender: Address, receiver: Address, message: m.Message, why: str
) -> None:
    validate = validator(receiver, PROJECTED, lambda number: number < 50, frozenset({4}))
    with pytest.raises(PeerError, match=why):
        validate(sender, packet(message))


def test_messages_of_correct_nodes_pass() -> None:
    nan, inf = float("nan"), float("inf")
    diverged = np.full(10, np.nan, np.float32)
    for sender, receiver, message in (
        (DEVICE, GATEWAY, UPDATE),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), diverged, 1, 1, nan, inf, diverged, 0.1, 0.1)),
        (DEVICE, GATEWAY, m.Update(JobId(0, 1, 1), MODEL, 1, 1, 0.5, 0.5, weights(4), 0.1, 0.1, compressed=True)),
        (DEVICE, GATEWAY, m.Alive()),
        (DEVICE, GATEWAY, m.Unsettled(None, (JobId(0, 1, 1),) * 1024)),
        (DEVICE, GATEWAY, m.EvaluateResult(1, -0.5, inf)),
        (GATEWAY, CLOUD, m.Upload(UploadId(0, 1, 1), MODEL, 1, 100, 10**11, False, 1, (KNOWN,))),
        (CLOUD, GATEWAY, m.GlobalModel(1, MODEL, bandwidth=inf)),
        (GATEWAY, CLOUD, m.Report(1, 1, (KNOWN,), lost=(3,), heard=(4,))),
        (gateway_address(1), CLOUD, m.Upload(UploadId(1, 1, 1), MODEL, 1, 1, 1, False, 1, (KNOWN,))),
        (CLOUD, GATEWAY, m.GlobalModel(1, MODEL, np.zeros((2, 10), np.float32))),
        (GATEWAY, DEVICE, m.Train(JobId(0, 1, 1), MODEL, 1, 1, 1)),
    ):
        validator(receiver, PROJECTED, lambda number: number < 50, frozenset({4}))(sender, packet(message))
