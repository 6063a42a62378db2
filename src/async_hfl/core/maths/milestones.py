"""The time, the bytes and the updates at which a run reached a target, found from its evaluations.

Every reader of a run (its summary, comparisons, pages, benchmarks) asks here, so that all give the same answer, and any
target can be looked up afterwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from async_hfl.core.maths.targets import Target, progress_over


class Reached(NamedTuple):
    """The state of a run at some moment. Between two evaluations bytes and updates are interpolated."""

    at: float
    bytes_total: float
    """All bytes, in both directions and both tiers."""
    bytes_models_up: float
    """Bytes of models sent towards the cloud, which is what the paper counts."""
    updates: float
    """Device updates."""


@dataclass(frozen=True, slots=True)
class Milestones:
    held: Reached | None
    first: Reached | None


@dataclass(frozen=True, slots=True)
class Track:
    """The evaluations of a run, in their order."""

    states: Sequence[Reached]
    metrics: Sequence[float]
    end: Reached
    """The state at the end of the run, until which the last value of the metric lasted."""

    def milestones(self, target: Target) -> Milestones:
        """Return the states at which the target was held and first passed."""
        times = [state.at for state in self.states]
        progress = progress_over(target, zip(times, self.metrics, strict=True), self.end.at)
        first = None if progress.first_at is None else self.states[times.index(progress.first_at)]
        return Milestones(None if progress.held_at is None else self._at(progress.held_at, times), first)

    def _at(self, at: float, times: list[float]) -> Reached:
        place = bisect_left(times, at)
        after = self.states[place] if place < len(times) else self.end
        if after.at <= at:
            return after
        before = self.states[place - 1]
        share = (at - before.at) / (after.at - before.at)
        between = (round(low + share * (high - low)) for low, high in zip(before[1:], after[1:], strict=True))
        return Reached(at, *between)
