"""Slow is not silent: a node is told now and then which of its peers it has a large transfer moving with."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.events import Progressed
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.transport.transport import Progress

EVERY_S = 10.0
"""Far less than any patience, and seldom enough that the log does not notice."""


class HasTransfers(Protocol):
    def transfers(self) -> list[Progress]: ...


async def watch_progress(transport: HasTransfers, inbox: Inbox, every_s: float = EVERY_S) -> None:
    """For ever."""
    seen: dict[tuple[Address, int, bool], float] = {}
    while True:
        await asyncio.sleep(every_s)
        now = {(one.peer, one.number, one.outgoing): one.progress_at for one in transport.transfers()}
        moved = {key[0] for key, at in now.items() if at > seen.get(key, -1.0)}
        for peer in sorted(moved):
            inbox.put(partial(_progressed, peer))
        seen = now


def _progressed(peer: Address, at: float) -> Progressed:
    return Progressed(at, peer)
