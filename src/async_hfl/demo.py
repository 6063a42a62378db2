"""The demonstration: six methods race to 90 % on handwritten digits over 60 sites and 6 gateways of NYC Mesh."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from async_hfl import api
from async_hfl.assembly.runs.provenance import check_seed
from async_hfl.core.errors import RunDirectoryError
from async_hfl.journal.run_directory import RUN_FILES, RunDirectory
from async_hfl.reports.data.experiment import RunGroup
from async_hfl.reports.figures.learning_curves import draw_groups
from async_hfl.reports.figures.pictures import NO_PICTURES, can_draw
from async_hfl.reports.pages.report_files import write_reports
from async_hfl.reports.tables.comparison import compare, comparison_table
from async_hfl.reports.tables.formatting import duration, size
from async_hfl.reports.tables.table import as_rich
from async_hfl.reports.terminal.console import console as make_console
from async_hfl.simulation.recorded_run import Progress

METHODS = ("async-hfl-plus", "fedbuff", "semi-async", "two-tier", "async-hfl", "async-random")
REFERENCE = "async-random"
TITLE = "Handwritten digits over 60 sites and 6 gateways of NYC Mesh, tight bandwidth"
_BAR = 16
_PLOT, _TABLE, _PAGE = "curves.png", "table.txt", "report.html"


def demo(out: Path, seed: int, *, quiet: bool) -> dict[str, Any]:
    check_seed(seed)
    _clear(out)
    console = make_console(stderr=quiet, quiet=quiet)
    console.print(
        f"[bold]{TITLE}[/bold]\nEach method runs until its mean accuracy over a window reaches 90 %. Seed {seed}.\n"
    )
    runs: list[RunDirectory] = []
    with _RaceView(console) as view:
        for method in METHODS:
            view.begin(method)
            made = api.run(
                task="digits",
                method=method,
                network="nycmesh-paper",
                seed=seed,
                out=out / method,
                progress=False,
                on_epoch=view.epoch,
            )
            view.end(made.summary)
            runs.append(made.directory)
    rows = compare(runs, REFERENCE)
    console.print()
    console.print(as_rich(comparison_table(rows, REFERENCE, "Race to 90 %")))
    plot = out / _PLOT
    drawn = can_draw()
    if drawn:
        draw_groups([RunGroup(run.path.name, (run.path,)) for run in runs], plot, TITLE)
    table = out / _TABLE
    with table.open("w") as file:
        Console(file=file, width=120).print(as_rich(comparison_table(rows, REFERENCE, TITLE)))
    page = out / _PAGE
    write_reports([run.path for run in runs], [page], f"async-hfl report {out}")
    console.print(
        f"\npage   {page}  (open it in a browser)\nplot   {plot if drawn else NO_PICTURES}\ntable  {table}\n"
        f"runs   {out}  (`async-hfl report {runs[0].path}` makes a page about the first)",
        markup=False,
        soft_wrap=True,
    )
    files = {"out": str(out), "page": str(page), "plot": str(plot) if drawn else None, "table": str(table)}
    return {**files, "seed": seed, "rows": [asdict(row) for row in rows]}


def _clear(out: Path) -> None:
    """Remove the files of an earlier demonstration; raise an error if there are any others."""
    entries = list(out.iterdir()) if out.is_dir() else [out] if out.exists() else []
    others = [entry.name for entry in entries if not _is_ours(entry)]
    if others:
        raise RunDirectoryError(f"{out}: contains other files ({', '.join(others[:3])}); give another --out")
    for entry in entries:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _is_ours(entry: Path) -> bool:
    if entry.name in (_PLOT, _TABLE, _PAGE):
        return entry.is_file()
    return entry.name in METHODS and entry.is_dir() and {file.name for file in entry.iterdir()} <= RUN_FILES


@dataclass(slots=True)
class _Line:
    method: str
    metric: float = 0.0
    at: float = 0.0
    bytes_total: int = 0
    state: str = "compiling …"


class _RaceView:
    """The progress of the race in a terminal: one line per method, at most 80 columns wide."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: list[_Line] = []
        self._live: Live | None = None
        if console.is_terminal and not console.quiet:
            self._live = Live(console=console, refresh_per_second=8)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, method: str) -> None:
        self._lines.append(_Line(method))
        self._draw()

    def epoch(self, progress: Progress) -> None:
        line = self._lines[-1]
        line.metric, line.at, line.bytes_total = progress.metric, progress.at, progress.bytes_total
        line.state = f"{progress.updates_per_s:,.0f} updates/s"
        self._draw()

    def end(self, summary: dict[str, Any]) -> None:
        line = self._lines[-1]
        line.state = "reached" if summary["target_reached"] else "not reached"
        if summary["target_reached"]:  # the run has gone on to the end of the window
            line.at, line.bytes_total = summary["time_to_target_s"], summary["bytes_to_target"]
        if self._live is None:
            spent = f"{duration(line.at):>11}  {size(line.bytes_total):>8}"
            self._console.print(f"{line.method:<16}{line.metric:.3f}  {spent}  {line.state}")
        else:
            self._draw()

    def _draw(self) -> None:
        if self._live is None:
            return
        grid = Table.grid(padding=(0, 2, 0, 0))
        for justify in ("left", "left", "right", "right", "right", "left"):
            grid.add_column(justify=justify, no_wrap=True)
        for line in self._lines:
            full = round(_BAR * line.metric)
            style = "green" if line.metric >= 0.9 else "cyan"
            bar = Text("━" * full, style=style) + Text("━" * (_BAR - full), style="grey30")
            method, state = Text(line.method, style="bold"), Text(line.state, style="dim")
            grid.add_row(method, bar, f"{line.metric:.3f}", duration(line.at), size(line.bytes_total), state)
        self._live.update(grid)
