"""The asyncio loop of a process: SIGINT and SIGTERM cancel its main task, so that everything is closed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The process received SIGINT or SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


def run_to_end(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like asyncio.run. Raises Interrupted after a signal."""
    return asyncio.run(_guarded(main))


async def _guarded(main: Coroutine[Any, Any, T]) -> T:

    loop = asyncio.get_running_loop()
    task = loop.create_task(main)
    asked: list[int] = []

    def end(number: int) -> None:
        asked.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if asked:
            raise Interrupted(asked[0]) from None
        raise
