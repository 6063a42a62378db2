"""Sessions over real sockets: joining, packets both ways, leaving, returning."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from two_nodes import GATEWAY, QUICK, Numbers, dialling, same, serving, train, until, update, weights

from async_hfl.core.compression.codec import encode as encode_light
from async_hfl.core.compression.encodings import encoded_bytes
from async_hfl.core.errors import SettingsError
from async_hfl.core.identifiers import JobId, device_address
from async_hfl.core.protocol.messages import Train
from async_hfl.core.protocol.traffic import traffic
from async_hfl.deployment.cluster.proxy import LinkProxy, Shape
from async_hfl.deployment.transport.admission import Refusal
from async_hfl.deployment.transport.limits import HIGHEST_VERSION, LOWEST_VERSION, PACKAGE
from async_hfl.deployment.transport.transfers.pacing import Bucket, Pacing
from async_hfl.encoding.packet_codec import encode
from async_hfl.nodes.reliability.delivery import Packet, Receipt

DEVICE = device_address(0)
PATIENT = replace(QUICK, silence_s=600.0)
SMALL, LARGE = 100, 300_000


def test_a_device_joins_and_both_sides_know(tmp_path: Path) -> None:
    async def story() -> None:
        numbers = Numbers()
        async with serving(tmp_path / "s", numbers) as (server, _, port), dialling(tmp_path / "d", port) as device:
            await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            assert server.inbox.joined == [DEVICE]
            assert device.inbox.joined == [GATEWAY]
            assert device.admissions[0].facts == {"model_bytes": 12}
            assert numbers.joinings[0].incarnation == 5
            assert numbers.probes[0] > 0
            assert not server.inbox.lost

    asyncio.run(story())


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["inline", "chunks"])
def test_packets_travel_both_ways(tmp_path: Path, size: int) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), dialling(tmp_path / "d", port) as device:
            await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            down, up = [train(n, size, n) for n in range(5)], [update(n, size, n) for n in range(5)]
            for packet in down:
                server.transport.send(DEVICE, packet)
            for packet in up:
                device.transport.send(GATEWAY, packet)
            server.transport.send(DEVICE, Receipt(7, 5, 3))
            await until(lambda: len(server.inbox.arrived_) == 5 and len(device.inbox.arrived_) == 6)
            await until(lambda: len(server.inbox.over) == 5 and len(device.inbox.over) == 5)
            arrived = {content.number: content for content in server.inbox.contents()}
            assert all(same(arrived[packet.number], packet) for packet in up)
            assert all(any(same(content, packet) for content in device.inbox.contents()) for packet in down)
            assert Receipt(7, 5, 3) in device.inbox.contents()
            assert sorted(server.inbox.over) == [(DEVICE, n) for n in range(5)]
            assert sorted(device.inbox.over) == [(GATEWAY, n) for n in range(5)]
            least = 5 * 4 * size
            assert server.transport.traffic()[DEVICE].sent >= least
            assert device.transport.traffic()[GATEWAY].received >= least
            assert not list((tmp_path / "s").iterdir())
            assert not list((tmp_path / "d").iterdir())
            assert not server.transport.transfers()

    asyncio.run(story())


def test_a_peer_that_dies_is_noticed_by_its_stream(tmp_path: Path) -> None:
    """Its process is gone: the kernel closes its connections. Here the proxy does."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            server, _, port = await stack.enter_async_context(serving(tmp_path / "s", Numbers(), limits=PATIENT))
            proxy = LinkProxy(("127.0.0.1", port))
            stack.push_async_callback(proxy.close)
            device = await stack.enter_async_context(dialling(tmp_path / "d", await proxy.open(), limits=PATIENT))
            await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            proxy.refuse()
            await until(lambda: bool(server.inbox.lost and device.inbox.lost))
            assert server.inbox.lost[0][0] == DEVICE
            assert device.inbox.lost[0][0] == GATEWAY
            proxy.heal()
            await until(lambda: len(server.inbox.joined) == 2 and len(device.inbox.joined) == 2)

    asyncio.run(story())


