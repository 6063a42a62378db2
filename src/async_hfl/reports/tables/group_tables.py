"""The tables at the end of a comparison: participation, staleness, decisions, settings, versions, runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from async_hfl.core.protocol.records import DEVICE_UPDATE
from async_hfl.reports.data.group_data import ComparedRun
from async_hfl.reports.tables.convergence import NOT_CHECKED, conditions, is_covered
from async_hfl.reports.tables.formatting import flat_settings
from async_hfl.reports.tables.run_tables import versions_table
from async_hfl.reports.tables.table import BOUND, Cell, Column, Spread, Table, without_empty

Groups = Sequence[tuple[str, list[ComparedRun]]]


def panel_tables(groups: Groups) -> list[Table]:
    made = [_participation(groups), _by_device(groups), _staleness(groups), _theorem(groups), _decisions(groups)]
    return [without_empty(table) for table in made if table.rows]


def _participation(groups: Groups) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, runs in groups:
        counts = [run.participation for run in runs if len(run.participation)]
        ends = [run.summary["job_ends"] for run in runs if run.summary is not None and "job_ends" in run.summary]
        lost = [sum(n for end, n in one.items() if end not in (DEVICE_UPDATE, "warmup", "run_ended")) for one in ends]
        rows.append(
            (
                name,
                Spread.over([float((one == 0).sum()) for one in counts]),
                Spread.over([float(one.min()) for one in counts]),
                Spread.over([float(np.median(one)) for one in counts]),
                Spread.over([float(one.max()) for one in counts]),
                Spread.over([_gini(one) for one in counts]),
                Spread.over([float(count) for count in lost]),
                Spread.over(_of(runs, "bandwidth_bound_share")),
            )
        )
    return Table(
        "Participation: updates of a device that were aggregated",
        (
            Column("group"),
            Column("never", "number", "devices without any aggregated update"),
            Column("least", "number"),
            Column("median", "number"),
            Column("most", "number"),
            Column("Gini", "metric", "0: all devices contribute equally; 1: one device contributes everything"),
            Column(
                "not used",
                "number",
                "jobs that were stale, superseded, lost, refused or too late for their round",
            ),
            BOUND,
        ),
        tuple(rows),
    )


def _by_device(groups: Groups) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, runs in groups:
        found = [(run.summary or {}).get("by_device") or {} for run in runs]
        rows.append((name, *(Spread.over(_numbers(one.get(key) for one in found)) for key in _DEVICE_KEYS)))
    return Table(
        "The final model on each device's own data",
        (Column("group"), *(Column(key.replace("_", " "), "metric") for key in _DEVICE_KEYS)),
        tuple(rows),
    )


_DEVICE_KEYS = ("worst", "worst_tenth", "median", "best")


def _staleness(groups: Groups) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, runs in groups:
        seen = [run.summary["convergence"] for run in runs if run.summary is not None]
        rows.append((name, *(Spread.over([float(one[key]) for one in seen]) for key in ("K_c", "K_g"))))
    return Table(
        "Largest staleness of a run",
        (
            Column("group"),
            Column("at the cloud", "number", "K_c: of an upload that was mixed or averaged"),
            Column("at a gateway", "number", "K_g: of an update that was aggregated"),
        ),
        tuple(rows),
    )


def _theorem(groups: Groups) -> Table:
    """Return the conditions of the theorem for the groups that it covers; each group at its stalest run."""
    rows: list[tuple[Cell, ...]] = []
    for name, runs in groups:
        complete = [run for run in runs if run.summary is not None and is_covered(run.manifest["settings"])]
        if complete:
            seen = [run.summary["convergence"] for run in complete if run.summary is not None]
            most = {key: max(one[key] for one in seen) for key in ("K_c", "K_g")}
            rows += [(name, *one) for one in conditions(complete[0].manifest["settings"], most)]
    return Table(
        "Conditions of the convergence theorem",
        (Column("group"), Column("condition"), Column("here", "number"), Column("limit", "number"), Column("met")),
        tuple(rows),
        ("For the largest staleness of any run of the group.", NOT_CHECKED),
    )


def _decisions(groups: Groups) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, runs in groups:
        for what in ("selection", "association"):
            timed = [run.timings.get("decisions", {}).get(what) or {} for run in runs]
            times = [Spread.over(_numbers(one.get(key) for one in timed)) for key in ("median_s", "p99_s", "most_s")]
            gap = max(_of(runs, f"largest_{what}_gap"), default=None)
            if gap is not None or any(times):
                rows.append((name, what, *times, gap))
    return Table(
        "Decisions",
        (
            Column("group"),
            Column("decision"),
            Column("median", "seconds"),
            Column("99 %", "seconds"),
            Column("longest", "seconds"),
            Column("largest gap", "share", "between the solution and its proven bound"),
        ),
        tuple(rows),
        ("Wall-clock times on the machine that made the runs.",),
    )


def detail_tables(runs: Sequence[ComparedRun]) -> list[Table]:
    if not runs:
        return []
    tables = [flat_settings(run.manifest["settings"]) for run in runs]
    keys = sorted({key for one in tables for key in one})
    same: list[tuple[Cell, ...]] = []
    differ: list[tuple[Cell, ...]] = []
    for key in keys:
        values = list(dict.fromkeys(str(one.get(key, "-")) for one in tables))
        (same if len(values) == 1 else differ).append((key, ", ".join(values)))
    versions: dict[str, list[str]] = {}
    for run in runs:
        for package, version in run.manifest["versions"].items():
            if version not in versions.setdefault(package, []):
                versions[package].append(version)
    return [
        Table("Settings that differ between the runs", (Column("setting"), Column("values")), tuple(differ)),
        Table("Settings that all runs share", (Column("setting"), Column("value")), tuple(same)),
        versions_table({package: ", ".join(found) for package, found in versions.items()}),
        Table(
            "Runs",
            (
                Column("run"),
                Column("method"),
                Column("seed"),
                Column("to target", "seconds"),
                Column("took", "seconds", "wall-clock time of the simulation"),
                Column("digest"),
            ),
            tuple(
                (
                    str(run.path),
                    run.manifest["method"],
                    str(run.manifest["seed"]),
                    (run.summary or {}).get("time_to_target_s"),
                    (run.summary or {}).get("wall_s"),
                    "not complete" if run.summary is None else run.summary["digest"][:16],
                )
                for run in runs
            ),
        ),
    ]


def _numbers(values: Iterable[Any]) -> list[float]:
    return [float(value) for value in values if value is not None]


def _of(runs: Sequence[ComparedRun], key: str) -> list[float]:
    return _numbers((run.summary or {}).get(key) for run in runs)


def _gini(counts: Any) -> float:
    ordered = np.sort(counts)
    total = float(ordered.sum())
    if total == 0:
        return 0.0
    places = np.arange(1, len(ordered) + 1)
    return float((2 * (places * ordered).sum()) / (len(ordered) * total) - (len(ordered) + 1) / len(ordered))
