"""The result of a run: in a line, and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
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


def print_summary(manifest: dict[str, Any], summary: dict[str, Any], console: Console | None = None) -> None:
    (console or make_console()).print(summary_table(manifest, summary))


_NOTHING_LEARNT = (
    "the run was over before the update of any device was aggregated, so the model is the one that it began with; give "
    "it more cloud.epochs"
)


def headline(manifest: dict[str, Any], summary: dict[str, Any] | None) -> str:
    """Return a run and its result in a line."""
    name = f"{manifest['method']} on {task_name(manifest)}, {network_name(manifest)}, seed {manifest['seed']}"
    if summary is None:
        return f"{name}; not complete"
    reached = f"reached after {duration(summary['time_to_target_s'])}" if summary["target_reached"] else "not reached"
    metric = (
        "" if summary["final_metric"] is None else f", final {manifest['metric']['name']} {summary['final_metric']:.4f}"
    )
    return f"{name}; target {reached}{metric}"


def summary_table(manifest: dict[str, Any], summary: dict[str, Any]) -> Table:
    """Return the result of a run as a table of two columns."""
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
    if warning := summary.get("diverged") or (not summary["device_updates"] and _NOTHING_LEARNT):
        table.add_row("warning", Text(warning, style="yellow"))
    return table


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
        told = ", ".join(f"{size(count)} {kind}" for kind, count in kinds if isinstance(count, int) and count)
        yield "", f"{link}: {told or 'nothing'}"
