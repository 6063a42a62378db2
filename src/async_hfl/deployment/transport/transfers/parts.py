"""The two ends of a large transfer: chunks cut from an encoded packet, and chunks written to a spooled part."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from async_hfl.deployment.transport.transfers.spool import Part
from async_hfl.deployment.transport.transfers.window import Window
from async_hfl.encoding.packet_codec import Buffer

_HASHED_IN_THREAD = 2**20
_WRITTEN_AT_ONCE = 1024 * 1024
_WRITTEN_EVERY_S = 1.0
_WRITTEN_INLINE = 512 * 1024
"""A packet up to this size is written on the loop's own thread: the page cache takes it at once."""


@dataclass(slots=True)
class Outgoing:
    """A packet offered to a peer."""

    number: int
    pieces: Sequence[Buffer]
    length: int
    progress_at: float
    sent: int = 0
    """Bytes put on the wire, or received by the peer in an earlier transfer."""
    window: Window | None = None
    """None until the transfer has started."""
    ends: list[int] = field(default_factory=list)
    _acknowledged: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def arrived(self) -> int:
        """Bytes that the peer has acknowledged."""
        return 0 if self.window is None else self.window.arrived

    def begin(self, offset: int, window: int) -> None:
        self.sent = offset
        self.window = Window(offset, window)

    def acknowledged(self, upto: int, now: float) -> None:
        if self.window is not None and upto <= self.sent:
            self.window.acknowledged(upto, now)
            self.progress_at = now
            self._acknowledged.set()

    async def next_chunk(self, stall_s: float, most: int = sys.maxsize) -> bytes:
        """Return the next chunk when the window has room. Raises TimeoutError without acknowledgement for `stall_s`."""
        assert self.window is not None
        while (room := self.window.room(self.sent)) <= 0:
            self._acknowledged.clear()
            async with asyncio.timeout(stall_s):
                await self._acknowledged.wait()
        return self.chunk(self.sent, min(room, most))

    def chunk(self, offset: int, most: int) -> bytes:
        """Return up to `most` bytes from an offset on."""
        if not self.ends:
            self.ends = list(accumulate(map(len, self.pieces)))
        taken: list[Buffer] = []
        place = bisect_right(self.ends, offset)
        begin = offset - (self.ends[place - 1] if place else 0)
        while most > 0 and place < len(self.pieces):
            part = memoryview(self.pieces[place])[begin : begin + most]
            taken.append(part)
            most -= len(part)
            place, begin = place + 1, 0
        return b"".join(taken)


@dataclass(slots=True)
class Incoming:
    """A packet that a peer offered."""

    transfer: int
    number: int
    part: Part
    started_at: float
    progress_at: float
    written_at: float

    async def write(self, data: bytes) -> None:
        """Queue bytes and flush them in large writes."""
        self.part.add(data)
        due = self.part.waiting >= _WRITTEN_AT_ONCE or self.progress_at - self.written_at > _WRITTEN_EVERY_S
        if due and self.part.arrived < self.part.length:
            await self.flush()

    async def flush(self) -> None:
        """Write what is queued, a large packet on a thread: a slow disk must not delay heartbeats."""
        self.written_at = self.progress_at
        if not self.part.waiting:
            return
        if self.part.length <= _WRITTEN_INLINE:
            self.part.drain()
        else:
            await asyncio.to_thread(self.part.drain)


async def digest_of(pieces: Sequence[Buffer], length: int) -> bytes:
    """Return the SHA-256 of the pieces, computed on a thread if they are large."""

    def digest() -> bytes:
        found = hashlib.sha256()
        for piece in pieces:
            found.update(piece)
        return found.digest()

    return digest() if length < _HASHED_IN_THREAD else await asyncio.to_thread(digest)
