"""Progress events: for peers whose transfers move, and not for others."""

from __future__ import annotations

import asyncio

from async_hfl.core.identifiers import CLOUD, device_address
from async_hfl.core.protocol.events import Progressed
from async_hfl.deployment.shell.inbox import Inbox, watch_progress
from async_hfl.deployment.transport.endpoint import TransferProgress

HANG_GUARD_S = 60.0


class Transfers:
    """One transfer moves at every look, one never does."""

    def __init__(self) -> None:
        self.looks = 0

    def transfers(self) -> list[TransferProgress]:
        self.looks += 1
        moving = TransferProgress(device_address(1), 5, True, 10, float(self.looks))
        stuck = TransferProgress(CLOUD, 7, False, 10, 3.0)
        return [moving, stuck]


def test_only_moving_transfers_are_reported() -> None:
    async def story() -> None:
        inbox, transfers = Inbox(), Transfers()
        watching = asyncio.ensure_future(watch_progress(transfers.transfers, inbox, every_s=0.01))
        found = []
        while len(found) < 4:
            found += await asyncio.wait_for(inbox.take(1), HANG_GUARD_S)
        watching.cancel()
        told = [made(1.0) for made in found]
        # At the first look both are new.
        assert told[:2] == [Progressed(1.0, CLOUD), Progressed(1.0, device_address(1))]
        assert told[2:] == [Progressed(1.0, device_address(1))] * 2

    asyncio.run(story())
