"""The comparison of groups of runs: panels of comparable groups, with one row per group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.experiments.comparison.outcome import Outcome, Quantity, Rule, at_target, read_outcome
from async_hfl.experiments.comparison.statistics import Average, Ratio, average, paired_ratio
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.journal.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Row:
    group: str
    family: str
    method: str
    outcomes: tuple[Outcome, ...]
    """Outcomes of the complete runs, sorted by seed."""
    missing: int
    """The number of planned runs that failed or are not complete yet."""
    is_best_variant: bool
    """True for the best variant of a method, which represents the method."""
    speed_up: Ratio | None
    """Time of the reference to hold the target over the time of this group."""
    speed_up_first: Ratio | None
    """The same for the first single crossing."""
    speed_up_below: float | None
    """An upper bound on the speed-up if no seed reached the target, from the time that the runs took."""

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
        return {one.seed: one.held.at - one.warmup_s for one in self.outcomes if one.held is not None}

    def over_all_seeds(self, values: dict[int, float]) -> Average | None:
        """Return the mean over seeds, or None if a seed has no value: a failure must not vanish in a mean."""
        return average(list(values.values())) if values and len(values) == self.seeds else None

    @property
    def bound_share(self) -> float | None:
        shares = [one.bound_share for one in self.outcomes]
        return math.fsum(shares) / len(shares) if shares else None

    @property
    def energy(self) -> Average | None:
        spent = {one.seed: one.energy_j for one in self.outcomes if one.energy_j is not None and one.held is not None}
        return self.over_all_seeds(spent)

    @property
    def final(self) -> Average | None:
        return average([one.final_metric for one in self.outcomes if one.final_metric is not None])

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
            "speed_up_below": self.speed_up_below,
            "bytes_to_target": _numbers(self, self.at_target("bytes_total")),
            "models_uplink_bytes_to_target": _numbers(self, self.at_target("bytes_models_up")),
            "energy_j": None if self.energy is None else asdict(self.energy),
            "final_metric": None if self.final is None else asdict(self.final),
            "bandwidth_bound_share": self.bound_share,
            "device_updates": {one.seed: one.device_updates for one in self.outcomes},
            "runs": [str(one.run) for one in self.outcomes],
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
    rows: tuple[Row, ...]

    def row(self, group: str) -> Row | None:
        return next((row for row in self.rows if row.group == group), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "panel": self.name,
            "reference": self.reference,
            "target": self.target,
            "rows": [row.as_json() for row in self.rows],
        }


def compare(
    runs: Sequence[PlannedRun], folder: SweepFolder, reference: str | None = None, target: float | None = None
) -> tuple[Panel, ...]:
    """Compare the complete runs. The default reference is async-random or, without it, the first group of a panel."""
    panels: dict[str, list[PlannedRun]] = {}
    for run in runs:
        panels.setdefault(run.panel, []).append(run)
    check_reference(runs, reference)
    return tuple(_panel(name, found, folder, reference, target) for name, found in panels.items())


def check_reference(runs: Sequence[PlannedRun], reference: str | None) -> None:
    groups = list(dict.fromkeys(run.group for run in runs))
    if reference is not None and reference not in groups:
        raise UserError(f"--reference {reference}: not among the compared groups, which are: {'; '.join(groups)}")


def _panel(
    name: str, runs: Sequence[PlannedRun], folder: SweepFolder, reference: str | None, target: float | None
) -> Panel:
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    done = {
        group: sorted(
            (read_outcome(RunDirectory(folder.run(run.id)), target) for run in found if folder.state(run.id) == "done"),
            key=lambda outcome: outcome.seed,
        )
        for group, found in groups.items()
    }
    base = reference if reference in groups else _usual_reference(done)
    bare = [_row(found[0], done[group], len(found), done[base]) for group, found in groups.items()]
    best = {row.family: min((one for one in bare if one.family == row.family), key=_order) for row in bare}
    rows = tuple(replace(row, is_best_variant=best[row.family] is row) for row in bare)
    return Panel(name, base, runs[0].target if target is None else target, rows)


def _usual_reference(done: dict[str, list[Outcome]]) -> str:
    """Return async-random or, if it never reached the target, the first group that did."""
    successful = [group for group, outcomes in done.items() if any(one.held for one in outcomes)]
    usual = next((group for group in done if group == "async-random"), next(iter(done)))
    return usual if usual in successful or not successful else successful[0]


def _row(run: PlannedRun, outcomes: list[Outcome], planned: int, base: list[Outcome]) -> Row:
    own, reference = at_target(outcomes), at_target(base)
    bound = None if own else paired_ratio(reference, {one.seed: one.virtual_s for one in outcomes}, len(outcomes))
    return Row(
        group=run.group,
        family=run.family,
        method=run.method,
        outcomes=tuple(outcomes),
        missing=planned - len(outcomes),
        is_best_variant=True,
        speed_up=paired_ratio(reference, own, planned),
        speed_up_first=paired_ratio(at_target(base, rule="first"), at_target(outcomes, rule="first"), planned),
        speed_up_below=None if bound is None else bound.value,
    )


def _order(row: Row) -> tuple[int, float, str]:
    """Return a sort key: most seeds that reached the target first, then the shortest time."""
    times = row.at_target()
    return -row.reached, math.fsum(times.values()) / len(times) if times else math.inf, row.group
