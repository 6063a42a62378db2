"""The progress of a sweep on stderr: one bar for the whole and a line for each run in progress."""

from __future__ import annotations

import time
from typing import Any, Self

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.sweeps.worker_pool import PoolShape
from async_hfl.reports.tables.formatting import duration
from async_hfl.reports.terminal.console import console as make_console
from async_hfl.reports.terminal.live import LiveDisplay, live_display

_MOST_LINES = 12
_BAR = 16
_WIDE = 100
"""Columns of a terminal that has room for the speed of each run."""


class SweepView:
    def __init__(self, title: str, *, quiet: bool, panels: bool = True) -> None:
        """Create the view; with `panels` the name of a run includes its panel."""
        self._title = title
        self._panels = panels
        self._quiet = quiet
        self._console = make_console(stderr=True)
        self._live: LiveDisplay | None = None
        self._total = self._already_complete = self._ended = 0
        self._notes: list[Text] = []
        """The lines printed so far, where the display is all that is shown: in a notebook."""
        self._running: dict[str, tuple[PlannedRun, dict[str, Any]]] = {}
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._live = None if self._quiet else live_display(self._console)
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def began(self, total: int, done: int, shape: PoolShape) -> None:
        self._total, self._already_complete, self._began = total, done, time.monotonic()
        known = f", {done:,} of them already complete" if done else ""
        together = f" with {shape.width} runs at a time" if shape.width > 1 else ""
        by = f"; {shape.workers} workers{together}" if shape.workers else ""
        self._say(Text.assemble((self._title, "bold"), f": {total:,} runs{known}{by}"))

    def status(self, run: PlannedRun, data: dict[str, Any]) -> None:
        match data["what"]:
            case "began" | "epoch":
                self._running[run.id] = (run, data)
            case "done":
                self._ended += 1
                self._running.pop(run.id, None)
                if self._live is None:
                    count = self._already_complete + self._ended
                    self._say(Text(f"[{count}/{self._total}] {self._name(run)}: {_result(run, data)}"))
            case _:
                self._running.pop(run.id, None)
        if self._live is not None:
            self._live.update(self.drawn())

    def note(self, text: str) -> None:
        self._say(Text(text, style="yellow"))

    def _name(self, run: PlannedRun) -> str:
        return run.name if self._panels else f"{run.group} · seed {run.seed}"

    def _say(self, text: Text) -> None:
        if self._live is not None and self._live.alone:
            self._notes.append(text)
            self._live.update(self.drawn())
        elif not self._quiet:
            self._console.print(text, soft_wrap=True)

    def drawn(self) -> Group:
        """Return the progress so far; on a narrow terminal without speeds, and with long names of runs cut off."""
        done = self._already_complete + self._ended
        spent = time.monotonic() - self._began
        left = f", about {duration(spent / self._ended * (self._total - done))} to go" if self._ended else ""
        head = Table.grid(padding=(0, 2, 0, 0))
        head.add_row(
            ProgressBar(self._total, done, width=20), f"{done:,} of {self._total:,} runs", f"{duration(spent)}{left}"
        )
        wide = self._console.width >= _WIDE
        lines = Table.grid(padding=(0, 2, 0, 0))
        lines.add_column()  # the one that is made narrower, since the others must not be
        for _ in range(4):
            lines.add_column(no_wrap=True)
        for run, data in list(self._running.values())[:_MOST_LINES]:
            epoch = data.get("epoch", 0)
            lines.add_row(
                Text(self._name(run), style="bold", no_wrap=True, overflow="ellipsis"),
                ProgressBar(run.epochs, min(epoch, run.epochs), width=_BAR),
                f"epoch {epoch}",
                f"{data['metric']:.4f} of {run.target:g}" if epoch else "starting",
                Text(f"{data['updates_per_s']:,.0f} updates/s" if epoch and wide else "", style="dim"),
            )
        more = len(self._running) - _MOST_LINES
        return Group(*self._notes, head, lines, *([Text(f"and {more} more", style="dim")] if more > 0 else []))


def _result(run: PlannedRun, data: dict[str, Any]) -> str:
    if not data.get("epoch"):
        return "done"
    reached = f"reached {run.target:g} after {duration(data['at'])}"
    missed = f"target not reached, metric {data['metric']:.4f}"
    return f"{reached if data['reached'] else missed}, {data['epoch']:,} epochs"
