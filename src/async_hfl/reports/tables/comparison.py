"""Single runs compared: time to target, speed-up, bytes. The table of the demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.tables.formatting import duration, percent, size


@dataclass(frozen=True, slots=True)
class Row:
    method: str
    time_to_target_s: float | None
    speed_up: float | None
    """Time of the reference over the time of this method."""
    bytes_to_target: int | None
    models_uplink_bytes: int | None
    final_metric: float
    device_updates: int
    bound_share: float

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def compare(runs: list[RunDirectory], reference: str) -> list[Row]:
    """Make one row per complete run; speed-ups are relative to the run of the method `reference`."""
    summaries = [summary for run in runs if (summary := run.read_summary()) is not None]
    base = next((s["time_to_target_s"] for s in summaries if s["method"] == reference), None)
    rows = []
    for summary in summaries:
        reached = summary["time_to_target_s"]
        rows.append(
            Row(
                summary["method"],
                reached,
                base / reached if base and reached else None,
                summary["bytes_to_target"],
                summary["models_uplink_bytes_to_target"],
                summary["final_metric"],
                summary["device_updates"],
                summary["bandwidth_bound_share"],
            )
        )
    return rows


def table(rows: list[Row], reference: str, title: str) -> Table:
    """Return a table that fits 80 columns."""
    bound = ", ".join(f"{row.method} {percent(row.bound_share)}" for row in rows)
    made = Table(
        title=title,
        title_justify="left",
        caption=f"Speed-up: relative to {reference}. Uplink: models sent towards the cloud, as in the paper.\n"
        f"Share of selections limited by the bandwidth: {bound}.",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    made.add_column("method", overflow="fold")
    for name in ("to target", "speed-up", "bytes", "uplink", "accuracy", "updates"):
        made.add_column(name, justify="right", no_wrap=True)
    best = min((row.time_to_target_s for row in rows if row.time_to_target_s), default=None)
    for row in rows:
        made.add_row(
            row.method,
            duration(row.time_to_target_s) if row.time_to_target_s else "not reached",
            f"{row.speed_up:.2f}x" if row.speed_up else "-",
            size(row.bytes_to_target),
            size(row.models_uplink_bytes),
            percent(row.final_metric),
            f"{row.device_updates:,}",
            style="bold green" if row.time_to_target_s == best and best else None,
        )
    return made
