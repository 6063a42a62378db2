"""The deadline by which a process that cannot reach any server ends (`--give-up`)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from async_hfl.core.errors import SettingsError, UnreachableError

GIVE_UP_S = 24 * 3600.0
"""Longer than a power cut overnight, or a day's repair of a gateway. A service manager then restarts the process."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CHECKS = 20
_CHECK_MOST_S = 5.0


def parse_duration(text: str) -> float:
    """Return the seconds of `90s`, `15m`, `24h`, `7d` or `never`."""
    if text == "never":
        return math.inf
    number, unit = text[:-1], text[-1:]
    try:
        seconds = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 < seconds < math.inf:
        raise SettingsError(f"--give-up {text}: write it as 90s, 15m, 24h, 7d or never")
    return seconds


class ReconnectDeadline:
    """A deadline that expires after `seconds` without contact; every contact extends it."""

    def __init__(self, seconds: float, targets: str) -> None:
        self._seconds = seconds
        self._targets = targets
        self._loop = asyncio.get_running_loop()
        self._contact_at = self._loop.time()

    def extend(self) -> None:
        self._contact_at = self._loop.time()

    def check(self) -> None:
        """Raise UnreachableError if the deadline has expired."""
        if self._loop.time() - self._contact_at > self._seconds:
            raise UnreachableError(
                f"gave up after {_text(self._seconds)} without an answer from {self._targets} (--give-up); nothing is "
                "lost: if started again with the same --state, the node continues"
            )

    async def watch(self, in_touch: Callable[[], bool]) -> None:
        """Check periodically until the deadline expires; `in_touch` returns True after any contact."""
        while True:
            if in_touch():
                self.extend()
            self.check()
            await asyncio.sleep(min(self._seconds / _CHECKS, _CHECK_MOST_S))


def _text(seconds: float) -> str:
    unit = max((unit for unit in _UNITS if seconds >= _UNITS[unit]), key=lambda unit: _UNITS[unit], default="s")
    return f"{seconds / _UNITS[unit]:g} {unit}"
