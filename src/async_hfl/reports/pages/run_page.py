"""One run as one page, made from its run directory alone. An incomplete run is shown as far as it got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from async_hfl.core.errors import RunDirectoryError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.curves import Curve, read_curve
from async_hfl.reports.data.journal_columns import Columns, read_columns
from async_hfl.reports.data.run_data import (
    class_data,
    curve_data,
    decision_data,
    delay_data,
    device_data,
    lifecycle_data,
    staleness_data,
)
from async_hfl.reports.data.run_timeline import timeline_data
from async_hfl.reports.pages.page import table_data, write_html
from async_hfl.reports.pages.run_map import able_devices, colours_of, map_data, network_of, node_names
from async_hfl.reports.tables import run_tables
from async_hfl.reports.tables.bandwidth import bandwidth_text
from async_hfl.reports.tables.convergence import conditions_table
from async_hfl.reports.tables.run_names import clock_name, is_deployed, network_name, task_name
from async_hfl.reports.tables.table import shown


def write_run_page(run: Path, out: Path) -> None:
    directory = RunDirectory.open(run)
    manifest, summary = directory.read_manifest(), directory.read_summary()
    columns = read_columns(directory)
    try:
        curve = read_curve(directory, manifest, summary)
        data = _data(directory, manifest, summary, columns, curve)
    except KeyError as error:
        raise RunDirectoryError(f"{directory.path}: has no {error}, so it was not written by async-hfl") from error
    write_html(out, ("timeline.js", "map.js", "run.js"), data)


def _data(
    directory: RunDirectory, manifest: dict[str, Any], summary: dict[str, Any] | None, columns: Columns, curve: Curve
) -> dict[str, Any]:
    rule = manifest.get("metric", {})
    spent = directory.read_devices()
    network = network_of(manifest)
    able = able_devices(manifest, network)
    tables, theorem = [], None
    if summary is not None:
        theorem = conditions_table(manifest, summary)
        energy = run_tables.energy_table(summary)
        tables = [run_tables.job_ends(summary), *([energy] if energy else [])]
    return {
        "title": f"{manifest['method']} on {task_name(manifest)}",
        "clock": clock_name(manifest),
        "deployed": is_deployed(manifest),
        "names": node_names(manifest, network, columns),
        "colours": colours_of(manifest, network),
        "summary": _sentences(directory, manifest, summary, len(able)),
        "metric": rule.get("name", "metric"),
        "direction": rule.get("direction", "at_least"),
        "target": manifest["settings"]["task"]["target"],
        "cards": _cards(manifest, summary, curve, columns, len(able)),
        "curve": curve_data(curve),
        "warmup": columns.warmup_ended_at if manifest["settings"]["warmup"]["charge"] else None,
        "reached": _reached(summary),
        "ends_at": columns.ends_at,
        "delays": delay_data(columns),
        "staleness": staleness_data(columns),
        "devices": device_data(columns, manifest["devices"], summary, spent, able),
        "classes": class_data(columns),
        "timeline": timeline_data(columns),
        "map": map_data(network, columns),
        "decisions": decision_data(columns, directory.read_timings() or {}),
        "lifecycle": lifecycle_data(columns),
        "bytes": None if summary is None else table_data(run_tables.byte_ledger(summary)),
        "bounds": None if theorem is None else table_data(theorem),
        "tables": [table_data(table) for table in tables],
        "details": [table_data(table) for table in run_tables.settings_tables(manifest)],
        "path": str(directory.path),
        "digest": None if summary is None else summary["digest"],
    }


def _sentences(
    directory: RunDirectory, manifest: dict[str, Any], summary: dict[str, Any] | None, able: int
) -> list[str]:
    unlinked = manifest["devices"] - able
    without = (
        f" (and {unlinked:,} without a link, which {'takes' if unlinked == 1 else 'take'} no part)" if unlinked else ""
    )
    nodes = f"{able:,} devices{without} and {manifest['gateways']:,} gateways"
    place = ", deployed" if is_deployed(manifest) else f" on {network_name(manifest)}, preset {manifest['preset']}"
    started = f"; started on {manifest['created'][:10]}" if manifest.get("created") else ""
    where = f"{nodes}{place}, seed {manifest['seed']}{started}."
    if summary is None and is_deployed(manifest):
        return [where, "Not complete: the run was not over when its journals were collected."]
    if summary is None:
        return [where, f"Not complete: continue with `async-hfl resume {directory.path}`."]
    return [where]


def _cards(
    manifest: dict[str, Any], summary: dict[str, Any] | None, curve: Curve, columns: Columns, able: int
) -> list[tuple[str, str, str, str]]:
    """Return the tiles below the title as (name, value, tone, detail)."""
    if summary is None:
        last = float(curve.metric[-1]) if len(curve) else None
        return [
            (f"{clock_name(manifest)} so far", shown(columns.ends_at, "seconds"), "", ""),
            ("cloud epochs", shown(int(curve.epoch[-1]) if len(curve) else 0, "count"), "", ""),
            (f"{manifest.get('metric', {}).get('name', 'metric')} so far", shown(last, "metric"), "", ""),
        ]
    reached = summary["target_reached"]
    energy = (summary.get("energy") or {}).get("total_j")
    return [
        (
            "target reached after" if reached else "target",
            shown(summary["time_to_target_s"], "seconds") if reached else "not reached",
            "good" if reached else "bad",
            f"first single crossing after {shown(summary['first_crossing_s'], 'seconds')}"
            if summary["first_crossing_s"] is not None
            else f"within {shown(summary['virtual_s'], 'seconds')}",
        ),
        (
            "bytes to the target" if reached else "bytes",
            shown(summary["bytes_to_target"] if reached else summary["bytes_total"], "bytes"),
            "",
            f"models up: {shown(summary['models_uplink_bytes_to_target'], 'bytes')}" if reached else "",
        ),
        (
            f"final {manifest.get('metric', {}).get('name', 'metric')}",
            shown(summary["final_metric"], "metric"),
            "",
            f"target {manifest['settings']['task']['target']:g}",
        ),
        (
            "device updates",
            shown(summary["device_updates"], "count"),
            "",
            f"{summary['cloud_epochs']:,} cloud epochs, {summary['updates_dropped']:,} updates dropped",
        ),
        (
            "bandwidth limit reached",
            shown(summary["bandwidth_bound_share"], "share"),
            "",
            f"of the selections; {bandwidth}" if (bandwidth := bandwidth_text(manifest)) else "of the selections",
        ),
        ("energy of the devices", shown(energy, "joules"), "", "for computing and radio")
        if energy is not None
        else ("devices", shown(able, "count"), "", ""),
    ]


def _reached(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    if summary is None or not summary["target_reached"]:
        return None
    return {
        "time": summary["time_to_target_s"],
        "bytes": summary["bytes_to_target"],
        "up": summary["models_uplink_bytes_to_target"],
    }
