"""Learning curves and distributions as arrays: read from a run, and thinned for a page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.maths.milestones import Milestones, Reached, Track
from async_hfl.core.maths.targets import Target
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
    end: Reached
    """The state at the end of the run, or at its last evaluation so far."""

    def __len__(self) -> int:
        return len(self.time)

    def milestones(self, target: Target) -> Milestones:
        """Return the states at which a target was held and first passed."""
        columns = (column.tolist() for column in (self.time, self.bytes, self.up, self.updates))
        return Track(list(map(Reached, *columns)), self.metric.tolist(), self.end).milestones(target)


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
        end=_end(rows, summary, off),
    )


def _end(rows: list[dict[str, float]], summary: dict[str, Any] | None, off: dict[str, float]) -> Reached:
    if summary is not None:
        up = sum(tier["up"]["model"] for tier in summary["bytes"].values())
        found = (summary["virtual_s"], summary["bytes_total"], up, summary["device_updates"])
    elif rows:
        last = rows[-1]
        found = (last["at"], last["bytes_total"], last["bytes_models_up"], last["updates"])
    else:
        found = (0.0, 0, 0, 0)
    at, total, models_up, updates = found
    return Reached(at - off["at"], total - off["bytes_total"], models_up - off["bytes_models_up"], updates)


def target_of(manifest: dict[str, Any], level: float | None = None) -> Target:
    """Return the target of a run, with the window that the run used; `level` replaces its value."""
    rule = manifest.get("metric", {})
    wanted = manifest["settings"]["task"]["target"] if level is None else level
    window = manifest.get("evaluation", {}).get("window_s")
    return Target(rule.get("name", "metric"), wanted, rule.get("direction", "at_least"), window)


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
