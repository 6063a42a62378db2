"""The comparison of groups of runs: panels of comparable groups, with one row per group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.experiments.comparison.outcome import Outcome, Quantity, Rule, at_target, costs, outcome_at
from async_hfl.experiments.comparison.statistics import Average, Ratio, average, bounded_ratio
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.results.measured import Measured
from async_hfl.experiments.results.sources import Results
from async_hfl.experiments.tuning.tuned import Tuned


@dataclass(frozen=True, slots=True)
class Row:
    group: str
    family: str
    method: str
    outcomes: tuple[Outcome, ...]
    """Outcomes of the complete runs at the level of the panel, sorted by seed."""
    missing: int
    """The number of planned runs that failed or are not complete yet."""
    is_best_variant: bool
    """True for the best variant of a method, which represents the method."""
    speed_up: Ratio | None
    """Time of the reference to hold the level over the time of this group."""
    speed_up_first: Ratio | None
    """The same for the first single crossing."""
    at_own_target: tuple[Outcome, ...] = ()
    """The outcomes at the target of the task."""
    tuned: Tuned | None = None

    @property
    def seeds(self) -> int:
        return len(self.outcomes) + self.missing

    @property
    def reached(self) -> int:
        return sum(one.held is not None for one in self.outcomes)

    def at_target(self, quantity: Quantity = "at", rule: Rule = "held") -> dict[int, float]:
        return at_target(self.outcomes, quantity, rule)

    def less_warmup(self) -> dict[int, float]:
        """Return the seconds from the end of the warm-up until the target was held, by seed."""
        return {one.seed: one.held.at - one.result.warmup_s for one in self.outcomes if one.held is not None}

    def over_all_seeds(self, values: dict[int, float]) -> Average | None:
        """Return the mean over seeds, or None if a seed has no value: a failure must not vanish in a mean."""
        return average(list(values.values())) if values and len(values) == self.seeds else None

    @property
    def bound_share(self) -> float | None:
        shares = [one.result.bound_share for one in self.outcomes]
        return math.fsum(shares) / len(shares) if shares else None

    @property
    def energy(self) -> Average | None:
        spent = {one.seed: one.result.energy_j for one in self.outcomes if one.held is not None}
        return self.over_all_seeds({seed: joules for seed, joules in spent.items() if joules is not None})

    @property
    def final(self) -> Average | None:
        return average([one.result.final for one in self.outcomes if one.result.final is not None])

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "family": self.family,
            "method": self.method,
            "counts": self.is_best_variant,
            "seeds": self.seeds,
            "missing": self.missing,
            "reached": self.reached,
            "time_to_target_s": _numbers(self, self.at_target()),
            "less_warmup_s": _numbers(self, self.less_warmup()),
            "first_crossing_s": _numbers(self, self.at_target(rule="first")),
            "speed_up": None if self.speed_up is None else asdict(self.speed_up),
            "speed_up_first": None if self.speed_up_first is None else asdict(self.speed_up_first),
            "bytes_to_target": _numbers(self, self.at_target("bytes_total")),
            "models_uplink_bytes_to_target": _numbers(self, self.at_target("bytes_models_up")),
            "energy_j": None if self.energy is None else asdict(self.energy),
            "final_metric": None if self.final is None else asdict(self.final),
            "time_to_own_target_s": at_target(self.at_own_target),
            "tuned": None if self.tuned is None else self.tuned.settings,
            "bandwidth_bound_share": self.bound_share,
            "device_updates": {one.seed: int(one.result.end.updates) for one in self.outcomes},
            "runs": [str(one.run) for one in self.outcomes if one.run is not None],
        }


def _numbers(row: Row, values: dict[int, float]) -> dict[str, Any]:
    """Return mean and deviation if every seed has a value, and the values by seed (null for a missing one)."""
    whole = row.over_all_seeds(values)
    return {
        "mean": None if whole is None else whole.mean,
        "deviation": None if whole is None else whole.deviation,
        "by_seed": {one.seed: values.get(one.seed) for one in row.outcomes},
    }


@dataclass(frozen=True, slots=True)
class Panel:
    name: str
    reference: str
    target: float
    """The level of the metric at which the groups are compared."""
    own_target: float
    """The target of the task."""
    rows: tuple[Row, ...]
    usual_reference: str = ""
    """The group that would be the reference if it had reached the target."""

    def row(self, group: str) -> Row | None:
        return next((row for row in self.rows if row.group == group), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "panel": self.name,
            "reference": self.reference,
            "usual_reference": self.usual_reference,
            "target": self.target,
            "own_target": self.own_target,
            "rows": [row.as_json() for row in self.rows],
        }


def compare(
    runs: Sequence[PlannedRun],
    results: Results,
    reference: str | None = None,
    target: float | None = None,
    *,
    headline: bool = False,
) -> tuple[Panel, ...]:
    """Compare the complete runs at `target`, by default that of the task.

    With `headline` they are compared at the highest level that every method held with every seed, if there is one. The
    default reference is async-random or, without it, the first group of a panel.
    """
    panels: dict[str, list[PlannedRun]] = {}
    for run in runs:
        panels.setdefault(run.panel, []).append(run)
    check_reference(runs, reference)
    return tuple(_panel(name, found, results, reference, target, headline) for name, found in panels.items())


def check_reference(runs: Sequence[PlannedRun], reference: str | None) -> None:
    groups = list(dict.fromkeys(run.group for run in runs))
    if reference is not None and reference not in groups:
        raise UserError(f"--reference {reference}: not among the compared groups, which are: {'; '.join(groups)}")


Done = dict[str, list[tuple[PlannedRun, Measured]]]
"""The complete runs of each group, sorted by seed."""


def _panel(
    name: str,
    runs: Sequence[PlannedRun],
    results: Results,
    reference: str | None,
    target: float | None,
    headline: bool,
) -> Panel:
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    done: Done = {
        group: [(run, one) for run in sorted(found, key=_seed) if (one := results.of(run)) is not None]
        for group, found in groups.items()
    }
    own = runs[0].target
    level = target if target is not None else (_common_level(done) if headline else None)
    level = own if level is None else level

    def outcomes(group: str, at: float) -> list[Outcome]:
        return [outcome_at(one, run.seed, at, results.directory(run)) for run, one in done[group]]

    compared = {group: outcomes(group, level) for group in groups}
    usual = reference if reference in groups else "async-random" if "async-random" in groups else next(iter(groups))
    base = usual if reference in groups else _first_that_reached(usual, compared)
    bare = [
        _row(found, compared[group], compared[base], [] if level == own else outcomes(group, own))
        for group, found in groups.items()
    ]
    best = {row.family: min((one for one in bare if one.family == row.family), key=_order) for row in bare}
    rows = tuple(replace(row, is_best_variant=best[row.family] is row) for row in bare)
    return Panel(name, base, level, own, rows, usual)


def _seed(run: PlannedRun) -> int:
    return run.seed


def _common_level(done: Done) -> float | None:
    return common_level((found[0][0].family, [one for _, one in found]) for found in done.values() if found)


def common_level(groups: Iterable[tuple[str, Sequence[Measured]]]) -> float | None:
    """Return the highest level that every method held with every seed; of variants of a method one is enough.

    A group is the name of its method and the results of its runs.
    """
    held: dict[str, set[float]] = {}
    steps: dict[float, None] = {}
    falling = False
    for family, results in groups:
        if not results:
            continue
        reached = [{one.level for one in result.levels if one.held is not None} for result in results]
        falling = results[0].direction == "at_most"
        held[family] = held.get(family, set()) | set.intersection(*reached)
        steps |= dict.fromkeys(one.level for result in results for one in result.levels)
    common = [level for level in steps if all(level in levels for levels in held.values())]
    return (min if falling else max)(common, default=None)


def _first_that_reached(usual: str, done: dict[str, list[Outcome]]) -> str:
    """Return the usual reference or, if it never reached the target, the first group that did."""
    successful = [group for group, outcomes in done.items() if any(one.held for one in outcomes)]
    return usual if usual in successful or not successful else successful[0]


def _row(runs: list[PlannedRun], outcomes: list[Outcome], base: list[Outcome], at_own: list[Outcome]) -> Row:
    run, planned = runs[0], len(runs)
    first = (costs(base, rule="first"), costs(outcomes, rule="first"))
    return Row(
        group=run.group,
        family=run.family,
        method=run.method,
        outcomes=tuple(outcomes),
        missing=planned - len(outcomes),
        is_best_variant=True,
        speed_up=bounded_ratio(costs(base), costs(outcomes), planned),
        speed_up_first=bounded_ratio(*first, planned),
        at_own_target=tuple(at_own or outcomes),
        tuned=run.tuned,
    )


def _order(row: Row) -> tuple[int, float, str]:
    """Return a sort key: most seeds that reached the target first, then the shortest time."""
    times = row.at_target()
    return -row.reached, math.fsum(times.values()) / len(times) if times else math.inf, row.group
