"""The TCP proxy: bytes arrive unchanged, with the rate, delay and outages of the link."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from async_hfl.deployment.cluster.proxy import LinkProxy, Shape

GUARD_S = 30.0


@dataclass
class Ends:
    link: LinkProxy
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def echo(self, data: bytes) -> bytes:
        self.writer.write(data)
        await self.writer.drain()
        return await self.reader.readexactly(len(data))


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


def over_a_link(test: Callable[[Ends], Awaitable[None]], up: Shape | None = None, down: Shape | None = None) -> None:
    """Run the test with a connection through the link to a server that says everything back."""

    async def run() -> None:
        server = await asyncio.start_server(_echo, "127.0.0.1", 0)
        link = LinkProxy(("127.0.0.1", server.sockets[0].getsockname()[1]), up=up, down=down, seed=5)
        port = await link.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.wait_for(test(Ends(link, reader, writer)), GUARD_S)
        finally:
            writer.transport.abort()
            await link.close()
            assert link.connections == 0
            server.close()
            await server.wait_closed()

    asyncio.run(run())


async def silent(awaitable: Awaitable[bytes], seconds: float = 0.3) -> bool:
    try:
        await asyncio.wait_for(awaitable, seconds)
    except TimeoutError:
        return True
    return False


async def broken(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_bytes_come_out_as_they_went_in() -> None:
    data = np.random.default_rng(0).bytes(3_000_000)

    async def test(ends: Ends) -> None:
        back = asyncio.create_task(ends.reader.readexactly(len(data)))
        ends.writer.write(data)
        assert await back == data
        ends.writer.write_eof()
        assert await ends.reader.read() == b""
        assert (ends.link.up.bytes, ends.link.down.bytes) == (len(data), len(data))

    over_a_link(test, up=Shape(jitter_s=0.002), down=Shape(jitter_s=0.002))


def test_a_rate_is_the_links_own_and_per_direction() -> None:
    """Not asserted by the clock of a test but by the line's own: 30 kB at 60 kB/s cannot be over in less."""

    async def test(ends: Ends) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        second_reader, second = await asyncio.open_connection("127.0.0.1", ends.link.port)
        ends.writer.write(b"a" * 15_000)
        second.write(b"b" * 15_000)
        await asyncio.gather(ends.reader.readexactly(15_000), second_reader.readexactly(15_000))
        assert loop.time() - begin >= 0.45
        ends.link.shape(up=Shape(rate=100))
        ends.link.shape(up=Shape())
        back = asyncio.create_task(ends.reader.readexactly(300_000))
        ends.writer.write(b"c" * 300_000)  # would take an hour
        assert await back == b"c" * 300_000
        second.transport.abort()

    over_a_link(test, up=Shape(rate=60_000))


def test_a_delay_is_both_ways_its_own() -> None:
    async def test(ends: Ends) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await ends.echo(b"there and back")
        assert loop.time() - begin >= 0.3

    over_a_link(test, up=Shape(delay_s=0.2), down=Shape(delay_s=0.1, jitter_s=0.1))


def test_a_stall_delays_and_loses_nothing() -> None:
    async def test(ends: Ends) -> None:
        await ends.echo(b"before")
        ends.link.stall(up=False)
        ends.writer.write(b"into the stall")
        answer = asyncio.create_task(ends.reader.readexactly(14))
        assert await silent(asyncio.shield(answer))
        assert ends.link.up.bytes == 20  # the other direction goes on
        ends.link.heal()
        assert await answer == b"into the stall"

    over_a_link(test)


def test_a_black_hole_says_nothing_to_anybody() -> None:
    async def test(ends: Ends) -> None:
        await ends.echo(b"before")
        ends.link.stall()
        # A new connection seems to stand, and leads nowhere.
        reader, writer = await asyncio.open_connection("127.0.0.1", ends.link.port)
        writer.write(b"anybody?")
        answer = asyncio.create_task(reader.readexactly(8))
        assert await silent(asyncio.shield(answer))
        # The end of a connection is not told to the other side either.
        ends.writer.write_eof()
        assert await silent(ends.reader.read())
        ends.link.heal()
        assert await answer == b"anybody?"
        assert await ends.reader.read() == b""
        writer.transport.abort()

    over_a_link(test)


def test_a_reset_breaks_what_is_there_and_nothing_else() -> None:
    async def test(ends: Ends) -> None:
        await ends.echo(b"before")
        ends.link.reset()
        assert await broken(ends.reader)
        reader, writer = await asyncio.open_connection("127.0.0.1", ends.link.port)
        again = Ends(ends.link, reader, writer)
        assert await again.echo(b"again") == b"again"
        ends.link.refuse()
        third, hopeless = await asyncio.open_connection("127.0.0.1", ends.link.port)
        assert await broken(third)
        ends.link.heal()
        for used in (writer, hopeless):
            used.transport.abort()

    over_a_link(test)


def test_a_dead_target_is_a_broken_connection() -> None:
    async def run() -> None:
        link = LinkProxy(("127.0.0.1", 1))
        port = await link.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(broken(reader), GUARD_S)
        writer.transport.abort()
        await link.close()

    asyncio.run(run())


def test_a_sender_is_held_back_by_a_slow_link() -> None:
    """Megabytes must not vanish into buffers at once: progress would be measured wrongly."""

    async def test(ends: Ends) -> None:
        taken = 0
        while not await silent(ends.writer.drain(), 0.2):  # type: ignore[arg-type]
            ends.writer.write(b"x" * 65_536)
            taken += 65_536
        assert taken < 8_000_000
        assert ends.link.up.bytes < 100_000

    over_a_link(test, up=Shape(rate=20_000))
