"""The target of a run, and the moment at which it is reached.

The metric is a step function of time: the value of an evaluation lasts until the next evaluation. Two rules say when it
has reached a target:

held   the mean of the metric over a window of time first passes the target; dated at the middle of that window
first  a single evaluation first passes it (the paper's rule, which favours a noisy metric)

A model that is evaluated twice gives two equal steps, which are one step. So the time at which a target is held does
not depend on how often an unchanged model is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import fsum, inf, isfinite
from typing import Any, Literal

from async_hfl.core.serialization import earlier, value

Direction = Literal["at_least", "at_most"]
EVALUATIONS = 3
"""Evaluations whose mean has to pass a target that has no window of time."""
Steps = tuple[tuple[float, float], ...]
"""Times and values of evaluations."""


@dataclass(frozen=True, slots=True)
class Target:
    metric: str
    threshold: float
    direction: Direction = "at_least"
    window: float | None = None
    """Seconds over which the mean is taken. None: the mean of three evaluations instead, dated at the third."""

    def passes(self, value: float) -> bool:
        return value >= self.threshold if self.direction == "at_least" else value <= self.threshold

    def excess(self, value: float) -> float:
        """Return the distance from the threshold, positive on the side that passes."""
        return value - self.threshold if self.direction == "at_least" else self.threshold - value


@value
class TargetProgress:
    """Progress after the evaluations so far. `after` adds an evaluation, `until` a time without one."""

    steps: Steps = ()
    """The evaluations that a later mean may contain. Among those of a window of time no value equals the one before."""
    due: float = inf
    """The time at which it is known that the target is held, if the metric does not change before."""
    held_at: float | None = None
    first_at: float | None = None

    def after(self, target: Target, value: float, at: float) -> TargetProgress:
        known = self.until(target, at)
        if known.first_at is None and target.passes(value):
            known = replace(known, first_at=at)
        if known.held_at is not None:
            return known
        if target.window is None:
            steps = (*known.steps, (at, value))[-EVALUATIONS:]
            mean = sum(one for _, one in steps) / EVALUATIONS
            due = at if len(steps) == EVALUATIONS and target.passes(mean) else inf
        elif not isfinite(value):
            steps, due = (), inf  # no window that contains it passes: the next evaluation is a new beginning
        elif known.steps and known.steps[-1][1] == value:
            return known
        else:
            steps = _within((*known.steps, (at, value)), at - target.window)
            due = _due(target, steps, target.window)
        return replace(known, steps=steps, due=due).until(target, at)

    def until(self, target: Target, at: float) -> TargetProgress:
        """Return the progress if there is no further evaluation until `at`."""
        if self.held_at is not None or self.due > at:
            return self
        return replace(self, steps=(), held_at=self.due - (target.window or 0.0) / 2)


@earlier(TargetProgress, 3)
def _from_release_2(stored: list[Any]) -> list[Any]:
    """Release 0.2.0 stored the last values, without their times, and the two times."""
    recent, held_at, first_at = stored
    return [tuple((0.0, one) for one in recent), inf, held_at, first_at]


def progress_over(target: Target, evaluations: Iterable[tuple[float, float]], until: float) -> TargetProgress:
    """Return the progress at the time `until`, after these evaluations (times and values)."""
    progress = TargetProgress()
    for at, one in evaluations:
        progress = progress.after(target, one, at)
    return progress.until(target, until)


def _within(steps: Steps, begin: float) -> Steps:
    """Leave out the steps that ended before."""
    first = 0
    while first + 1 < len(steps) and steps[first + 1][0] <= begin:
        first += 1
    return steps[first:]


def _due(target: Target, steps: Steps, window: float) -> float:
    """Return the end of the first window whose mean passes, if the last value stays; no earlier one has passed.

    The sum of excess times duration over a window is linear in the window's end between two ends at which the window
    leaves a step. So it is followed from one of these ends to the next."""
    since, last = steps[-1][0], target.excess(steps[-1][1])
    end = max(since, steps[0][0] + window)
    former = [(begin, until, target.excess(value)) for (begin, value), (until, _) in pairwise(steps)]
    parts = [excess * (until - max(begin, end - window)) for begin, until, excess in former]
    total = fsum([*parts, last * (end - since)])
    for _, until, excess in former:
        if total >= 0:
            break
        leaves = until + window
        gain = (last - excess) * (leaves - end)
        if total + gain >= 0:
            return min(end - total / (last - excess), leaves)
        total, end = total + gain, leaves
    # Once the window has left every former step it contains the last value alone, whatever rounding has left in total.
    return end if total >= 0 or last >= 0 else inf
