"""Telemetry from gateways to the cloud: a few numbers once a second, while an operator asks for the status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from async_hfl.core.errors import PeerError

WATCHED = b"watched"
"""Sent by the cloud to its gateways whenever an operator asks for the status."""
_EVERY_S = 1.0
_WATCHED_S = 15.0
_MOST_BYTES = 4096


class Telemetry:
    """The sending side, at a gateway: passes the result of `digest` to `tell` periodically."""

    def __init__(self, digest: Callable[[], dict[str, Any]], tell: Callable[[bytes], None]) -> None:
        self._digest = digest
        self._tell = tell
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None

    def watched(self) -> None:
        loop = asyncio.get_running_loop()
        self._until = loop.time() + _WATCHED_S
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._send())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._until:
            self._tell(msgspec.json.encode(self._digest()))
            await asyncio.sleep(_EVERY_S)


def read_digest(data: bytes) -> dict[str, Any]:
    """Decode and check a digest, which comes from a peer and is shown on an operator's terminal."""
    if len(data) > _MOST_BYTES:
        raise PeerError(f"a digest of {len(data)} bytes")
    try:
        found = msgspec.json.decode(data, type=dict[str, int | float | bool | str | None])
    except msgspec.DecodeError as error:
        raise PeerError(f"an invalid digest ({error})") from error
    return dict(found)
