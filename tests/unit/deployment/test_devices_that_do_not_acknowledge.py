"""A device that works and acknowledges nothing: what it was sent is kept for it, so it must not go on for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hosted_node import Hosted, hosted
from hosted_scenes import EVIL, SIZE, TRAINED, Gateway

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import device_address

DEVICE = device_address(EVIL)


def kept(node: Hosted) -> int:
    return sum(to == DEVICE for to, _ in node.process.shell.delivery.unacknowledged)


def test_it_is_set_aside_when_much_was_sent_several_times(tmp_path: Path) -> None:
    codec = ModelCodec(size=SIZE, trained=TRAINED)

    async def story() -> None:
        async with hosted(tmp_path, "gateway", lambda identity: Gateway.make(codec), codec) as node:
            gateway = Gateway(node, codec)
            await gateway.begin()
            await node.joined(DEVICE)
            conduct = node.process.transport.endpoint.conduct
            conduct.clock = asyncio.get_running_loop().time  # it forgives nothing

            async def work(number: int) -> None:
                found = gateway.job(EVIL)
                assert found is not None
                await node.tell(DEVICE, number, gateway.update(*found, number))
                gateway.answer_uploads()
                await node.idle()

            for number in range(1, 101):
                await work(number)
            assert kept(node) > 80
            assert conduct.pause_left(DEVICE) == 0.0, "it may have much to receive after an absence"
            for packet in node.process.shell.delivery.unacknowledged.values():
                packet.attempts = 3  # some time passes
            for number in range(101, 118):
                await work(number)
            assert conduct.pause_left(DEVICE) > 20.0

    asyncio.run(story())