def test_a_black_hole_is_noticed_by_silence_and_left_when_it_heals(tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            server, _, port = await stack.enter_async_context(serving(tmp_path / "s", Numbers()))
            proxy = LinkProxy(("127.0.0.1", port))
            stack.push_async_callback(proxy.close)
            device = await stack.enter_async_context(dialling(tmp_path / "d", await proxy.open()))
            await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            proxy.stall()
            await until(lambda: bool(server.inbox.lost and device.inbox.lost))
            assert "nothing heard" in server.inbox.lost[0][1]
            proxy.heal()
            await until(lambda: len(server.inbox.joined) >= 2 and len(device.inbox.joined) >= 2)
            device.transport.send(GATEWAY, update(1, LARGE))
            await until(lambda: len(server.inbox.arrived_) == 1)

    asyncio.run(story())


def test_a_slow_transfer_is_not_silence(tmp_path: Path) -> None:
    """Heartbeats wait behind the chunks of a slow link; chunks are heard, too."""

    async def story() -> None:
        size = 100_000
        async with AsyncExitStack() as stack:
            server, _, port = await stack.enter_async_context(serving(tmp_path / "s", Numbers()))
            proxy = LinkProxy(("127.0.0.1", port), up=Shape(rate=80_000.0), down=Shape(rate=80_000.0))
            stack.push_async_callback(proxy.close)
            device = await stack.enter_async_context(dialling(tmp_path / "d", await proxy.open()))
            await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            device.transport.send(GATEWAY, update(1, size))
            server.transport.send(DEVICE, train(1, size))
            await until(lambda: any(open_.bytes > size for open_ in server.transport.transfers()))
            await until(lambda: bool(server.inbox.arrived_ and device.inbox.arrived_))
            assert not server.inbox.lost
            assert not device.inbox.lost
            assert server.inbox.arrived_[0][2] > 4 * size / 80_000.0 / 2

    asyncio.run(story())


def test_a_delayed_loop_does_not_lose_its_peers(tmp_path: Path) -> None:
    """A disk that takes seconds for a commit, a machine that slept: nobody listened, so silence means nothing."""

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), dialling(tmp_path / "d", port) as device:
            await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            time.sleep(2 * QUICK.silence_s)
            device.transport.send(GATEWAY, update(1, SMALL))
            await until(lambda: bool(server.inbox.arrived_))
            await asyncio.sleep(3 * QUICK.heartbeat_s)
            assert not server.inbox.lost
            assert not device.inbox.lost

    asyncio.run(story())


def test_a_device_that_is_made_to_wait_is_not_taken_for_silent(tmp_path: Path) -> None:
    """Its packets wait in the inbox for longer than a peer may be silent, as behind a slow disk."""
    limits = replace(QUICK, heartbeat_s=0.1, silence_s=1.0)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        free_at = loop.time() + 2.5 * limits.silence_s
        busy = {"waiting": lambda sender: 0 if loop.time() > free_at else limits.packets_waiting}
        async with (
            serving(tmp_path / "s", Numbers(), limits=limits, **busy) as (server, _, port),
            dialling(tmp_path / "d", port, limits=PATIENT) as device,
        ):
            await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            device.transport.send(GATEWAY, update(1, SMALL))
            await until(lambda: bool(server.inbox.arrived_ or server.inbox.lost))
            assert server.inbox.lost == []

    asyncio.run(story())


def test_a_packet_in_flight_is_not_sent_again(tmp_path: Path) -> None:
    async def story() -> None:
        pacing = Pacing(Bucket(400_000.0), Bucket(400_000.0))
        async with (
            serving(tmp_path / "s", Numbers(), pacing=pacing) as (server, _, port),
            dialling(tmp_path / "d", port) as device,
        ):
            await until(lambda: bool(device.inbox.joined))
            packet = update(1, LARGE)
            device.transport.send(GATEWAY, packet)
            await until(lambda: any(moving.bytes for moving in server.transport.transfers()))
            device.transport.send(GATEWAY, packet)
            await until(lambda: bool(device.inbox.over))
            assert len(server.inbox.arrived_) == 1
            assert device.inbox.over == [(GATEWAY, 1)]
            assert device.transport.traffic()[GATEWAY].sent == sum(map(len, encode(packet)))
            device.transport.send(GATEWAY, packet)  # its receipt was lost, say
            await until(lambda: len(server.inbox.arrived_) == 2)

    asyncio.run(story())


def test_refusals_are_delivered_and_obeyed(tmp_path: Path) -> None:
    async def story() -> None:
        numbers = Numbers()
        numbers.refusal = Refusal("not_yet", "wait for the others")
        async with serving(tmp_path / "s", numbers) as (server, serving_, port):
            async with dialling(tmp_path / "d", port) as device:
                await until(lambda: len(numbers.joinings) >= 3)  # it asks again by itself
                assert not device.refusals
                numbers.refusal = None
                await until(lambda: bool(device.inbox.joined))
                await serving_.goodbye(lambda _: Refusal("finished", "the run is over", "abc"))
                await until(lambda: bool(device.refusals and device.inbox.lost))
                assert device.refusals == [Refusal("finished", "the run is over", "abc")]
                assert "goodbye" in device.inbox.lost[0][1]
            async with dialling(tmp_path / "e", port, "late") as late:
                await until(lambda: bool(late.refusals))
                assert late.refusals[0].kind == "finished"
            assert server.inbox.joined == [DEVICE]

    asyncio.run(story())


