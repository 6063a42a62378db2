"""The outcome of one run at one level of the metric, as a comparison needs it.

Two rules say when the level was reached. *held*: the mean of the metric over a window of time passes it (the
default, robust to noise). *first*: a single evaluation passes it (the paper's rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from async_hfl.core.maths.milestones import Reached
from async_hfl.experiments.comparison.statistics import Cost
from async_hfl.experiments.results.measured import Measured, measure
from async_hfl.journal.run_directory import RunDirectory

Rule = Literal["held", "first"]
Quantity = Literal["at", "bytes_total", "bytes_models_up"]


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    held: Reached | None
    first: Reached | None
    result: Measured
    run: Path | None = None
    """The run directory, if there still is one."""

    def cost(self, quantity: Quantity = "at", rule: Rule = "held") -> Cost:
        """Return what the level cost or, if it was not reached, at least cost: what the whole run did."""
        state: Reached | None = getattr(self, rule)
        return Cost(getattr(self.result.end if state is None else state, quantity), known=state is not None)


def outcome_at(result: Measured, seed: int, target: float, run: Path | None = None) -> Outcome:
    level = result.at(target)
    return Outcome(seed, level.held, level.first, result, run)


def read_outcome(directory: RunDirectory, target: float | None = None) -> Outcome:
    """Read a complete run; `target` replaces the run's own target."""
    manifest = directory.read_manifest()
    wanted = manifest["settings"]["task"]["target"] if target is None else target
    return outcome_at(measure(directory, (wanted,)), manifest["seed"], wanted, directory.path)


def at_target(outcomes: Sequence[Outcome], quantity: Quantity = "at", rule: Rule = "held") -> dict[int, float]:
    """Return a quantity at the moment the target was reached, by seed; other seeds are left out."""
    return {one.seed: getattr(state, quantity) for one in outcomes if (state := getattr(one, rule)) is not None}


def costs(outcomes: Sequence[Outcome], quantity: Quantity = "at", rule: Rule = "held") -> dict[int, Cost]:
    """Return the cost of the level by seed."""
    return {one.seed: one.cost(quantity, rule) for one in outcomes}
