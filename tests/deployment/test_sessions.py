"""Two nodes in touch over real sockets: joining, parcels both ways, leaving, coming back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from two_nodes import GATEWAY, Numbers, dialling, same, serving, train, until, update

from async_hfl.core.identifiers import device_address
from async_hfl.nodes.delivery import Receipt

DEVICE = device_address(0)
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
def test_parcels_travel_both_ways(tmp_path: Path, size: int) -> None:
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
