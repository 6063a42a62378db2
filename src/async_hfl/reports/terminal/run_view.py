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
from async_hfl.reports.tables.convergence import staleness_text
from async_hfl.reports.tables.formatting import duration, percent, size
from async_hfl.reports.tables.privacy import privacy_text
from async_hfl.reports.tables.run_names import is_deployed, network_name, task_name
from async_hfl.reports.tables.run_tables import byte_ledger
from async_hfl.reports.terminal.console import console as make_console
from async_hfl.simulation.recorded_run import Progress


class RunView:
    """A live line on stderr (stdout is for results), or a plain line every few seconds if it is not a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = make_console(stderr=True)
        self._live: Live | None = None
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


def print_summary(manifest: dict[str, Any], summary: dict[str, Any], console: Console | None = None) -> None:
    console = console or make_console()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    preset = "" if is_deployed(manifest) else f" ({summary['preset']})"
    where = f"{network_name(manifest)}{preset}"
    name = f"{summary['method']} on {task_name(manifest)}, {where}, seed {summary['seed']}"
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
    table.add_row("staleness", staleness_text(manifest, summary))
    if summary["largest_selection_gap"] is not None:
        table.add_row("selection", f"solved to a gap of at most {percent(summary['largest_selection_gap'])}")
    if summary["largest_association_gap"] is not None:
        table.add_row("association", f"solved to a gap of at most {percent(summary['largest_association_gap'])}")
    if private := summary.get("privacy"):
        table.add_row("privacy", privacy_text(private))
    if happened := summary.get("life"):
        table.add_row("events", ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in happened.items()))
    if spent := summary.get("energy"):
        table.add_row(
            "energy",
            f"{spent['total_j'] / 1e3:,.1f} kJ in total, {percent(spent['compute_j'] / max(spent['total_j'], 1e-9))} "
            f"for computing; median {spent['device_median_j']:,.0f} J, maximum {spent['device_most_j']:,.0f} J",
        )
    training = summary["training"]
    if is_deployed(manifest):
        table.add_row("time", f"{duration(summary['virtual_s'])} on the cloud's clock; {training['calls']:,} trainings")
    else:
        calls = f"{training['calls']:,} training calls, largest {training['largest_batch']}"
        took = f"{duration(summary['virtual_s'])} simulated in {summary['wall_s']:.1f} s"
        table.add_row("time", f"{took} ({calls}, {training['wasted']} wasted)")
    table.add_row("digest", summary["digest"])
    if diverged := summary.get("diverged"):
        table.add_row("warning", Text(diverged, style="yellow"))
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
