"""The criterion of tuning, the same for all methods: the time to the highest target of the ladder that is reached.

The points of one method are compared at the highest level of the metric that any of them held with every seed (or, if
there is none, that any run held). Levels beyond the target of the task do not count, since runs end at it. A point with
which more seeds held it is better; then the one with the shorter time, as the geometric mean over seeds, where a run
that did not hold it counts as its whole duration. If no run held any level, the best metric of the last models decides.
Of equal points the one nearer to the packaged settings is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from async_hfl.experiments.comparison.outcome import Outcome, outcome_at
from async_hfl.experiments.results.measured import Measured
from async_hfl.experiments.tuning.search import Point

Results = Mapping[Point, Sequence[Measured]]
"""The results of each point, one for each seed."""


@dataclass(frozen=True, slots=True)
class Score:
    """The outcomes of the runs of one point at the common level."""

    outcomes: tuple[Outcome, ...]

    @property
    def reached(self) -> int:
        return sum(one.held is not None for one in self.outcomes)

    @property
    def time(self) -> float:
        """The geometric mean in seconds."""
        logs = [math.log(max(one.cost().value, 1e-9)) for one in self.outcomes]
        return math.exp(math.fsum(logs) / len(logs))


def level_of(results: Results, target: float) -> float | None:
    """Return the level at which the points are compared; None if no run held any."""
    rising = next(iter(results.values()))[0].direction == "at_least"
    held = {point: [_held(run, target) for run in runs] for point, runs in results.items()}
    by_all = {level for runs in held.values() for level in set.intersection(*runs)}
    by_any = {level for runs in held.values() for run in runs for level in run}
    return (max if rising else min)(by_all or by_any, default=None)


def _held(run: Measured, target: float) -> set[float]:
    """Return the levels up to the target that the run held."""
    rising = run.direction == "at_least"
    return {
        one.level
        for one in run.levels
        if one.held is not None and (one.level <= target if rising else one.level >= target)
    }


def score(results: Results, point: Point, target: float) -> Score | None:
    level = level_of(results, target)
    if level is None:
        return None
    return Score(tuple(outcome_at(run, number, level) for number, run in enumerate(results[point])))


def rank(results: Results, target: float, point: Point) -> tuple[float, ...]:
    """Return the sort key of a point: the lowest is the best."""
    distance = (math.fsum(map(abs, point)), *point)
    found = score(results, point, target)
    if found is not None:
        return (-found.reached, found.time, *distance)
    return (0.0, math.fsum(_shortfall(run) for run in results[point]), *distance)


def _shortfall(run: Measured) -> float:
    if run.final is None or not math.isfinite(run.final):
        return math.inf
    return -run.final if run.direction == "at_least" else run.final
