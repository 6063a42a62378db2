"""Tables and progress in notebooks. A display of our own, because that of rich needs ipywidgets there."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

_WIDTH = 110
_INTERVAL_S = 0.25
_PRE = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'


def in_notebook() -> bool:
    """True in a kernel of Jupyter, which shows HTML, and false in a terminal, with or without IPython."""
    shell = sys.modules.get("IPython")
    running: Any = None if shell is None else shell.get_ipython()
    return running is not None and hasattr(running, "kernel")


def as_html(*parts: RenderableType) -> str:
    """Return text and tables of rich as HTML."""
    console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))  # a long line can be scrolled, and copied whole
    return console.export_html(code_format=_PRE, inline_styles=True)


class NotebookDisplay:
    """An output of a cell that is updated in place, and is empty in the end."""

    alone = True
    """Lines above it would be outputs of their own and stay, so they are part of the display."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._updated = 0.0

    def start(self) -> None:
        display: Any = sys.modules["IPython"].display.display
        self._handle = display({"text/html": ""}, raw=True, display_id=True)

    def update(self, drawn: RenderableType) -> None:
        now = time.monotonic()
        if now - self._updated >= _INTERVAL_S:
            self._updated = now
            self._handle.update({"text/html": as_html(drawn)}, raw=True)

    def stop(self) -> None:
        self._handle.update({"text/html": ""}, raw=True)
