"""The target of a run: a metric, a direction and a threshold, and the progress towards it.

A target is reached when the mean of `window` consecutive evaluations first passes the threshold; a single crossing
would favour methods with a noisy metric. The first single crossing, the paper's rule, is recorded as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from async_hfl.core.serialization import value

Direction = Literal["at_least", "at_most"]


@dataclass(frozen=True, slots=True)
class Target:
    metric: str
    threshold: float
    direction: Direction = "at_least"
    window: int = 3

    def passes(self, value: float) -> bool:
        return value >= self.threshold if self.direction == "at_least" else value <= self.threshold


@value
class TargetProgress:
    """Progress after the evaluations so far; `after` returns the progress after one more."""

    recent: tuple[float, ...] = ()
    """The last `window` values of the metric."""
    reached_at: float | None = None
    first_crossing_at: float | None = None

    def after(self, target: Target, value: float, at: float) -> TargetProgress:
        recent = (*self.recent, value)[-target.window :]
        full = len(recent) == target.window
        reached, crossing = self.reached_at, self.first_crossing_at
        if crossing is None and target.passes(value):
            crossing = at
        if reached is None and full and target.passes(sum(recent) / target.window):
            reached = at
        return TargetProgress(recent, reached, crossing)
