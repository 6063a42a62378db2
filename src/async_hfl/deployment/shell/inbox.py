"""The event queue of a node. An event gets its time when it is taken out, so queue and log have the same order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.events import PeerJoined, PeerLost, Progressed
from async_hfl.deployment.transport.endpoint import TransferProgress
from async_hfl.deployment.transport.transfers.spool import SpooledPacket
from async_hfl.nodes.reliability.delivery import Arrived, NodeEvent, Packet, Receipt, TransferOver

_CROWDED_FROM = 5000
_PROGRESS_EVERY_S = 10.0
"""Far shorter than any timeout, and long enough not to fill the log."""
MakeEvent = Callable[[float], NodeEvent | None]
"""Makes an event, given the time at which it is taken from the inbox; None if it no longer applies."""
Adopt = Callable[[Path, bytes, memoryview], None]


def _delete(path: Path, digest: bytes, data: memoryview) -> None:
    path.unlink(missing_ok=True)


class Inbox:
    """The queue. Other threads than the loop's own must use `from_thread`.

    `adopt` takes over the file that a packet arrived in, just before the packet's event is handled."""

    def __init__(self, adopt: Adopt = _delete) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[MakeEvent] = asyncio.Queue()
        self._adopt = adopt
        self._waiting: Counter[Address] = Counter()
        self.put = self._queue.put_nowait

    @property
    def crowded(self) -> bool:
        """True if so many events are queued that reading from peers should pause."""
        return self._queue.qsize() > _CROWDED_FROM

    def from_thread(self, make: MakeEvent) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, make)

    async def take(self, most: int) -> list[MakeEvent]:
        """Wait for an event; return it with those queued behind it, at most `most` in all."""
        batch = [await self._queue.get()]
        while len(batch) < most and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    def waiting(self, sender: Address) -> int:
        """Return the number of packets of this peer that have arrived and not been taken."""
        return self._waiting[sender]

    # Called by a transport -------------------------------------------------------------------------------------------

    def arrived(
        self, sender: Address, content: Packet | Receipt, transfer_s: float, spooled: SpooledPacket | None = None
    ) -> None:
        """Queue a packet or receipt that has arrived, complete and validated."""
        self._waiting[sender] += 1

        def make(at: float) -> Arrived:
            self._waiting[sender] -= 1
            if spooled is not None:
                self._adopt(spooled.path, spooled.digest, spooled.data)
            return Arrived(at, sender, content, transfer_s)

        self.put(make)

    def transfer_over(self, to: Address, number: int) -> None:
        """Queue the end of a transfer: the packet has arrived at the peer, or its transfer broke off."""
        self.put(lambda at: TransferOver(at, to, number))

    def peer_joined(self, peer: Address) -> None:
        self.put(lambda at: PeerJoined(at, peer))

    def peer_lost(self, peer: Address, why: str) -> None:
        self.put(lambda at: PeerLost(at, peer))


async def watch_progress(
    transfers: Callable[[], list[TransferProgress]], inbox: Inbox, every_s: float = _PROGRESS_EVERY_S
) -> None:
    """Queue an event periodically for each peer whose transfer has moved, so that a slow peer does not time out."""
    seen: dict[tuple[Address, int, bool], float] = {}
    while True:
        await asyncio.sleep(every_s)
        now = {(one.peer, one.number, one.outgoing): one.progress_at for one in transfers()}
        for peer in sorted({key[0] for key, at in now.items() if at > seen.get(key, -1.0)}):
            inbox.put(partial(Progressed, peer=peer))
        seen = now
