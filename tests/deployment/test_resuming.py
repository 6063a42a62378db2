"""Interrupted transfers in both directions: only what is missing is sent again, and only complete packets are passed
on."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_nodes import GATEWAY, HANG_GUARD_S, QUICK, Numbers, dialling, same, serving, train, until, update

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import device_address
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.deployment.cluster.proxy import LinkProxy, Shape
from async_hfl.deployment.identity.credentials import Insecure
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.transport.server import Server
from async_hfl.deployment.transport.transfers.parts import Incoming, Outgoing, digest_of
from async_hfl.deployment.transport.transfers.spool import Spool, SpoolFull, Superseded
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding import packet_codec
from async_hfl.nodes.reliability.delivery import Arrived

DEVICE = device_address(0)
SIZE = 300_000
LENGTH = 4 * SIZE
"""Bytes of a model; a packet is a few hundred more."""
RATE = 800_000.0


@pytest.mark.parametrize("upward", [True, False], ids=["upload", "download"])
def test_a_cut_transfer_continues_where_it_stopped(tmp_path: Path, upward: bool) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            server, _, port = await stack.enter_async_context(serving(tmp_path / "s", Numbers()))
            proxy = LinkProxy(("127.0.0.1", port), up=Shape(rate=RATE), down=Shape(rate=RATE))
            outside = await proxy.open()
            stack.push_async_callback(proxy.close)
            device = await stack.enter_async_context(dialling(tmp_path / "d", outside))
            await until(lambda: bool(server.inbox.joined and device.inbox.joined))
            sender, receiver, to, spool = (
                (device, server, GATEWAY, tmp_path / "s") if upward else (server, device, DEVICE, tmp_path / "d")
            )
            packet = update(1, SIZE) if upward else train(1, SIZE)
            sender.transport.send(to, packet)
            await until(lambda: any(moving.bytes > LENGTH // 3 for moving in receiver.transport.transfers()))
            proxy.reset()
            await until(lambda: sender.inbox.over == [(to, 1)] and not receiver.transport.transfers())
            assert not receiver.inbox.arrived_
            held = sum(part.stat().st_size for part in spool.glob("*.part"))
            assert held >= LENGTH // 3
            await until(lambda: len(sender.inbox.joined) == 2 and len(receiver.inbox.joined) == 2)
            before = sender.transport.traffic()[to].sent
            sender.transport.send(to, packet)
            await until(lambda: len(receiver.inbox.arrived_) == 1)
            await until(lambda: len(sender.inbox.over) == 2)
            again = sender.transport.traffic()[to].sent - before
            assert again <= LENGTH + 1000 - held
            assert same(receiver.inbox.contents()[0], packet)
            assert not list(spool.iterdir())

    asyncio.run(story())


def test_a_server_that_was_restarted_continues_from_its_spool(tmp_path: Path) -> None:
    async def story() -> None:
        packet = update(1, SIZE)
        async with AsyncExitStack() as stack:
            first = AsyncExitStack()
            server, _, port = await first.enter_async_context(serving(tmp_path / "s", Numbers()))
            proxy = LinkProxy(("127.0.0.1", port), up=Shape(rate=RATE))
            outside = await proxy.open()
            stack.push_async_callback(proxy.close)
            device = await stack.enter_async_context(dialling(tmp_path / "d", outside))
            await until(lambda: bool(device.inbox.joined))
            device.transport.send(GATEWAY, packet)
            await until(lambda: any(moving.bytes > LENGTH // 2 for moving in server.transport.transfers()))
            await first.aclose()
            assert not server.inbox.arrived_
            held = sum(part.stat().st_size for part in (tmp_path / "s").glob("*.part"))
            again, _, port = await stack.enter_async_context(serving(tmp_path / "s", Numbers()))
            proxy.target = ("127.0.0.1", port)
            await until(lambda: len(device.inbox.joined) == 2)
            before = device.transport.traffic()[GATEWAY].sent
            device.transport.send(GATEWAY, packet)
            await until(lambda: len(again.inbox.arrived_) == 1)
            assert device.transport.traffic()[GATEWAY].sent - before <= LENGTH + 1000 - held
            assert same(again.inbox.contents()[0], packet)

    asyncio.run(story())


def test_a_damaged_part_is_deleted_and_sent_again_whole(tmp_path: Path) -> None:
    async def story() -> None:
        packet = update(1, SIZE)
        pieces = packet_codec.encode(packet)
        digest = await digest_of(pieces, sum(map(len, pieces)))
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / f"{DEVICE}-{digest.hex()}.part").write_bytes(b"\1" * 1000)
        async with serving(tmp_path / "s", Numbers()) as (server, _, port), dialling(tmp_path / "d", port) as device:
            await until(lambda: bool(device.inbox.joined))
            device.transport.send(GATEWAY, packet)
            await until(lambda: device.inbox.over == [(GATEWAY, 1)])
            assert not server.inbox.arrived_
            device.transport.send(GATEWAY, packet)
            await until(lambda: len(server.inbox.arrived_) == 1)
            assert same(server.inbox.contents()[0], packet)

    asyncio.run(story())


def test_a_known_packet_is_not_sent_again(tmp_path: Path) -> None:
    async def story() -> None:
        known: list[tuple[object, ...]] = []

        def is_known(*packet: object) -> bool:
            known.append(packet)
            return True

        async with (
            serving(tmp_path / "s", Numbers(), is_known=is_known) as (server, _, port),
            dialling(tmp_path / "d", port) as device,
        ):
            await until(lambda: bool(device.inbox.joined))
            device.transport.send(GATEWAY, update(3, SIZE))
            await until(lambda: device.inbox.over == [(GATEWAY, 3)])
            assert known == [(DEVICE, 7, 5, 3)]
            assert device.transport.traffic().get(GATEWAY) is None
            assert not server.inbox.arrived_

    asyncio.run(story())


@settings(max_examples=60)
@given(
    pieces=st.lists(st.binary(max_size=300), min_size=1, max_size=6),
    cuts=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 97)), max_size=6),
)
def test_a_packet_arrives_once_whatever_the_cuts(pieces: list[bytes], cuts: list[tuple[int, int]]) -> None:
    """Each cut: a connection that carries so many bytes, in chunks of that size, and breaks."""

    async def story() -> None:
        whole = b"".join(pieces)
        digest = await digest_of(pieces, len(whole))
        out = Outgoing(1, pieces, len(whole), 0.0)
        moved = 0
        with tempfile.TemporaryDirectory() as folder:
            for carries, size in [*cuts, (len(whole), 64)]:
                part = Spool(Path(folder), 10_000, 1e6).open(DEVICE, len(whole), digest)
                part.rehash()
                into = Incoming(1, 1, part, 0.0, 0.0, 0.0)
                offset = part.held
                while offset < len(whole) and carries > 0:
                    chunk = out.chunk(offset, min(size, carries))
                    await into.write(chunk)
                    offset, carries, moved = offset + len(chunk), carries - len(chunk), moved + len(chunk)
                await into.flush()
                assert part.held == offset
                if part.whole:
                    break
                part.close()
            assert part.matches()
            taken = part.take()
            assert bytes(taken.data) == taken.path.read_bytes() == whole
            assert moved == len(whole)
            assert list(Path(folder).iterdir()) == [taken.path]
            Spool(Path(folder), 10_000, 1e6)  # after a crash: the packet was not acknowledged, so it comes again
            assert not list(Path(folder).iterdir())

    asyncio.run(story())


def test_a_newer_connection_takes_over_the_part(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000, 1e6)
    old = spool.open(DEVICE, 10, b"x" * 32)
    old.add(b"abc")
    new = spool.open(DEVICE, 10, b"x" * 32)
    new.rehash()
    assert new.held == 3
    with pytest.raises(Superseded):
        old.add(b"d")
    with pytest.raises(PeerError, match="more bytes than"):
        new.add(b"defghijkl")
    spool.release(old)
    new.add(b"defghij")
    new.drain()
    assert new.whole
    newest = spool.open(DEVICE, 10, b"x" * 32)
    with pytest.raises(Superseded):
        new.take()
    newest.rehash()
    assert bytes(newest.take().data) == b"abcdefghij"


def test_a_spool_is_limited(tmp_path: Path) -> None:
    (tmp_path / "d1-left.part").write_bytes(b"x" * 600)
    spool = Spool(tmp_path, 1000, 1e6)
    kept = spool.open(DEVICE, 300, b"a" * 32)
    assert (tmp_path / "d1-left.part").exists()
    spool.open(DEVICE, 200, b"b" * 32)
    assert not (tmp_path / "d1-left.part").exists()  # the oldest that nobody asks for makes room
    with pytest.raises(SpoolFull):
        spool.open(DEVICE, 501, b"c" * 32)
    spool.release(kept)
    spool.open(DEVICE, 501, b"c" * 32)


def test_a_disk_without_room_refuses_and_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        from dataclasses import replace

        small = replace(QUICK, spool_bytes=1000)
        async with (
            serving(tmp_path / "s", Numbers(), limits=small) as (server, _, port),
            dialling(tmp_path / "d", port) as device,
        ):
            await until(lambda: bool(device.inbox.joined))
            device.transport.send(GATEWAY, update(1, SIZE))
            await until(lambda: device.inbox.over == [(GATEWAY, 1)])
            assert not server.inbox.arrived_
            assert not server.inbox.lost

    asyncio.run(story())


def test_a_large_packet_becomes_a_payload_by_a_rename(tmp_path: Path) -> None:
    """The bytes that arrived are written and hashed once: the spooled file is the payload that the log refers to."""

    async def story() -> None:
        with NodeStore.open(tmp_path / "s") as store:
            inbox = Inbox(store.adopt)
            server = Server(Transport(inbox, store.spool, limits=QUICK), "127.0.0.1:0", Numbers().admit, Insecure())
            port = await server.start()
            try:
                async with dialling(tmp_path / "d", port) as device:
                    await until(lambda: bool(device.inbox.joined))
                    device.transport.send(GATEWAY, update(1, 100_000))
                    events: list[Any] = []
                    while not any(isinstance(event, Arrived) for event in events):
                        async with asyncio.timeout(HANG_GUARD_S):
                            (make,) = await inbox.take(1)
                        left = list(store.spool.iterdir())
                        events.append(make(1.0))
            finally:
                await server.close()
            (spooled,) = left
            inode, body = spooled.stat().st_ino, spooled.read_bytes()
            store.append(to_plain(events[-1]))
            store.handled([])
            store.commit()
            (payload,) = (store.path / "payloads").iterdir()
            assert payload.stat().st_ino == inode
            assert payload.name == hashlib.sha256(body).hexdigest()
            assert not list(store.spool.iterdir())

    asyncio.run(story())
    with NodeStore.open(tmp_path / "s") as store:
        arrived = from_plain(store.read()[1][-1])
        assert same(arrived.content, update(1, 100_000))
