"""The data that a comparison draws for one run and for a group of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import RunDirectoryError
from async_hfl.core.maths.milestones import Reached
from async_hfl.core.maths.targets import Target
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.curves import (
    AXES,
    Curve,
    evenly_spaced,
    read_curve,
    significant,
    tail_distribution,
    target_of,
    thinned,
)
from async_hfl.reports.data.experiment import RunGroup
from async_hfl.reports.data.journal_columns import read_columns

_POINTS = 160
"""The number of points of a distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRun:
    """The data of one run that a comparison needs."""

    path: Path
    manifest: dict[str, Any]
    summary: dict[str, Any] | None
    """None if the run was interrupted."""
    timings: dict[str, Any]
    """Empty if unknown."""
    curve: Curve
    target: Target
    held: Reached | None
    """The state at which the target was held."""
    rounds: Floats
    """Seconds from dispatch to aggregation of the jobs that were aggregated, sorted."""
    gateway_staleness: Ints
    cloud_staleness: Ints
    participation: Ints
    """Number of aggregated updates of each device."""


def read_run(path: Path, target: float | None = None) -> ComparedRun:
    directory = RunDirectory.open(path)
    manifest, summary = directory.read_manifest(), directory.read_summary()
    try:
        wanted = target_of(manifest, target)
        devices = manifest["devices"]
        curve = read_curve(directory, manifest, summary)
    except KeyError as error:
        raise RunDirectoryError(f"{directory.manifest}: has no {error}, so it was not written by async-hfl") from error
    columns = read_columns(directory, transfers=False)
    jobs = columns.jobs
    return ComparedRun(
        path,
        manifest,
        summary,
        directory.read_timings() or {},
        curve,
        wanted,
        curve.milestones(wanted).held,
        np.sort((jobs.ended_at - jobs.sent_at)[jobs.aggregated]),
        jobs.staleness[jobs.aggregated],
        np.array([one["staleness"] for one in columns.uploads if one["reason"] == "mixed"], np.int64),
        np.bincount(jobs.device[jobs.aggregated], minlength=devices)[:devices],
    )


Panel = list[tuple[RunGroup, list[ComparedRun]]]
"""Groups that are compared with one another, with the data of their runs."""


def read_panels(groups: Sequence[RunGroup]) -> dict[str, Panel]:
    """Read the runs of every group; the result is keyed by the name of the panel."""
    panels: dict[str, Panel] = {}
    for group in groups:
        panels.setdefault(group.panel, []).append((group, [read_run(path, group.target) for path in group.runs]))
    return panels


def group_data(runs: list[ComparedRun], points: int) -> dict[str, Any]:
    return {
        "runs": [_run_data(run, points) for run in runs],
        "rounds": _round_tail(np.sort(np.concatenate([run.rounds for run in runs] or [np.empty(0)]))),
        "staleness": {
            "gateway": _staleness_tail([run.gateway_staleness for run in runs]),
            "cloud": _staleness_tail([run.cloud_staleness for run in runs]),
        },
        "participation": _participation(runs),
        "bytes": _bytes(runs),
        "by_class": _by_class(runs),
    }


def _run_data(run: ComparedRun, points: int) -> dict[str, Any]:
    curve = run.curve
    kept = thinned(curve.metric, points)
    columns = {name: significant(getattr(curve, name)[kept]) for name in (*AXES, "metric", "loss")}
    whole = {name: [int(v) if v is not None and v == int(v) else v for v in columns[name]] for name in AXES[1:]}
    return {
        "seed": run.manifest["seed"],
        "complete": run.summary is not None,
        "reached": None if run.held is None else dict(zip(AXES, map(float, run.held), strict=True)),
        "energy": ((run.summary or {}).get("energy") or {}).get("total_j"),
        **columns,
        **whole,
    }


def _round_tail(values: Floats) -> dict[str, Any] | None:
    if not len(values):
        return None
    seconds, share = tail_distribution(values, _POINTS)
    return {"x": significant(seconds, 4), "y": significant(share, 4)}


def _staleness_tail(parts: list[Ints]) -> dict[str, Any] | None:
    """Return the share of mixed models that were staler than x, for each x that occurred."""
    values = np.concatenate(parts or [np.empty(0, np.int64)])
    if not len(values):
        return None
    seen, counts = np.unique(values, return_counts=True)
    share = 1.0 - np.cumsum(counts) / len(values)
    kept = thinned(share, _POINTS)
    return {"x": [float(v) for v in seen[kept]], "y": significant(share[kept].clip(0), 4)}


def _participation(runs: list[ComparedRun]) -> list[float | None] | None:
    """Return updates relative to the mean, sorted by device, averaged over the runs, as at most 200 points."""
    ordered = [np.sort(run.participation) / run.participation.mean() for run in runs if run.participation.sum()]
    if not ordered or len({len(one) for one in ordered}) != 1:
        return None
    mean = np.mean(ordered, axis=0)
    return significant(mean[evenly_spaced(len(mean), 200)], 4)


def _bytes(runs: list[ComparedRun]) -> dict[str, dict[str, float]] | None:
    found = [run.summary["bytes"] for run in runs if run.summary is not None and "bytes" in run.summary]
    if not found:
        return None
    return {
        f"{tier} {way}": {kind: sum(one[tier][way][kind] for one in found) / len(found) for kind in kinds}
        for tier, ways in found[0].items()
        for way, kinds in ways.items()
    }


def _by_class(runs: list[ComparedRun]) -> dict[str, float] | None:
    found = [run.summary["by_class"] for run in runs if run.summary is not None and run.summary.get("by_class")]
    if not found:
        return None
    return {name: sum(one.get(name, 0.0) for one in found) / len(found) for name in found[0]}
