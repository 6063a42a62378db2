"""Terminal output of a run: a live line while it is running, and a table of its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from async_hfl.core.protocol.records import DEVICE_UPDATE
from async_hfl.reports.tables.bandwidth import bandwidth_text
from async_hfl.reports.tables.formatting import duration, percent, size
from async_hfl.reports.tables.run_tables import byte_ledger, conditions_hold
from async_hfl.simulation.recorded_run import Progress


class RunView:
    """A live line on stderr (stdout is for results), or a plain line every few seconds if it is not a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._name, self._epochs, self._target = "", 1, 0.0
        self._began = 0.0
        self._printed = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, run: Any, settings: Any) -> None:
        manifest = run.manifest
        self._name = f"{manifest['method']} · {manifest['task']} · {manifest['network']} · seed {manifest['seed']}"
        self._epochs, self._target = settings.last_epoch, settings.task.target
        self._began = time.monotonic()
        for warning in manifest.get("warnings", ()):
            sys.stderr.write(f"note: {warning}\n")
        if self._quiet:
            return
        self._console.print(Text.assemble((self._name, "bold"), f"  → {run.path}"), soft_wrap=True)
        if bandwidth := bandwidth_text(manifest):
            self._console.print(f"bandwidth {bandwidth}", highlight=False)
        if self._console.is_terminal:
            self._live = Live(Text("compiling …"), console=self._console, refresh_per_second=8, transient=True)
            self._live.start()

    def epoch(self, progress: Progress) -> None:
        if self._quiet:
            return
        text = self.line(progress)
        if self._live is not None:
            self._live.update(text)
        elif time.monotonic() - self._printed > 5:
            self._printed = time.monotonic()
            sys.stderr.write(text.plain + "\n")

    def line(self, progress: Progress) -> Text:
        spent = time.monotonic() - self._began
        left = spent / max(progress.epoch, 1) * max(self._epochs - progress.epoch, 0)
        return Text.assemble(
            (f"{duration(progress.at):>13}", "cyan"),
            f"  epoch {progress.epoch:<5}",
            (f"metric {progress.metric:.4f}", "bold green" if progress.metric >= self._target else "bold"),
            f" of {self._target:g}  {size(progress.bytes_total):>9}  {progress.updates_per_s:,.0f} updates/s",
            (f"  at most {duration(left)} to go", "dim"),
        )


def print_summary(manifest: dict[str, Any], summary: dict[str, Any], console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    name = (
        f"{summary['method']} on {summary['task']}, {summary['network']} ({summary['preset']}), seed {summary['seed']}"
    )
    reached = summary["target_reached"]
    table.add_row("run", name)
    table.add_row("directory", Text(str(summary["run"]), overflow="fold"))
    table.add_row(
        "target",
        f"reached after {duration(summary['time_to_target_s'])}, {size(summary['bytes_to_target'])} "
        f"(uplink of models: {size(summary['models_uplink_bytes_to_target'])})"
        if reached
        else "not reached",
    )
    if reached and summary["warmup_s"]:
        charged = "including a" if manifest["settings"]["warmup"]["charge"] else "not counting a free"
        table.add_row("", f"{charged} warm-up of {duration(summary['warmup_s'])}, {size(summary['warmup_bytes'])}")
    if summary["first_crossing_s"] is not None:
        table.add_row("", f"first single crossing after {duration(summary['first_crossing_s'])}")
    if summary["final_metric"] is not None:
        table.add_row(
            "final metric", f"{summary['final_metric']:.4f} (target {manifest['settings']['task']['target']:g})"
        )
    if summary.get("by_class"):
        ranked = sorted(summary["by_class"].items(), key=lambda pair: pair[1])
        (worst, low), (best, high) = ranked[0], ranked[-1]
        table.add_row("by class", f"{low:.4f} ({worst.replace('_', ' ')}) to {high:.4f} ({best.replace('_', ' ')})")
    if finer := summary.get("by_device"):
        table.add_row(
            "by device",
            f"worst {finer['worst']:.4f} (device {finer['worst_device']}), worst tenth {finer['worst_tenth']:.4f}, "
            f"median {finer['median']:.4f}, best {finer['best']:.4f}"
            if finer["devices"]
            else "-",
        )
    table.add_row(
        "updates",
        f"{summary['device_updates']:,} device updates in {summary['cloud_epochs']:,} cloud epochs, "
        f"{summary['updates_dropped']:,} dropped",
    )
    others = {end: count for end, count in summary.get("job_ends", {}).items() if end != DEVICE_UPDATE}
    if others:
        table.add_row("other jobs", ", ".join(f"{count:,} {end.replace('_', ' ')}" for end, count in others.items()))
    for name, text in _bytes_sent(summary):
        table.add_row(name, text)
    limited = f"limited {percent(summary['bandwidth_bound_share'])} of the selections"
    bandwidth = bandwidth_text(manifest)
    table.add_row("bandwidth", limited if bandwidth is None else f"{bandwidth}; {limited}")
    seen = summary["convergence"]
    table.add_row(
        "staleness",
        f"at most {seen['K_c']} at the cloud, {seen['K_g']} at a gateway; "
        f"the theorem's conditions on weights and s {'hold' if conditions_hold(seen) else 'do not hold'}",
    )
    if summary["largest_selection_gap"] is not None:
        table.add_row("selection", f"solved to a gap of at most {percent(summary['largest_selection_gap'])}")
    if summary["largest_association_gap"] is not None:
        table.add_row("association", f"solved to a gap of at most {percent(summary['largest_association_gap'])}")
    if happened := summary.get("life"):
        table.add_row("events", ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in happened.items()))
    if spent := summary.get("energy"):
        table.add_row(
            "energy",
            f"{spent['total_j'] / 1e3:,.1f} kJ in total, {percent(spent['compute_j'] / max(spent['total_j'], 1e-9))} "
            f"for computing; median {spent['device_median_j']:,.0f} J, maximum {spent['device_most_j']:,.0f} J",
        )
    training = summary["training"]
    table.add_row(
        "time",
        f"{duration(summary['virtual_s'])} simulated in {summary['wall_s']:.1f} s "
        f"({training['calls']:,} training calls, largest {training['largest_batch']}, {training['wasted']} wasted)",
    )
    table.add_row("digest", summary["digest"])
    console.print(table)


def _bytes_sent(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows about bytes: all of them, then those of each link and direction by kind."""
    ledger = byte_ledger(summary)
    *links, (_, *_, total, plain) = ledger.rows
    assert isinstance(total, int)
    assert isinstance(plain, int)
    encodings = {sizes["encoding"] for sizes in summary.get("encodings", {}).values()} - {"float32"}
    yield "bytes", size(total) + (f"; as float32 {size(plain)}" if encodings else "")
    for link, *counts, _, _ in links:
        kinds = zip(("models", "gradients", "bases", "control"), counts, strict=True)
        yield (
            "",
            f"{link}: "
            + ", ".join(f"{size(count)} {kind}" for kind, count in kinds if isinstance(count, int) and count),
        )
