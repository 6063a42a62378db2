"""Displays that are updated in place: in a terminal by rich, in a notebook by one of ours."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live

from async_hfl.reports.terminal.notebook import NotebookDisplay, in_notebook


class LiveDisplay(Protocol):
    @property
    def alone(self) -> bool:
        """True if it shows everything, and nothing should be printed above it."""

    def start(self) -> None: ...
    def update(self, drawn: RenderableType) -> None: ...
    def stop(self) -> None: ...


class TerminalDisplay:
    """The last lines of a terminal."""

    alone = False

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def start(self) -> None:
        self._live.start()

    def update(self, drawn: RenderableType) -> None:
        self._live.update(drawn)

    def stop(self) -> None:
        self._live.stop()


def live_display(console: Console) -> LiveDisplay | None:
    """Return a display for the console; None if nothing can be updated there."""
    if in_notebook():
        return NotebookDisplay()
    return TerminalDisplay(console) if console.is_terminal else None
