"""The tables of one run: bytes sent, energy, job ends, settings and versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from async_hfl.reports.tables.formatting import flat_settings
from async_hfl.reports.tables.table import Cell, Column, Table

_TIERS = {"device-gateway": "device and gateway", "gateway-cloud": "gateway and cloud"}


def byte_ledger(summary: dict[str, Any]) -> Table:
    """Return the bytes by link, direction and kind, and their number if everything had travelled as float32."""
    kinds = ("model", "gradient", "basis", "control")
    rows: list[tuple[Cell, ...]] = []
    for tier, ways in summary["bytes"].items():
        for way, counts in ways.items():
            of_kind = [counts[kind] for kind in kinds]
            rows.append(
                (f"{_TIERS.get(tier, tier)}, {way}", *of_kind, sum(of_kind), float32_bytes(summary, way, counts))
            )
    sums = [sum(row[place] for row in rows if isinstance(row[place], int)) for place in range(1, 7)]  # type: ignore[misc]
    return Table(
        "Bytes sent",
        (
            Column("links"),
            *(Column(kind, "bytes") for kind in kinds),
            Column("all", "bytes"),
            Column("as float32", "bytes", "bytes if everything had travelled as float32"),
        ),
        (*rows, ("all", *sums)),
        emphasised=(len(rows),),
    )


def float32_bytes(summary: dict[str, Any], way: str, counts: dict[str, int]) -> int:
    """Return the bytes that would have been sent in one direction of a link if everything had travelled as float32."""
    sizes = summary.get("encodings", {}).get(way)  # runs of version 0.2.0 do not have them
    total = sum(counts.values())
    if sizes is None:
        return total
    for kind in ("model", "gradient"):
        if sizes[kind]:
            total += counts[kind] * (sizes[f"{kind}_float32"] - sizes[kind]) // sizes[kind]
    return total


def energy_table(summary: dict[str, Any]) -> Table | None:
    spent = summary.get("energy")
    if not spent:
        return None
    parts = (("computing", "compute_j"), ("sending", "transmit_j"), ("receiving", "receive_j"), ("all", "total_j"))
    total = max(spent["total_j"], 1e-9)
    return Table(
        "Energy of the devices, without idle power",
        (Column("for"), Column("energy", "joules"), Column("share", "share")),
        tuple((name, spent[key], spent[key] / total) for name, key in parts),
        (
            f"Per device: median {spent['device_median_j'] / 1e3:,.1f} kJ, 90th percentile "
            f"{spent['device_90_percent_j'] / 1e3:,.1f} kJ, maximum {spent['device_most_j'] / 1e3:,.1f} kJ. "
            "Estimated from the power profiles of the device types.",
        ),
    )


def job_ends(summary: dict[str, Any]) -> Table:
    meaning = {
        "aggregated": "mixed in at its gateway",
        "stale": "dropped because it was too old on arrival",
        "superseded": "replaced by a newer job",
        "device_lost": "its device failed",
        "gateway_lost": "its gateway failed",
        "round_closed": "arrived after its round had closed",
        "warmup": "part of the warm-up: measured, not mixed in",
        "run_ended": "in flight when the run ended",
        "refused": "diverged (NaN or infinity), or changed far more than is usual",
    }
    ends = summary["job_ends"]
    total = max(1, sum(ends.values()))
    return Table(
        "How jobs ended",
        (Column("end"), Column("jobs", "count"), Column("share", "share"), Column("meaning")),
        tuple(
            (reason.replace("_", " "), count, count / total, meaning.get(reason, ""))
            for reason, count in sorted(ends.items(), key=lambda pair: -pair[1])
        ),
    )


def settings_tables(manifest: dict[str, Any]) -> list[Table]:
    about = {
        key: value
        for key, value in manifest.items()
        if key not in ("settings", "versions", "user_files", "metric") and value is not None
    }
    return [
        Table(
            "Settings",
            (Column("setting"), Column("value")),
            tuple((key, str(value)) for key, value in flat_settings(manifest["settings"]).items()),
        ),
        Table("Run", (Column("key"), Column("value")), tuple((key, str(value)) for key, value in about.items())),
        versions_table(manifest["versions"]),
    ]


def versions_table(versions: Mapping[str, str]) -> Table:
    return Table("Versions", (Column("package"), Column("version")), tuple(versions.items()))
