"""The one queue of a node: everything that happens to it stands in line here, and nothing happens beside it.

An event gets its time when it is taken out, so the order of the queue is the order of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.events import Event, PeerJoined, PeerLost
from async_hfl.nodes.reliability.delivery import Arrived, Packet, Receipt, TransferOver

_CROWD = 5000
Happening = Event | Arrived | TransferOver
Made = Callable[[float], Happening | None]
"""What happens, given the time it is taken from the inbox at; None: nothing, after all."""


class Inbox:
    """Use it on the loop's own thread; `from_thread` from others."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Made] = asyncio.Queue()

    @property
    def crowded(self) -> bool:
        """So many wait that peers had better wait too."""
        return self._queue.qsize() > _CROWD

    def put(self, made: Made) -> None:
        self._queue.put_nowait(made)

    def from_thread(self, made: Made) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, made)

    async def take(self, most: int) -> list[Made]:
        """At least one, and whatever else waits, at most so many."""
        batch = [await self._queue.get()]
        while len(batch) < most and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    # What a transport says -------------------------------------------------------------------------------------------

    def arrived(self, sender: Address, content: Packet | Receipt, transfer_s: float) -> None:
        """Something is here, whole and checked."""
        self.put(lambda at: Arrived(at, sender, content, transfer_s))

    def transfer_over(self, to: Address, number: int) -> None:
        """A packet is whole at its peer, or its transfer broke off, or there was no session to begin with."""
        self.put(lambda at: TransferOver(at, to, number))

    def peer_joined(self, peer: Address) -> None:
        self.put(lambda at: PeerJoined(at, peer))

    def peer_lost(self, peer: Address, why: str) -> None:
        self.put(lambda at: PeerLost(at, peer))
