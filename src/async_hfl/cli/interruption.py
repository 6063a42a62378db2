"""Ctrl-C and SIGTERM during a simulated run: a checkpoint is saved, and the command that continues is printed."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from async_hfl.api import Run
from async_hfl.cli.common import Interruption
from async_hfl.simulation.pausing import PauseRequest

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2
_NOTE = "\nsaving a checkpoint; a second signal ends the run without it\n"


class Signals:
    """The signals that arrive while a run is made. The first asks for a checkpoint, a second ends the run at once."""

    def __init__(self) -> None:
        self.pause = PauseRequest()
        self.directory: Path | None = None
        """The run directory, once it exists. Before that, there is nothing to save."""
        self._number = int(signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        if self.directory is None:
            raise Interruption("interrupted before the run began", number)
        if self.pause():
            raise self.interruption("interrupted; what came after the last checkpoint is lost")
        os.write(_STDERR, _NOTE.encode())  # sys.stderr may be in the middle of a write
        self.pause.make()

    def interruption(self, what: str = "interrupted") -> Interruption:
        again = shlex.join(["async-hfl", "resume", str(self.directory)])
        return Interruption(f"{what}; `{again}` continues the run", self._number)


def make_run(make: Callable[[Signals], Run]) -> Run:
    """Call `make`, which notes the run directory and passes `pause` on. Raises Interruption if the run was paused.

    SIGINT is handled even if it was ignored, as in a command started with `&`."""
    signals = Signals()
    # Python lets only the main thread set handlers.
    handled = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, signals.handle) for number in handled}
    try:
        made = make(signals)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not made.complete and signals.pause():
        raise signals.interruption()
    return made
