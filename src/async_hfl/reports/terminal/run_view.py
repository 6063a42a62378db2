"""The progress of a run: a live line in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.text import Text

from async_hfl.reports.tables.bandwidth import bandwidth_text
from async_hfl.reports.tables.formatting import duration, size
from async_hfl.reports.tables.run_names import network_name, task_name
from async_hfl.reports.terminal.console import console as make_console
from async_hfl.reports.terminal.live import LiveDisplay, live_display
from async_hfl.simulation.recorded_run import Progress


class RunView:
    """A live line on stderr (stdout is for results), or a plain line every few seconds if it is not a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = make_console(stderr=True)
        self._live: LiveDisplay | None = None
        self._head: list[RenderableType] = []
        """Lines above the progress where it is all that is shown: in a notebook."""
        self._name, self._epochs, self._target = "", 1, 0.0
        self._first: tuple[float, int] | None = None
        """Time and epoch of the first evaluation; compilation and warm-up before it say nothing about the speed."""
        self._printed = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, run: Any, settings: Any) -> None:
        manifest = run.manifest
        self._name = (
            f"{manifest['method']} · {task_name(manifest)} · {network_name(manifest)} · seed {manifest['seed']}"
        )
        self._epochs, self._target = settings.last_epoch, settings.task.target
        for warning in manifest.get("warnings", ()):
            sys.stderr.write(f"note: {warning}\n")
        if self._quiet:
            return
        head = [Text.assemble((self._name, "bold"), f"  → {run.path}")]
        if bandwidth := bandwidth_text(manifest):
            head.append(Text(f"bandwidth {bandwidth}"))
        self._live = live_display(self._console)
        if self._live is not None and self._live.alone:
            self._head += head
        else:
            for line in head:
                self._console.print(line, soft_wrap=True, highlight=False)
        if self._live is not None:
            self._live.start()
            self._live.update(Group(*self._head, Text("compiling …")))

    def epoch(self, progress: Progress) -> None:
        if self._quiet:
            return
        text = self.line(progress)
        if self._live is not None:
            self._live.update(Group(*self._head, text))
        elif time.monotonic() - self._printed > 5:
            self._printed = time.monotonic()
            sys.stderr.write(text.plain + "\n")

    def line(self, progress: Progress) -> Text:
        """Return the progress in one line; on a narrow terminal, without its last parts."""
        now = time.monotonic()
        since, first = self._first = self._first or (now, progress.epoch)
        parts = [
            Text(f"{duration(progress.at):>11}", "cyan"),
            Text(f"epoch {progress.epoch} of {self._epochs}"),
            Text.assemble(
                (f"metric {progress.metric:.4f}", "bold green" if progress.metric >= self._target else "bold"),
                f" of {self._target:g}",
            ),
            Text(f"{size(progress.bytes_total):>8}"),
        ]
        if progress.epoch > first:
            left = (now - since) / (progress.epoch - first) * max(self._epochs - progress.epoch, 0)
            roughly = " ".join(duration(left).split()[:2])
            parts.append(Text(f"≤ {roughly} left", "dim"))
            parts.append(Text(f"{progress.updates_per_s:,.0f} updates/s"))
        line = parts[0]
        for part in parts[1:]:
            if line.cell_len + 2 + part.cell_len < self._console.width:
                line = Text("  ").join([line, part])
        return line
