"""The result of one run, as tables and figures need it: small enough to be kept in a repository as one line.

It is measured from a run directory. Levels of the metric are searched then, so a result has those that it was asked
for: the ladder of the task, its target, and further ones that a plan names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from async_hfl.core.errors import UserError
from async_hfl.core.maths.milestones import Reached
from async_hfl.core.maths.targets import Direction, Target
from async_hfl.experiments.results.parts_of_rounds import mean_parts
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.curves import Curve, read_curve, significant, target_of, thinned

_POINTS = 64
"""The number of evaluations that are kept of a curve."""


class Level(msgspec.Struct, frozen=True, array_like=True):
    """A level of the metric, and the states at which it was held and first crossed; None if never."""

    level: float
    held: Reached | None
    first: Reached | None


class KeptCurve(msgspec.Struct, frozen=True):
    """The learning curve, thinned to a number of evaluations that a figure can show."""

    at: list[float]
    bytes: list[float]
    metric: list[float | None]


class Decisions(msgspec.Struct, frozen=True):
    """Seconds that the decisions of one kind took on the machine that made the run."""

    median_s: float
    p99_s: float
    most_s: float
    count: int


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    metric: str
    direction: Direction
    levels: list[Level]
    end: Reached
    """The state at the end of the run, which bounds what a level costs that was not reached."""
    final: float | None
    """The metric of the last model."""
    bound_share: float
    """Share of the selections in which the bandwidth limit excluded a candidate."""
    warmup_s: float
    """The part of the times that is warm-up; 0 if the warm-up is free of charge."""
    energy_j: float | None
    """Energy of all devices during the whole run, without idle power."""
    worst_class: float | None
    """Accuracy of the last model on the class on which it is worst."""
    worst_device: float | None
    """Metric of the last model on the device on which it is worst."""
    class_floor: float | None
    """Least accuracy of a class in the last 20 evaluations, relative to its accuracy in the last one."""
    lost_gain: float
    """The largest fall of the metric below its best value so far, as a share of the gain until then. It counts from the
    moment at which half of the whole gain was made."""
    left_out: int | None
    """Number of devices that never took part although their expected round is under a quarter of the run."""
    kinds: dict[str, float]
    """All bytes by kind: model, gradient, basis, control."""
    decisions: dict[str, Decisions]
    curve: KeptCurve
    parts: dict[str, tuple[float, float, float]] | None = None
    """Mean seconds of download, training and upload, by device; None unless asked for."""

    def at(self, level: float) -> Level:
        for one in self.levels:
            if one.level == level:
                return one
        known = ", ".join(f"{one.level:g}" for one in self.levels)
        raise UserError(f"level {level:g}: the kept results have {known}; give one of these, or make the runs again")

    def has(self, levels: Iterable[float], *, parts: bool) -> bool:
        """True if the result was measured at these levels, and has the parts of rounds if they are wanted."""
        return {one.level for one in self.levels} >= set(levels) and (self.parts is not None or not parts)


def measure(directory: RunDirectory, levels: Sequence[float], *, parts: bool = False) -> Measured:
    """Measure a complete run."""
    manifest, summary = directory.read_manifest(), directory.read_summary()
    assert summary is not None
    charged = manifest["settings"]["warmup"]["charge"]
    curve = read_curve(directory, manifest, summary)
    target = target_of(manifest)
    energy, devices = summary.get("energy"), summary.get("by_device") or {}
    left_out = summary.get("left_out")
    return Measured(
        metric=target.metric,
        direction=target.direction,
        levels=[_level(curve, replace(target, threshold=level)) for level in sorted(set(levels))],
        end=_numbers(curve.end),
        final=summary["final_metric"],
        bound_share=summary["bandwidth_bound_share"],
        warmup_s=summary["warmup_s"] if charged else 0.0,
        energy_j=None if energy is None else energy["total_j"],
        worst_class=_worst_class(summary),
        worst_device=devices.get("worst"),
        class_floor=summary.get("class_floor"),
        lost_gain=lost_gain(curve.metric.tolist(), target.direction),
        left_out=None if left_out is None else len(left_out),
        kinds=_kinds(summary),
        decisions=_decisions(directory),
        curve=_kept(curve),
        parts=mean_parts(directory) if parts else None,
    )


def _level(curve: Curve, target: Target) -> Level:
    found = curve.milestones(target)
    held, first = (None if one is None else _numbers(one) for one in (found.held, found.first))
    return Level(target.threshold, held, first)


def _numbers(state: Reached) -> Reached:
    """Return the state as it is read from a file again."""
    return Reached(*map(float, state))


def lost_gain(metric: Sequence[float], direction: Direction) -> float:
    """Return the largest share of its gain that the metric has lost again (see `Measured`)."""
    values = np.array(metric, np.float64) * (1.0 if direction == "at_least" else -1.0)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return 0.0
    best = np.maximum.accumulate(values)
    gain = best - values[0]
    counted = (gain > 0) & (gain >= gain[-1] / 2)
    return float(((best - values)[counted] / gain[counted]).max(initial=0.0))


def _worst_class(summary: dict[str, Any]) -> float | None:
    by_class = summary.get("by_class") or {}
    return min((value for name, value in by_class.items() if name.startswith("class_")), default=None)


def _kinds(summary: dict[str, Any]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for tier in summary.get("bytes", {}).values():
        for way in tier.values():
            for kind, count in way.items():
                totals[kind] = totals.get(kind, 0.0) + count
    return totals


def _decisions(directory: RunDirectory) -> dict[str, Decisions]:
    taken: dict[str, Any] = (directory.read_timings() or {}).get("decisions", {})
    names = Decisions.__struct_fields__
    return {what: Decisions(*(one[name] for name in names)) for what, one in sorted(taken.items()) if one}


def _kept(curve: Curve) -> KeptCurve:
    # A curve that is short enough is kept whole: `thinned` may return a few more points than it is asked for.
    places = np.arange(len(curve)) if len(curve) <= _POINTS else thinned(curve.metric, _POINTS)
    at, sent = (significant(values[places], 6) for values in (curve.time, curve.bytes))
    return KeptCurve([one or 0.0 for one in at], [one or 0.0 for one in sent], significant(curve.metric[places], 6))