def test_a_dialler_says_goodbye(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port):
            async with dialling(tmp_path / "d", port, goodbye="battery low") as device:
                await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            await until(lambda: bool(server.inbox.lost))
            assert server.inbox.lost == [(DEVICE, "the peer said goodbye: battery low")]

    asyncio.run(story())


def test_a_newer_session_replaces_the_older(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), dialling(tmp_path / "a", port) as older:
            await until(lambda: bool(older.inbox.joined))
            older.link._final = True  # it would dial again, and the two would take turns
            async with dialling(tmp_path / "b", port) as newer:
                await until(lambda: bool(newer.inbox.joined and older.inbox.lost))
                assert server.inbox.joined == [DEVICE, DEVICE]
                assert not server.inbox.lost
                server.transport.send(DEVICE, train(1, LARGE))
                await until(lambda: len(newer.inbox.arrived_) == 1)
            await until(lambda: len(server.inbox.lost) == 1)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("versions", "package", "words", "older"),
    [
        ((1, 1), "0.0.9", "async-hfl 0.0.9 with protocol 1,", "update the node that joins"),
        ((4, 5), "9.9", "async-hfl 9.9 with protocol 4 to 5,", "update the node that it joins"),
    ],
)
def test_versions_without_a_common_one_are_both_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    versions: tuple[int, int],
    package: str,
    words: str,
    older: str,
) -> None:
    from async_hfl.deployment.transport import joining

    def of_another_version(*arguments: Any) -> Any:
        made = hello(*arguments)
        (made.lowest_version, made.highest_version), made.package = versions, package
        return made

    hello = joining.hello
    monkeypatch.setattr(joining, "hello", of_another_version)

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (_, _, port), dialling(tmp_path / "d", port) as device:
            await until(lambda: bool(device.refusals))
            said = device.refusals[0]
            assert said.kind == "refused"
            assert words in said.reason
            assert f"async-hfl {PACKAGE} with protocol {LOWEST_VERSION} to {HIGHEST_VERSION};" in said.reason
            assert said.reason.endswith(older)

    asyncio.run(story())


def test_a_server_that_starts_late_is_found(tmp_path: Path) -> None:
    async def story() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        async with dialling(tmp_path / "d", port) as device:
            await asyncio.sleep(0.3)
            assert not device.inbox.joined
            async with serving(tmp_path / "s", Numbers(), listen=f"127.0.0.1:{port}"):
                await until(lambda: bool(device.inbox.joined))

    asyncio.run(story())


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (_, _, port):
            with pytest.raises(SettingsError, match="is the port taken"):
                async with serving(tmp_path / "t", Numbers(), listen=f"127.0.0.1:{port}"):
                    pass

    asyncio.run(story())


def test_bandwidth_is_shared_and_can_change(tmp_path: Path) -> None:
    """The bucket holds one second's worth: what is beyond it takes its time, whoever sends."""

    async def story() -> None:
        size = 100_000
        pacing = Pacing(Bucket(200_000.0), Bucket(200_000.0))
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            server, _, port = await stack.enter_async_context(serving(tmp_path / "s", Numbers(), pacing=pacing))
            devices = [await stack.enter_async_context(dialling(tmp_path / name, port, name)) for name in ("d0", "d1")]
            await until(lambda: all(device.inbox.joined for device in devices))
            begun = loop.time()
            for device in devices:
                device.transport.send(GATEWAY, update(1, size))
            await until(lambda: len(server.inbox.arrived_) == 2)
            assert loop.time() - begun > (2 * 4 * size - 200_000) / 200_000 * 0.9
            pacing.down.rate = math.inf
            server.transport.send(DEVICE, train(1, 10 * size))
            await until(lambda: any(device.inbox.arrived_ for device in devices))

    asyncio.run(story())


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["inline", "chunks"])
def test_an_encoded_model_arrives_as_the_bytes_that_were_sent(tmp_path: Path, size: int) -> None:
    async def story() -> None:
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), dialling(tmp_path / "d", port) as device:
            await until(lambda: bool(server.inbox.joined))
            light = encode_light(weights(size), "int8", size, key=1)
            packet = Packet(7, 1, 0, Train(JobId(0, 1, 0), light, 1, 2, 3))
            server.transport.send(DEVICE, packet)
            await until(lambda: len(device.inbox.arrived_) == 1)
            arrived = device.inbox.contents()[0]
            assert isinstance(arrived, Packet)
            assert isinstance(arrived.message, Train)
            assert arrived.message.weights.dtype == np.uint8
            assert same(arrived, packet)
            bytes_sent = server.transport.traffic()[DEVICE].sent
            assert bytes_sent == sum(map(len, encode(packet)))
            # The bytes that a journal counts for its model, and headers.
            assert 0 < bytes_sent - traffic(packet.message).model < 300
            assert traffic(packet.message).model == encoded_bytes("int8", size, 0)

    asyncio.run(story())
