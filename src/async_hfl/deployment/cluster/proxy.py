"""A bad link on a good machine: a TCP proxy in user space that is slow, late, silent or rude as its owner says.

One proxy stands for one link between two nodes, so an outage is of that link alone. "Up" is from the node that dials to
the node that is dialled. A direction has a rate (shared by all connections of the link), a delay and a jitter; it can
be stalled: nothing passes, and everything passes later, as when packets are lost and sent again. A black hole is silent
both ways, swallows the end of connections, and lets new ones in that lead nowhere. No rights are needed.

    link = LinkProxy(("127.0.0.1", 7000), up=Shape(rate=20_000, delay_s=0.05))
    port = await link.open()
    link.black_hole(); link.heal(); link.reset(); link.shape(up=Shape(rate=1e6))
    await link.close()
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
from dataclasses import dataclass

import numpy as np

from async_hfl.core.randomness import stream

_MOST_BYTES = 65_536
_LEAST_BYTES = 512
_PIECE_S = 0.05
"""A piece is about so long on the line: a change of shape is felt that soon."""
_QUEUED_PIECES = 256
_SOCKET_BUFFER = 131_072
"""Small and fixed, or the kernel takes megabytes off a sender's hands before the link has carried any."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One direction of a link."""

    rate: float = math.inf
    """Bytes a second."""
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Each piece is up to this much later; pieces never overtake each other."""


class Direction:
    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        self.shape = shape
        self.bytes = 0
        """Carried so far."""
        self._rng = rng
        self._open = asyncio.Event()
        self._open.set()
        self._free_at = 0.0

    @property
    def stalled(self) -> bool:
        return not self._open.is_set()

    def stall(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    async def opened(self) -> None:
        await self._open.wait()

    def piece_bytes(self) -> int:
        return int(min(max(self.shape.rate * _PIECE_S, _LEAST_BYTES), _MOST_BYTES))

    async def carry(self, size: int) -> float:
        """Wait until so many bytes have gone onto the line; returns when they are at its other end."""
        await self._open.wait()
        loop = asyncio.get_running_loop()
        begins = max(loop.time(), self._free_at)
        self._free_at = begins + size / self.shape.rate
        await _until(self._free_at)
        await self._open.wait()
        self.bytes += size
        return loop.time() + self.shape.delay_s + float(self._rng.uniform(0.0, self.shape.jitter_s))


class LinkProxy:
    def __init__(
        self, target: tuple[str, int], *, up: Shape | None = None, down: Shape | None = None, seed: int = 0
    ) -> None:
        self.target = target
        self.up = Direction(up or Shape(), stream(seed, "link", "up"))
        self.down = Direction(down or Shape(), stream(seed, "link", "down"))
        self.refusing = False
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def open(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; returns the port."""
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        listening.bind((host, port))
        self._server = await asyncio.start_server(self._accept, sock=listening, limit=_MOST_BYTES)
        self.port = listening.getsockname()[1]
        return self.port

    @property
    def connections(self) -> int:
        return len(self._connections)

    def shape(self, up: Shape | None = None, down: Shape | None = None) -> None:
        """From now on; what is left out stays as it is."""
        self.up.shape = up or self.up.shape
        self.down.shape = down or self.down.shape

    def stall(self, *, up: bool = True, down: bool = True) -> None:
        if up:
            self.up.stall()
        if down:
            self.down.stall()

    def black_hole(self) -> None:
        self.stall()

    def refuse(self) -> None:
        """Reset what is there and whatever comes: the other end says that there is nobody."""
        self.refusing = True
        self.reset()

    def heal(self) -> None:
        """Nothing stalls any more; the shape stays."""
        self.refusing = False
        self.up.resume()
        self.down.resume()

    def reset(self) -> None:
        """Break every connection now, at both ends."""
        for connection in tuple(self._connections):
            connection.reset()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        over = [connection.task for connection in self._connections if connection.task is not None]
        self.reset()
        await asyncio.gather(*over, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        if self.refusing:
            connection.reset()
            return
        self._connections.add(connection)
        connection.task = asyncio.current_task()
        try:
            await connection.run()
        except asyncio.CancelledError:
            pass  # reset
        finally:
            self._connections.discard(connection)


class _Connection:
    def __init__(self, link: LinkProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.task: asyncio.Task[None] | None = None
        self._link = link
        self._reader = reader
        self._writers = [writer]

    def reset(self) -> None:
        for writer in self._writers:
            _reset(writer)
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        link = self._link
        await link.up.opened()
        await link.down.opened()
        try:
            reader, writer = await _dial(link.target)
        except OSError:
            self.reset_quietly()
            return
        self._writers.append(writer)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(self._reader, writer, link.up))
                both.create_task(_pump(reader, self._writers[0], link.down))
        except* OSError:
            self.reset_quietly()
        finally:
            for open_writer in self._writers:
                open_writer.close()

    def reset_quietly(self) -> None:
        for writer in self._writers:
            _reset(writer)


async def _dial(target: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    try:
        await asyncio.get_running_loop().sock_connect(sock, target)
        return await asyncio.open_connection(sock=sock, limit=_MOST_BYTES)
    except BaseException:
        sock.close()
        raise


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
    """Everything one end says, to the other end, as the direction allows."""
    line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_PIECES)

    async def enter() -> None:
        while data := await _read(reader, direction):
            await line.put((await direction.carry(len(data)), data))
        await line.put((0.0, b""))

    async def leave() -> None:
        while True:
            due, data = await line.get()
            await _until(due)
            await direction.opened()  # also the end of a connection does not get through a black hole
            if not data:
                break
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            with contextlib.suppress(OSError):
                writer.write_eof()

    async with asyncio.TaskGroup() as both:
        both.create_task(enter())
        both.create_task(leave())


async def _read(reader: asyncio.StreamReader, direction: Direction) -> bytes:
    try:
        return await reader.read(direction.piece_bytes())
    except OSError:
        return b""  # broken off at this end: the other end hears of it when the link lets it


async def _until(at: float) -> None:
    wait = at - asyncio.get_running_loop().time()
    if wait > 0:
        await asyncio.sleep(wait)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
