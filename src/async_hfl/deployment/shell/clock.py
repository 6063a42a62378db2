"""A node's one clock: seconds since its run began, as far as it was awake.

`at` = the last durable `at` + monotonic time since the process started. Wall time is never read, so a clock that
somebody sets back changes nothing, and the time that a node was down does not count: timers go on with what was left.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    def __init__(self, last_at: float = 0.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._start = monotonic() - last_at

    def now(self) -> float:
        return self._monotonic() - self._start
