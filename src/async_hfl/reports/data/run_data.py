"""The data that the page of one run draws, thinned so that a large run does not make a large page."""

from __future__ import annotations

from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.reports.data.curves import AXES, Curve, evenly_spaced, significant, tail_distribution, thinned
from async_hfl.reports.data.journal_columns import Columns

CURVE_POINTS = 900
MOST_BARS = 300
MOST_MOMENTS = 90
_BINS = 60
_MOST_EVENTS = 300
_DOWN, _UP = ("went_down", "died"), ("came_back",)


def curve_data(curve: Curve) -> dict[str, Any]:
    kept = thinned(curve.metric, CURVE_POINTS)
    return {name: significant(getattr(curve, name)[kept], 6) for name in (*AXES, "metric", "loss")}


def delay_data(columns: Columns) -> list[dict[str, Any]]:
    """Return, for each part of a round, the share of aggregated jobs for which it took longer than x."""
    jobs = columns.jobs
    used = jobs.aggregated
    parts = {
        "whole round": jobs.ended_at - jobs.sent_at,
        "download": jobs.download_s,
        "training": jobs.training_s,
        "upload": jobs.upload_s,
        "waiting at the gateway": jobs.ended_at - jobs.arrived_at,
    }
    found = []
    for name, values in parts.items():
        known = np.sort(values[used & np.isfinite(values)])
        if len(known) and known[-1] > 1e-6:
            seconds, share = tail_distribution(known, 200)
            middle, most = np.quantile(known, [0.5, 0.99]).tolist()
            found.append(
                {"name": name, "x": significant(seconds), "y": significant(share, 4), "median": middle, "p99": most}
            )
    return found


def staleness_data(columns: Columns) -> dict[str, Any]:
    jobs = columns.jobs
    mixed = [one["staleness"] for one in columns.uploads if one["reason"] == "mixed"]
    return {"gateway": _bins(jobs.staleness[jobs.aggregated]), "cloud": _bins(np.array(mixed, np.int64))}


