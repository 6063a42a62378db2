"""The competitors on one problem, read from kept results: who takes part, at which level, at which cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from async_hfl.core.errors import UserError
from async_hfl.experiments.comparison.comparison import common_level
from async_hfl.experiments.comparison.outcome import Quantity, outcome_at
from async_hfl.experiments.comparison.statistics import Cost
from async_hfl.experiments.plans.planned_run import Role
from async_hfl.experiments.results.kept_run import KeptRun
from async_hfl.experiments.results.measured import Measured
from async_hfl.experiments.tuning.tuned import Tuned


@dataclass(frozen=True, slots=True)
class Competitor:
    """The runs of one group, by seed."""

    name: str
    rows: Mapping[int, KeptRun]

    @property
    def _any(self) -> KeptRun:
        return next(iter(self.rows.values()))

    @property
    def method(self) -> str:
        return self._any.method

    @property
    def family(self) -> str:
        return self._any.family

    @property
    def role(self) -> Role:
        return self._any.role

    @property
    def base(self) -> str:
        return self._any.base

    @property
    def tuned(self) -> Tuned | None:
        return self._any.tuned

    @property
    def results(self) -> list[Measured]:
        return [row.result for row in self.rows.values()]

    def costs(self, level: float, quantity: Quantity) -> dict[int, Cost]:
        return {seed: outcome_at(row.result, seed, level).cost(quantity) for seed, row in self.rows.items()}


@dataclass(frozen=True, slots=True)
class Problem:
    """A task on a network with a preset."""

    name: str
    competitors: tuple[Competitor, ...]

    @property
    def target(self) -> float:
        """The target of the task."""
        return self._any.target

    @property
    def device_epochs(self) -> int:
        return self._any.device_epochs

    @property
    def _any(self) -> KeptRun:
        return next(iter(self.competitors[0].rows.values()))

    @property
    def headline(self) -> float | None:
        """The highest level that every method held with every seed; of variants of a method one is enough."""
        return common_level((one.family, one.results) for one in self.competitors if one.role != "ablation")

    def mine(self, method: str, *, tuned: bool) -> Competitor | None:
        """Return the method that is compared with its rivals, with tuned or with packaged settings."""
        found = [
            one
            for one in self.competitors
            if one.method == method and one.role == "compared" and (one.tuned is not None) == tuned
        ]
        return next((one for one in found if one.name == method), found[0] if found else None)

    def seeds(self, method: str) -> Iterable[int]:
        """Return the seeds on which rivals are compared: those of the method."""
        mine = self.mine(method, tuned=True) or self.mine(method, tuned=False) or self.competitors[0]
        return mine.rows

    def best(
        self, method: str, role: Role, level: float, quantity: Quantity, seeds: Iterable[int]
    ) -> Competitor | None:
        """Return the best of the rivals that have all of these seeds: least cost, as the geometric mean over seeds.

        A rival that reached the level with more seeds is better.
        """
        wanted = sorted(seeds)
        rivals = [one for one in self.competitors if one.role == role and one.method != method]

        def order(one: Competitor) -> tuple[float, ...]:
            costs = one.costs(level, quantity)
            return (
                sum(not costs[seed].known for seed in wanted),
                math.fsum(math.log(max(costs[seed].value, 1e-9)) for seed in wanted),
            )

        return min((one for one in rivals if set(wanted) <= one.rows.keys()), key=order, default=None)

    def competitor(self, name: str) -> Competitor | None:
        return next((one for one in self.competitors if one.name == name), None)


def problems(rows: Sequence[KeptRun]) -> tuple[Problem, ...]:
    """Arrange the rows by problem and group. The rows of a tuning are left out."""
    found: dict[str, dict[str, dict[int, KeptRun]]] = {}
    for row in rows:
        if row.role == "tuning":
            continue
        group = found.setdefault(row.panel, {}).setdefault(row.group, {})
        known = group.setdefault(row.seed, row)
        if (known.digest, known.role, known.tuned is None) != (row.digest, row.role, row.tuned is None):
            raise UserError(
                f"{row.panel}: {row.group} with seed {row.seed} has two results with different settings; give the rows "
                "of one campaign, in which variants have labels, and panels of other conditions names, of their own"
            )
        group[row.seed] = row
    result = []
    for name, groups in found.items():
        problem = Problem(name, tuple(Competitor(group, dict(sorted(by.items()))) for group, by in groups.items()))
        _check_seeds(problem)
        result.append(problem)
    return tuple(result)


def _check_seeds(problem: Problem) -> None:
    """Raise UserError if a result is reported on a seed that settings were chosen on."""
    used = {seed for one in problem.competitors if one.tuned is not None for seed in one.tuned.seeds}
    for one in problem.competitors:
        if both := sorted(used & one.rows.keys()):
            raise UserError(f"{problem.name}: {one.name}: seed {both[0]} was used by the tuning; report other seeds")
