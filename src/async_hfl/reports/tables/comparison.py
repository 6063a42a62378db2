"""Single runs compared: time to target, speed-up, bytes. The table of the demonstration."""

from __future__ import annotations

from dataclasses import dataclass

from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.tables.formatting import percent
from async_hfl.reports.tables.table import Column, Table


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


def compare(runs: list[RunDirectory], reference: str) -> list[Row]:
    """Make one row per complete run; speed-ups are relative to the run of the method `reference`."""
    summaries = [summary for run in runs if (summary := run.read_summary()) is not None]
    base = next((s["time_to_target_s"] for s in summaries if s["method"] == reference), None)
    rows = []
    for summary in summaries:
        time_s = summary["time_to_target_s"]
        sent = (summary["bytes_to_target"], summary["models_uplink_bytes_to_target"])
        rest = (summary["final_metric"], summary["device_updates"], summary["bandwidth_bound_share"])
        rows.append(Row(summary["method"], time_s, base / time_s if base and time_s else None, *sent, *rest))
    return rows


def comparison_table(rows: list[Row], reference: str, title: str) -> Table:
    """Return a table that fits 80 columns."""
    bound = ", ".join(f"{row.method} {percent(row.bound_share)}" for row in rows)
    best = min((row.time_to_target_s for row in rows if row.time_to_target_s), default=None)
    return Table(
        title,
        (
            *(Column("method"), Column("to target", "seconds"), Column("speed-up", "ratio"), Column("bytes", "bytes")),
            *(Column("uplink", "bytes"), Column("accuracy", "share"), Column("updates", "count")),
        ),
        tuple(
            (
                row.method,
                row.time_to_target_s or "not reached",
                row.speed_up,
                row.bytes_to_target,
                row.models_uplink_bytes,
                row.final_metric,
                row.device_updates,
            )
            for row in rows
        ),
        (
            f"Speed-up: relative to {reference}. Uplink: models sent towards the cloud, as in the paper. Bytes and "
            "uplink are those until the target; accuracy and device updates those of the whole run.",
            f"Share of selections limited by the bandwidth: {bound}.",
        ),
        tuple(place for place, row in enumerate(rows) if best and row.time_to_target_s == best),
    )