def _bins(values: Ints) -> list[list[int]]:
    """Return bars as [from, to, count]; a bar covers several values if there are many."""
    if not len(values):
        return []
    low, high = int(values.min()), int(values.max())
    wide = -(-(high - low + 1) // _BINS)
    counts = np.bincount((values - low) // wide)
    return [[low + place * wide, low + (place + 1) * wide, int(count)] for place, count in enumerate(counts)]


def device_data(
    columns: Columns,
    devices: int,
    summary: dict[str, Any] | None,
    spent: list[dict[str, float]],
    able: Ints | None = None,
) -> dict[str, Any]:
    """Return one row per device, sorted by its aggregated updates; an even sample if there are many devices.

    `able` are the devices that can take part, because they have a link (None: all); only these are counted."""
    jobs = columns.jobs
    able = np.arange(devices) if able is None else able
    counts = np.bincount(jobs.device[jobs.aggregated], minlength=devices)[:devices]
    asked = np.bincount(jobs.device, minlength=devices)[:devices]
    last = np.full(devices, np.nan)
    last[jobs.device[jobs.aggregated]] = jobs.ended_at[jobs.aggregated]  # jobs are sorted by end: the last one wins
    home = np.full(devices, -1, np.int64)
    for one in columns.associations:
        for device, gateway in one["moved"]:
            home[device] = gateway
    scores = ((summary or {}).get("by_device") or {}).get("values") or []
    order = able[np.lexsort((able, counts[able]))]
    shown = order[evenly_spaced(len(able), MOST_BARS)]
    ranked, tenth = counts[order], max(1, len(able) // 10)
    never = np.sort(able[counts[able] == 0])
    return {
        "devices": len(able),
        "rows": [
            {
                "device": device,
                "updates": int(counts[device]),
                "asked": int(asked[device]),
                "last": None if np.isnan(last[device]) else float(last[device]),
                "gateway": int(home[device]),
                "score": scores[device] if device < len(scores) else None,
                "joules": spent[device]["energy_j"] if device < len(spent) else None,
                "compute_s": spent[device]["compute_s"] if device < len(spent) else None,
            }
            for device in shown.tolist()
        ],
        "mean": float(ranked.mean()) if len(able) else 0.0,
        "median": float(np.median(ranked)) if len(able) else 0.0,
        "never": [int(device) for device in never[:40]],
        "never_count": len(never),
        "least_tenth": float(ranked[:tenth].sum() / max(1, ranked.sum())),
        "most_tenth": float(ranked[-tenth:].sum() / max(1, ranked.sum())),
    }


def class_data(columns: Columns) -> dict[str, Any] | None:
    """Return the metric by class over the run, at no more than MOST_MOMENTS evaluations."""
    detailed = [one for one in columns.epochs if one["details"]]
    if not detailed:
        return None
    shown = [detailed[place] for place in evenly_spaced(len(detailed), MOST_MOMENTS).tolist()]
    names = list(shown[0]["details"])
    return {
        "what": "class" if names[0].startswith("class_") else names[0].partition("_")[0],
        "classes": [name.removeprefix("class_").replace("_", " ") for name in names],
        "at": significant([one["at"] for one in shown]),
        "epoch": [one["epoch"] for one in shown],
        "values": [significant([one["details"].get(name, np.nan) for one in shown], 3) for name in names],
    }


def decision_data(columns: Columns, timings: dict[str, Any]) -> dict[str, Any]:
    found = columns.associations
    gaps = np.array([_gap(one) for one in found], np.float64)
    kept = thinned(gaps, 400)
    selected = np.array([one["gap"] for one in columns.selections if one["gap"] is not None], np.float64)
    times = timings.get("decisions", {})
    return {
        "association": {
            "at": significant([found[place]["at"] for place in kept.tolist()]),
            "gap": significant(gaps[kept]),
            "moved": [len(found[place]["moved"]) for place in kept.tolist()],
        },
        "solved": len(found),
        "selections": len(columns.selections),
        "bound": sum(one["bound"] for one in columns.selections),
        "lone": sum(one["lone"] for one in columns.selections),
        "selection_gap": float(selected.max()) if len(selected) else None,
        "times": {what: times.get(what) for what in ("selection", "association")},
    }


def _gap(association: dict[str, Any]) -> float:
    objective, bound = association["objective"], association["bound"]
    if objective is None or bound is None:
        return np.nan
    return float((bound - objective) / max(abs(bound), 1e-9))


def lifecycle_data(columns: Columns) -> dict[str, Any]:
    """Return, over time, the number of nodes that are down or have timed out; and the first events."""
    counts: dict[str, int] = {}
    now = {"devices down": 0, "links down": 0, "gateways down": 0, "devices timed out": 0}
    lines: dict[str, list[list[float]]] = {name: [[0.0, 0]] for name in now}
    for one in columns.lifecycle:
        what, node = one["what"], one["node"]
        counts[what] = counts.get(what, 0) + 1
        who = "links down" if "-" in node else "devices down" if node.startswith("d") else "gateways down"
        if what in ("device_given_up", "device_heard"):
            who = "devices timed out"
        step = 1 if what in (*_DOWN, "device_given_up") else -1 if what in (*_UP, "device_heard") else 0
        if step:
            now[who] = max(0, now[who] + step)
            lines[who].append([one["at"], now[who]])
    drawn = {}
    for name, points in lines.items():
        if len(points) > 1:
            points.append([columns.ends_at, points[-1][1]])
            values: Floats = np.array([point[1] for point in points], np.float64)
            drawn[name] = [[round(points[place][0], 1), points[place][1]] for place in thinned(values, 500).tolist()]
    return {
        "counts": counts,
        "lines": drawn,
        "events": [[one["at"], one["what"], one["node"], one["detail"]] for one in columns.lifecycle[:_MOST_EVENTS]],
        "all": len(columns.lifecycle),
    }
