"""The queue of a node: everything that happens to a node passes through it, one event after the other.

An event gets its time when it is taken out, so the order of the queue is the order of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.events import Event, PeerJoined, PeerLost, Progressed
from async_hfl.deployment.transport.endpoint import Progress
from async_hfl.deployment.transport.transfers.spool import SpooledPacket
from async_hfl.nodes.reliability.delivery import Arrived, Packet, Receipt, TransferOver

_CROWD = 5000
_PROGRESS_EVERY_S = 10.0
"""Far less than any timeout, and rarely enough not to bloat the log."""
NodeEvent = Event | Arrived | TransferOver
MakeEvent = Callable[[float], NodeEvent | None]
"""Returns the event, given the time at which it is taken from the inbox; None if it no longer applies."""
Adopt = Callable[[Path, bytes, memoryview], None]


def _delete(path: Path, digest: bytes, data: memoryview) -> None:
    path.unlink(missing_ok=True)


class Inbox:
    """Use it on the loop's own thread, and `from_thread` from other threads.

    `adopt` takes over the file that a packet arrived in, just before the event is handled."""

    def __init__(self, adopt: Adopt = _delete) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[MakeEvent] = asyncio.Queue()
        self._adopt = adopt
        self.put = self._queue.put_nowait

    @property
    def crowded(self) -> bool:
        """True if so many events wait that peers should be slowed down."""
        return self._queue.qsize() > _CROWD

    def from_thread(self, make: MakeEvent) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, make)

    async def take(self, most: int) -> list[MakeEvent]:
        """Wait for an event; return it with those that wait behind it, up to `most`."""
        batch = [await self._queue.get()]
        while len(batch) < most and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    # Called by a transport -------------------------------------------------------------------------------------------

    def arrived(
        self, sender: Address, content: Packet | Receipt, transfer_s: float, spooled: SpooledPacket | None = None
    ) -> None:
        """A packet or receipt has arrived, complete and validated."""
        if spooled is None:
            self.put(lambda at: Arrived(at, sender, content, transfer_s))
            return

        def make(at: float) -> Arrived:
            self._adopt(spooled.path, spooled.digest, spooled.data)
            return Arrived(at, sender, content, transfer_s)

        self.put(make)

    def transfer_over(self, to: Address, number: int) -> None:
        """A packet has arrived at its peer, or its transfer broke off."""
        self.put(lambda at: TransferOver(at, to, number))

    def peer_joined(self, peer: Address) -> None:
        self.put(lambda at: PeerJoined(at, peer))

    def peer_lost(self, peer: Address, why: str) -> None:
        self.put(lambda at: PeerLost(at, peer))


class HasTransfers(Protocol):
    def transfers(self) -> list[Progress]: ...


async def watch_progress(transport: HasTransfers, inbox: Inbox, every_s: float = _PROGRESS_EVERY_S) -> None:
    """Tell a node periodically which of its peers have a large transfer that is moving: slow peers are not silent."""
    seen: dict[tuple[Address, int, bool], float] = {}
    while True:
        await asyncio.sleep(every_s)
        now = {(one.peer, one.number, one.outgoing): one.progress_at for one in transport.transfers()}
        for peer in sorted({key[0] for key, at in now.items() if at > seen.get(key, -1.0)}):
            inbox.put(partial(_progressed, peer))
        seen = now


def _progressed(peer: Address, at: float) -> Progressed:
    return Progressed(at, peer)
