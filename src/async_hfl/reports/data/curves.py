"""Learning curves for a page: as many points as an eye can use, always the same ones; and where a target is reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.maths.targets import Direction, Target, TargetProgress
from async_hfl.journal.run_directory import RunDirectory


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One entry per evaluation. Where the warm-up is free, times and bytes count from its end."""

    time: Floats
    bytes: Floats
    up: Floats
    """Bytes of models towards the cloud, which is what the paper's figures count."""
    updates: Floats
    epoch: Ints
    metric: Floats
    loss: Floats

    def __len__(self) -> int:
        return len(self.time)


AXES = ("time", "bytes", "up", "updates")


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


def thinned(values: Floats, points: int) -> Ints:
    """Places to keep: of each stretch its first, last, lowest and highest, so that no spike is lost."""
    count = len(values)
    if count <= points:
        return np.arange(count)
    edges = np.linspace(0, count, max(1, points // 4) + 1).astype(np.int64)
    kept: list[int] = []
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        stretch = np.nan_to_num(values[low:high], nan=0.0, posinf=np.finfo(np.float64).max)
        kept += [low, low + int(stretch.argmin()), low + int(stretch.argmax()), high - 1]
    return np.unique(np.array(kept, np.int64))


def reached(curve: Curve, target: float, direction: Direction, window: int) -> int | None:
    """The evaluation by which the mean of `window` consecutive ones first passes."""
    wanted, progress = Target("", target, direction, window), TargetProgress()
    for place, value in enumerate(curve.metric.tolist()):
        progress = progress.after(wanted, value, float(place))
        if progress.reached_at is not None:
            return place
    return None
