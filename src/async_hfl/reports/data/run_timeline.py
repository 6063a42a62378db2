"""The timeline of a gateway: the activity of each of its devices. A long run is shown in three windows."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np

from async_hfl.core.arrays import Ints
from async_hfl.core.protocol.records import JobEnd
from async_hfl.reports.data.curves import evenly_spaced
from async_hfl.reports.data.journal_columns import Columns, Jobs

MOST_JOBS = 3600
MOST_GATEWAYS = 24
MOST_DEVICES = 40
"""The most devices shown for one gateway."""
REASONS: tuple[str, ...] = get_args(JobEnd)


def timeline_data(columns: Columns) -> dict[str, Any] | None:
    """Return jobs as [gateway, device, sent, downloaded, trained, upload began, arrived, ended, reason], in seconds."""
    jobs = columns.jobs
    if not len(jobs):
        return None
    shown, thinned = _chosen(jobs)
    order = shown[np.argsort(jobs.sent_at[shown], kind="stable")]
    windows = _windows(order)
    kept = np.unique(np.concatenate([order[low:high] for _, low, high in windows]))
    typical = float(np.median(jobs.ended_at[kept] - jobs.sent_at[kept]))
    digits = _digits(typical)
    return {
        "typical": round(typical, digits),
        "reasons": [reason.replace("_", " ") for reason in REASONS],
        "windows": [
            {
                "name": name,
                "from": round(float(jobs.sent_at[order[low]]), digits),
                "to": round(float(jobs.ended_at[order[low:high]].max()), digits),
            }
            for name, low, high in windows
        ],
        "jobs": [_row(jobs, place, digits) for place in kept.tolist()],
        "uploads": _uploads(columns, sorted(set(jobs.gateway[kept].tolist())), digits),
        "gateways": len(np.unique(jobs.gateway)),
        "thinned": thinned,
    }


def _chosen(jobs: Jobs) -> tuple[Ints, dict[str, int]]:
    """Return the indices of the jobs to show, and the number of devices of each gateway that is not shown whole."""
    gateways = np.unique(jobs.gateway)
    gateways = gateways[evenly_spaced(len(gateways), MOST_GATEWAYS)]
    parts, thinned = [], {}
    for gateway in gateways.tolist():
        own = np.flatnonzero(jobs.gateway == gateway)
        devices, counts = np.unique(jobs.device[own], return_counts=True)
        if len(devices) > MOST_DEVICES:
            thinned[str(gateway)] = len(devices)
            busiest_first = devices[np.lexsort((devices, -counts))]
            own = own[np.isin(jobs.device[own], busiest_first[evenly_spaced(len(devices), MOST_DEVICES)])]
        parts.append(own)
    return np.concatenate(parts), thinned


def _windows(order: Ints) -> list[tuple[str, int, int]]:
    """Return windows as (name, first, last) indices in the order of dispatch."""
    count, part = len(order), MOST_JOBS // 3
    if count <= MOST_JOBS:
        return [("whole run", 0, count)]
    middle = count // 2 - part // 2
    return [("beginning", 0, part), ("middle", middle, middle + part), ("end", count - part, count)]


def _digits(typical: float) -> int:
    """Return the decimals of a second that times are given with: a job takes milliseconds or hours."""
    return min(6, max(1, math.ceil(2 - math.log10(max(typical, 1e-9)))))


def _row(jobs: Jobs, place: int, digits: int) -> list[Any]:
    sent = float(jobs.sent_at[place])
    downloaded = sent + float(jobs.download_s[place])
    trained = downloaded + float(jobs.training_s[place])
    arrived, upload = float(jobs.arrived_at[place]), float(jobs.upload_s[place])
    known = bool(jobs.training_s[place] > 0)
    uploaded = (
        [round(arrived - upload, digits), round(arrived, digits)] if known and np.isfinite(arrived) else [None, None]
    )
    return [
        int(jobs.gateway[place]),
        int(jobs.device[place]),
        round(sent, digits),
        *([round(downloaded, digits), round(trained, digits)] if known else [None, None]),
        *uploaded,
        round(float(jobs.ended_at[place]), digits),
        REASONS.index(jobs.reason[place]),
    ]


def _uploads(columns: Columns, gateways: list[int], digits: int) -> list[list[float]]:
    """Return [gateway, time at which the cloud mixed the upload], at most MOST_JOBS of them."""
    own = [[one["upload"][0], round(one["at"], digits)] for one in columns.uploads if one["upload"][0] in set(gateways)]
    every = -(-len(own) // MOST_JOBS) if own else 1
    return own[::every]
