"""Who cannot reach anybody keeps trying for a long time, but not for ever: then it ends and says so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from async_hfl.core.errors import SettingsError, UnreachableError

GIVE_UP_S = 24 * 3600.0
"""Longer than a night without power, or a gateway's day in repair; a service manager starts us again after it."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LOOKS = 20
_LOOK_MOST_S = 5.0


def read_patience(text: str) -> float:
    """Seconds of `90s`, `15m`, `24h`, `7d` or `never`."""
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


class Patience:
    """Runs out when nobody has answered for so long; whoever hears something says so."""

    def __init__(self, seconds: float, whom: str) -> None:
        self._seconds = seconds
        self._whom = whom
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()

    def heard(self) -> None:
        self._heard_at = self._loop.time()

    def check(self) -> None:
        if self._loop.time() - self._heard_at > self._seconds:
            raise UnreachableError(
                f"gave up after {_told(self._seconds)} without an answer from {self._whom} (--give-up); nothing is "
                "lost: started again with the same --state it goes on where it was"
            )

    async def watch(self, in_touch: Callable[[], bool]) -> None:
        """Until it runs out."""
        while True:
            if in_touch():
                self.heard()
            self.check()
            await asyncio.sleep(min(self._seconds / _LOOKS, _LOOK_MOST_S))


def _told(seconds: float) -> str:
    unit = max((unit for unit in _UNITS if seconds >= _UNITS[unit]), key=lambda unit: _UNITS[unit], default="s")
    return f"{seconds / _UNITS[unit]:g} {unit}"
