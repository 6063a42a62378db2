"""When is a run good enough? A metric, a direction and a threshold.

Reached = the mean of `window` consecutive evaluations first passes the threshold (a single crossing flatters noisy
methods). The first single crossing, the paper's rule, is kept beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from async_hfl.core.serialization import plain

Direction = Literal["at_least", "at_most"]


@dataclass(frozen=True, slots=True)
class Target:
    metric: str
    threshold: float
    direction: Direction = "at_least"
    window: int = 3
    best: float | None = None
    """No model is better than that; None: nobody knows."""

    def passes(self, value: float) -> bool:
        return value >= self.threshold if self.direction == "at_least" else value <= self.threshold


@plain
@dataclass(frozen=True, slots=True)
class TargetProgress:
    """What is known so far; `after` gives the next one."""

    recent: tuple[float, ...] = ()
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

    def may_reach(self, target: Target) -> bool:
        """Could it be reached with the next evaluation?"""
        anything = inf if target.direction == "at_least" else -inf
        return self.after(target, anything if target.best is None else target.best, 0.0).reached_at is not None
