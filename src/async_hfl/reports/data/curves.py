"""Learning curves and distributions as arrays: read from a run, thinned for a page, searched for a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.maths.targets import Direction, Target, TargetProgress
from async_hfl.journal.run_directory import RunDirectory

AXES = ("time", "bytes", "up", "updates")


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One entry per evaluation. If the warm-up is free of charge, times and bytes count from its end."""

    time: Floats
    bytes: Floats
    up: Floats
    """Bytes of models sent towards the cloud, which is what the paper's figures count."""
    updates: Floats
    epoch: Ints
    metric: Floats
    loss: Floats

    def __len__(self) -> int:
        return len(self.time)


def read_curve(directory: RunDirectory, manifest: dict[str, Any], summary: dict[str, Any] | None) -> Curve:
    rows = list(directory.read_epochs())
    free = summary is not None and not manifest["settings"]["warmup"]["charge"]
    off = {
        key: float((summary or {}).get(name) or 0.0) if free else 0.0
        for key, name in (
            ("at", "warmup_s"),
            ("bytes_total", "warmup_bytes"),
            ("bytes_models_up", "warmup_models_uplink_bytes"),
        )
    }

    def column(name: str) -> Floats:
        return np.array([row[name] for row in rows], np.float64) - off.get(name, 0.0)

    return Curve(
        time=column("at"),
        bytes=column("bytes_total"),
        up=column("bytes_models_up"),
        updates=column("updates"),
        epoch=column("epoch").astype(np.int64),
        metric=column("metric"),
        loss=column("loss"),
    )


def reached(curve: Curve, target: float, direction: Direction, window: int) -> int | None:
    """Return the index of the first evaluation at which the mean of the last `window` values passes the target."""
    wanted, progress = Target("", target, direction, window), TargetProgress()
    for place, value in enumerate(curve.metric.tolist()):
        progress = progress.after(wanted, value, float(place))
        if progress.reached_at is not None:
            return place
    return None


def thinned(values: Floats, points: int) -> Ints:
    """Return about `points` indices to draw: first, last, lowest and highest of each stretch, so no spike is lost."""
    count = len(values)
    if count <= points:
        return np.arange(count)
    edges = np.linspace(0, count, max(1, points // 4) + 1).astype(np.int64)
    kept: list[int] = []
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        stretch = np.nan_to_num(values[low:high], nan=0.0, posinf=np.finfo(np.float64).max)
        kept += [low, low + int(stretch.argmin()), low + int(stretch.argmax()), high - 1]
    return np.unique(np.array(kept, np.int64))


def evenly_spaced(count: int, most: int) -> Ints:
    """Return at most `most` indices from 0 to count - 1, evenly spaced, with both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def tail_distribution(values: Floats, points: int = 400) -> tuple[Floats, Floats]:
    """Return the tail distribution of sorted values: points on the axis, and the share of values above each.

    The last 60 values are all kept, because the tail is what the curve is about.
    """
    count = len(values)
    spread, tail = np.linspace(0, count - 1, points), np.arange(max(0, count - 60), count)
    places = np.unique(np.concatenate((spread, tail)).astype(np.int64))
    share: Floats = 1.0 - (places + 0.5) / count
    return values[places], share


def significant(values: Any, digits: int = 5) -> list[float | None]:
    """Round to significant digits, to keep a page small; infinity and NaN become null."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in map(float, values)]
