"""An emulated network link: a TCP proxy in user space with a rate, a delay, outages and resets.

One proxy stands for one link between two nodes, so an outage affects only that link. "Up" is the direction from the
node that dials to the node that listens. Each direction has a rate (shared by all connections of the link), a delay and
a jitter. A stalled direction holds data back until it is healed, as when packets are lost and retransmitted. If both
are stalled, the link is a black hole: it also holds back the ends of connections, and accepts new ones that lead
nowhere. No privileges are needed.

    link = LinkProxy(("127.0.0.1", 7000), up=Shape(rate=20_000, delay_s=0.05))
    port = await link.open()
    link.stall(); link.heal(); link.reset(); link.shape(up=Shape(rate=1e6))
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
"""Transmission time of a piece; a change of shape takes effect within this time."""
_QUEUED_PIECES = 256
_SOCKET_BUFFER = 131_072
"""Small and fixed; by default the kernel would buffer megabytes that the link has not carried yet."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One direction of a link."""

    rate: float = math.inf
    """Bytes per second."""
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Each piece is delayed by up to this much more; pieces never overtake each other."""


class Direction:
    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        self.shape = shape
        self.bytes = 0
        """Bytes carried so far."""
        self.open = asyncio.Event()
        """Cleared while the direction is stalled."""
        self.open.set()
        self._rng = rng
        self._free_at = 0.0

    def piece_bytes(self) -> int:
        return int(min(max(self.shape.rate * _PIECE_S, _LEAST_BYTES), _MOST_BYTES))

    async def carry(self, size: int) -> float:
        """Wait until the bytes are on the link; return the time at which they arrive."""
        await self.open.wait()
        loop = asyncio.get_running_loop()
        begins = max(loop.time(), self._free_at)
        self._free_at = begins + size / self.shape.rate
        await _until(self._free_at)
        await self.open.wait()
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
        """Listen, and return the port."""
        listening = _new_socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        self._server = await asyncio.start_server(self._accept, sock=listening, limit=_MOST_BYTES)
        self.port = listening.getsockname()[1]
        return self.port

    @property
    def connections(self) -> int:
        return len(self._connections)

    def shape(self, up: Shape | None = None, down: Shape | None = None) -> None:
        """Change the shape of one or both directions."""
        self.up.shape = up or self.up.shape
        self.down.shape = down or self.down.shape

    def stall(self, *, up: bool = True, down: bool = True) -> None:
        if up:
            self.up.open.clear()
        if down:
            self.down.open.clear()

    def refuse(self) -> None:
        """Reset all connections and every new one, as if no process were listening."""
        self.refusing = True
        self.reset()

    def heal(self) -> None:
        """End stalls and refusals; the shape stays."""
        self.refusing = False
        self.up.open.set()
        self.down.open.set()

    def reset(self) -> None:
        """Reset every connection at both ends."""
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
        self._reset_sockets()
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        link = self._link
        await link.up.open.wait()
        await link.down.open.wait()
        try:
            reader, writer = await _dial(link.target)
        except OSError:
            self._reset_sockets()
            return
        self._writers.append(writer)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(self._reader, writer, link.up))
                both.create_task(_pump(reader, self._writers[0], link.down))
        except* OSError:
            self._reset_sockets()
        finally:
            for open_writer in self._writers:
                open_writer.close()

    def _reset_sockets(self) -> None:
        for writer in self._writers:
            sock = writer.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


def _new_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    return made


async def _dial(target: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = _new_socket()
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, target)
        return await asyncio.open_connection(sock=sock, limit=_MOST_BYTES)
    except BaseException:
        sock.close()
        raise


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
    """Copy data from one end to the other, with the rate and delay of the direction."""
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_PIECES)

    async def enter() -> None:
        with contextlib.suppress(OSError):  # reset at this end: the other end notices when the link passes data again
            while data := await reader.read(direction.piece_bytes()):
                await queue.put((await direction.carry(len(data)), data))
        await queue.put((0.0, b""))

    async def leave() -> None:
        while True:
            due, data = await queue.get()
            await _until(due)
            await direction.open.wait()  # a black hole also holds back the end of a connection
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


async def _until(at: float) -> None:
    wait = at - asyncio.get_running_loop().time()
    if wait > 0:
        await asyncio.sleep(wait)
