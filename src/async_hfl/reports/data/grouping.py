"""Runs that somebody points at, put into groups: what differs in its seed alone belongs together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.group_data import RunFigures, read_run
from async_hfl.reports.pages.experiment_page import Comparison, RunGroup
from async_hfl.reports.tables.settings_table import flat
from async_hfl.reports.tables.table import Cell, Column, Spread, Table


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run directories among these, and in directories that hold some."""
    found: list[Path] = []
    for path in paths:
        if (path / "manifest.json").is_file() or not path.is_dir():
            found.append(path)
            continue
        inside = sorted(one.parent for one in path.glob("**/manifest.json"))
        if not inside:
            raise RunDirectoryError(f"{path}: not a run directory, and none is in it; `async-hfl run` makes one")
        found += inside
    unique = list(dict.fromkeys(found))
    if not unique:
        raise UserError("no run is named")
    return unique


def group_runs(paths: Sequence[Path]) -> list[RunGroup]:
    """A panel for each task on a network; in it a group for each method, told apart by settings that differ."""
    manifests = {path: RunDirectory.open(path).read_manifest() for path in paths}
    panels: dict[str, dict[str, list[Path]]] = {}
    for path, manifest in manifests.items():
        panel = " · ".join(str(manifest[key]) for key in ("task", "network", "preset"))
        panels.setdefault(panel, {}).setdefault(str(manifest["method"]), []).append(path)
    groups = []
    for panel, methods in panels.items():
        for method, runs in methods.items():
            for name, members in _told_apart(method, runs, manifests):
                groups.append(RunGroup(name, tuple(members), panel if len(panels) > 1 else ""))
    return groups


def _told_apart(method: str, runs: list[Path], manifests: dict[Path, dict[str, Any]]) -> list[tuple[str, list[Path]]]:
    settings = {path: flat(manifests[path]["settings"]) for path in runs}
    keys = sorted({key for one in settings.values() for key in one})
    differ = [key for key in keys if len({str(one.get(key)) for one in settings.values()}) > 1]
    parts: dict[str, list[Path]] = {}
    for path in runs:
        told = ", ".join(f"{key}={settings[path].get(key)}" for key in differ)
        parts.setdefault(f"{method} ({told})" if told else method, []).append(path)
    return list(parts.items())


def comparison_of(groups: Sequence[RunGroup], command: str) -> Comparison:
    tables = []
    for panel in dict.fromkeys(group.panel for group in groups):
        own = [
            (group, [read_run(path, group.target) for path in group.runs]) for group in groups if group.panel == panel
        ]
        tables.append(_race(panel or _place(own[0][1][0].manifest), own))
    count = sum(len(group.runs) for group in groups)
    manifest = RunDirectory.open(groups[0].runs[0]).read_manifest()
    one = len({group.panel for group in groups}) == 1
    return Comparison(
        title=f"{manifest['task']}: {count} runs" if one else f"{count} runs beside each other",
        summary=(f"{count} runs in {len(groups)} groups; what differs in its seed only is one group.",),
        tables=tuple(tables),
        command=command,
    )


def _place(manifest: dict[str, Any]) -> str:
    return " · ".join(str(manifest[key]) for key in ("task", "network", "preset"))


def _race(title: str, groups: Sequence[tuple[RunGroup, list[RunFigures]]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    means = []
    for group, runs in groups:
        reached = [run for run in runs if run.reached is not None]
        told = "" if len(reached) == len(runs) else f"{len(reached)} of {len(runs)} reached it"
        times = _at_target(reached, "time")
        means.append(sum(times) / len(times) if times and not told else None)
        rows.append(
            (
                group.name,
                len(runs),
                _spread(times, told or ""),
                _spread(_at_target(reached, "bytes")),
                _spread(_at_target(reached, "up")),
                _spread(_at_target(reached, "updates")),
                _spread([float(run.curve.metric[-1]) for run in runs if len(run.curve)]),
                _spread([run.summary["bandwidth_bound_share"] for run in runs if run.summary is not None]),
            )
        )
    known = [mean for mean in means if mean is not None]
    first = groups[0][1][0]
    return Table(
        title,
        (
            Column("group"),
            Column("runs", "count"),
            Column(
                "to target", "seconds", f"{first.metric} {first.target:g}; runs that never reached it are not in it"
            ),
            Column("bytes", "bytes", "sent until then, all links and kinds"),
            Column("uplink", "bytes", "of models towards the cloud"),
            Column("updates", "count"),
            Column(f"final {first.metric}", "metric"),
            Column("bound", "share", "selections in which the bandwidth kept somebody out"),
        ),
        tuple(rows),
        ("Mean over runs, lowest to highest below it.",),
        tuple(place for place, mean in enumerate(means) if known and mean == min(known)),
    )


def _at_target(runs: Sequence[RunFigures], key: str) -> list[float]:
    return [float(getattr(run.curve, key)[run.reached]) for run in runs if run.reached is not None]


def _spread(values: Sequence[float], text: str = "") -> Spread | None:
    if not values:
        return Spread(None, text=text) if text else None
    mean, low, high = sum(values) / len(values), min(values), max(values)
    return Spread(mean, low, high, text) if high > low else Spread(mean, text=text)
