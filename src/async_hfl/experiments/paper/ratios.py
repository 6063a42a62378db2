"""Ratios to Async-HFL, as the paper gives them, with what to say where somebody never got there."""

from __future__ import annotations

from collections.abc import Callable

from async_hfl.experiments.comparison.comparison import Panel, Row
from async_hfl.experiments.comparison.outcome import Outcome, Reached
from async_hfl.experiments.comparison.statistics import Ratio, paired_ratio
from async_hfl.experiments.comparison.tables import ratio_cell
from async_hfl.reports.tables.table import Cell, Spread, shown

OURS = "async-hfl"
Of = Callable[[Outcome], Reached | None]
Value = Callable[[Reached], float]


def held(outcome: Outcome) -> Reached | None:
    return outcome.held


def first(outcome: Outcome) -> Reached | None:
    return outcome.first


def seconds(reached: Reached) -> float:
    return reached.at


def uplink(reached: Reached) -> float:
    return reached.bytes_models_up


def all_bytes(reached: Reached) -> float:
    return reached.bytes_total


def counted(panel: Panel, family: str) -> Row | None:
    """The row of a method: of its variants, the best."""
    return next((row for row in panel.rows if row.family == family and row.counts), None)


def over(panel: Panel, family: str, base: str = OURS, of: Of = held, value: Value = seconds) -> Ratio | None:
    """How many times what `base` took did `family` take? Paired by seed."""
    theirs, ours = counted(panel, family), counted(panel, base)
    if theirs is None or ours is None:
        return None

    def by_seed(row: Row) -> dict[int, float]:
        return {one.seed: value(got) for one in row.outcomes if (got := of(one)) is not None}

    return paired_ratio(by_seed(theirs), by_seed(ours), theirs.seeds)


def over_cell(panel: Panel, family: str, base: str = OURS, of: Of = held, value: Value = seconds) -> Cell:
    ratio = over(panel, family, base, of, value)
    if ratio is not None:
        return ratio_cell(ratio)
    theirs, ours = counted(panel, family), counted(panel, base)
    if theirs is None or ours is None or not theirs.outcomes or not ours.outcomes:
        return None
    if not any(of(one) for one in ours.outcomes):
        return Spread(None, text=f"{base} never there")
    if value is not seconds:
        return Spread(None, text="never there")
    spent = {one.seed: one.virtual_s for one in theirs.outcomes}
    least = paired_ratio(spent, {one.seed: got.at for one in ours.outcomes if (got := of(one)) is not None}, len(spent))
    return Spread(None, text="never there" if least is None else f"over {shown(least.value, 'ratio')}, never there")


def bound_share(panel: Panel, family: str) -> float | None:
    row = counted(panel, family)
    return None if row is None else row.bound_share
