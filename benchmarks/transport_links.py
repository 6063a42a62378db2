"""Model transfers over bad links (slow, distant, cut, silent), and the time until a dead peer is detected.

    python benchmarks/transport_links.py

Uses real sockets through the package's TCP proxy, in one process except for the client that is killed. Limits have
their default values.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.identifiers import Address, JobId, device_address, gateway_address
from async_hfl.core.protocol.messages import Train, Update
from async_hfl.deployment.cluster.proxy import LinkProxy, Shape
from async_hfl.deployment.identity.credentials import Insecure
from async_hfl.deployment.transport.admission import Admission, Joining
from async_hfl.deployment.transport.link import Link
from async_hfl.deployment.transport.server import Server
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding.packet_codec import Content
from async_hfl.nodes.reliability.delivery import Packet

GATEWAY, DEVICE = gateway_address(0), device_address(0)


class Inbox:
    def __init__(self) -> None:
        self.here, self.came, self.over, self.lost = (asyncio.Event() for _ in range(4))

    def arrived(self, sender: Address, content: Content, transfer_s: float, spooled: Any = None) -> None:
        self.came.set()

    def transfer_over(self, to: Address, number: int) -> None:
        self.over.set()

    def peer_joined(self, peer: Address) -> None:
        self.here.set()

    def peer_lost(self, peer: Address, why: str) -> None:
        self.here.clear()
        self.lost.set()


@dataclass
class Pair:
    server: Inbox
    device: Inbox
    sending: Transport
    serving: Transport
    proxy: LinkProxy


async def admit(joining: Joining, probe_s: float) -> Admission:
    return Admission(1, GATEWAY, 0, 0.0, "{}", "")


def link_to(transport: Transport, port: int) -> Link:
    return Link(
        transport,
        f"127.0.0.1:{port}",
        "gateway",
        Insecure(),
        joining=Joining("device", "d0", 1),
        admitted=lambda admission: None,
        refused=lambda refusal: None,
    )


@asynccontextmanager
async def pair(up: Shape, down: Shape) -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        inbox, mine = Inbox(), Inbox()
        serving, sending = Transport(inbox, Path(folder) / "s"), Transport(mine, Path(folder) / "d")
        server = Server(serving, "127.0.0.1:0", admit, Insecure())
        proxy = LinkProxy(("127.0.0.1", await server.start()), up=up, down=down)
        link = link_to(sending, await proxy.open())
        link.start()
        try:
            await mine.here.wait()
            await inbox.here.wait()
            yield Pair(inbox, mine, sending, serving, proxy)
        finally:
            await link.close()
            await server.close()
            await proxy.close()


def weights(count: int) -> Any:
    made = np.random.default_rng(1).normal(size=count // 4).astype(np.float32)
    made.flags.writeable = False
    return made


def update(number: int, count: int) -> Packet:
    return Packet(1, 1, number, Update(JobId(0, 1, number), weights(count), 1, 1, 0.0, 0.0, None, 0.0, 0.0))


async def timed(what: str, count: int, rate: float, delay_s: float) -> dict[str, Any]:
    """Send one model up and one down, one after the other."""
    shape = Shape(rate=rate, delay_s=delay_s)
    async with pair(shape, shape) as two:
        begun = time.monotonic()
        two.sending.send(GATEWAY, update(1, count))
        await two.server.came.wait()
        up = time.monotonic() - begun
        begun = time.monotonic()
        two.serving.send(DEVICE, Packet(1, 1, 1, Train(JobId(0, 1, 1), weights(count), 1, 1, 1)))
        await two.device.came.wait()
        down = time.monotonic() - begun
        lost = two.server.lost.is_set() or two.device.lost.is_set()
    ideal = round(count / rate + delay_s, 2)
    return {
        "link": what,
        "bytes": count,
        "ideal_s": ideal,
        "up_s": round(up, 2),
        "down_s": round(down, 2),
        "lost": lost,
    }


async def cut() -> dict[str, Any]:
    """Cut a transfer five times and count all bytes sent over the link."""
    count = 2_000_000
    async with pair(Shape(rate=2e6), Shape(rate=2e6)) as two:
        before = two.proxy.up.bytes
        for _ in range(5):
            two.sending.send(GATEWAY, update(1, count))
            await asyncio.sleep(0.15)
            two.device.lost.clear()
            two.proxy.reset()
            await two.device.lost.wait()
            await two.device.here.wait()
        two.sending.send(GATEWAY, update(1, count))
        await two.server.came.wait()
        return {"link": "cut five times", "bytes": count, "carried": two.proxy.up.bytes - before}


async def black_hole() -> dict[str, Any]:
    async with pair(Shape(), Shape()) as two:
        two.proxy.stall()
        begun = time.monotonic()
        await asyncio.gather(two.server.lost.wait(), two.device.lost.wait())
        noticed = time.monotonic() - begun
        two.proxy.heal()
        begun = time.monotonic()
        await two.device.here.wait()
        return {
            "link": "black hole",
            "noticed_s": round(noticed, 2),
            "back_after_healing_s": round(time.monotonic() - begun, 2),
        }


def client(port: int, folder: str) -> None:
    async def stay() -> None:
        logging.disable(logging.WARNING)
        link_to(Transport(Inbox(), Path(folder)), port).start()
        await asyncio.sleep(600)

    asyncio.run(stay())


async def killed() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        inbox = Inbox()
        server = Server(Transport(inbox, Path(folder) / "s"), "127.0.0.1:0", admit, Insecure())
        port = await server.start()
        process = multiprocessing.get_context("spawn").Process(target=client, args=(port, f"{folder}/d"))
        process.start()
        await inbox.here.wait()
        assert process.pid is not None
        begun = time.monotonic()
        process.kill()
        await inbox.lost.wait()
        noticed = time.monotonic() - begun
        process.join()
        await server.close()
        return {"link": f"peer killed ({signal.SIGKILL.name})", "noticed_s": round(noticed, 3)}


async def main() -> None:
    rows = [
        lambda: timed("160 kbit/s", 285_000, 20_000.0, 0.02),
        lambda: timed("1 Mbit/s, 50 ms", 1_600_000, 125_000.0, 0.05),
        lambda: timed("10 Mbit/s by satellite, 300 ms", 10_000_000, 1_250_000.0, 0.3),
        lambda: timed("100 Mbit/s, 5 ms", 43_000_000, 12_500_000.0, 0.005),
        cut,
        black_hole,
        killed,
    ]
    for row in rows:
        print(json.dumps(await row()), flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(main())
