"""Ratios between methods, as the paper's tables give them, with the columns and figure lines that show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from async_hfl.experiments.comparison.comparison import Panel, Row
from async_hfl.experiments.comparison.outcome import Outcome, Reached
from async_hfl.experiments.comparison.statistics import Ratio, paired_ratio
from async_hfl.experiments.comparison.tables import ratio_cell
from async_hfl.reports.data.experiment import FigureLine
from async_hfl.reports.tables.table import Cell, Column, Spread, shown

ASYNC_HFL = "async-hfl"
PLUS = "async-hfl-plus"
FIRST = Column("first", "ratio", "measured by the paper's rule: a single evaluation passes the target")
HELD = Column("held", "ratio", "measured when the mean of 3 evaluations passes the target")
UPLINK = Column("uplink", "ratio", "models sent towards the cloud, relative to Async-HFL, as the paper counts")
ALL_BYTES = Column("all bytes", "ratio", "all bytes in both directions, relative to Async-HFL")
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
    """Return the row that represents a method: its best variant."""
    return next((row for row in panel.rows if row.family == family and row.counts), None)


def over(panel: Panel, family: str, base: str = ASYNC_HFL, of: Of = held, value: Value = seconds) -> Ratio | None:
    """Return the value of `family` divided by the value of `base`, paired by seed."""
    compared, reference = counted(panel, family), counted(panel, base)
    if compared is None or reference is None:
        return None

    def by_seed(row: Row) -> dict[int, float]:
        return {one.seed: value(got) for one in row.outcomes if (got := of(one)) is not None}

    return paired_ratio(by_seed(compared), by_seed(reference), compared.seeds)


def over_cell(panel: Panel, family: str, base: str = ASYNC_HFL, of: Of = held, value: Value = seconds) -> Cell:
    """Return the ratio as a cell or, if a method never reached the target, a lower bound or an explanation."""
    ratio = over(panel, family, base, of, value)
    if ratio is not None:
        return ratio_cell(ratio)
    compared, reference = counted(panel, family), counted(panel, base)
    if compared is None or reference is None or not compared.outcomes or not reference.outcomes:
        return None
    if not any(of(one) for one in reference.outcomes):
        return Spread(None, text=f"{base} not reached")
    if value is not seconds:
        return Spread(None, text="not reached")
    spent = {one.seed: one.virtual_s for one in compared.outcomes}
    least = paired_ratio(
        spent, {one.seed: got.at for one in reference.outcomes if (got := of(one)) is not None}, len(spent)
    )
    return Spread(None, text="not reached" if least is None else f"over {shown(least.value, 'ratio')}, not reached")


def ratio_line(name: str, x: Sequence[float | str], ratios: Sequence[Ratio | None]) -> FigureLine:
    values, low, high = (
        tuple(None if ratio is None else getattr(ratio, part) for ratio in ratios) for part in ("value", "low", "high")
    )
    return FigureLine(name, tuple(x), values, low, high)


def bound_share(panel: Panel, family: str) -> float | None:
    row = counted(panel, family)
    return None if row is None else row.bound_share


def bound_note(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Say how often the bandwidth limit mattered; where it rarely did, selection made little difference."""
    shares = [(panel.name, bound_share(panel, ASYNC_HFL)) for panel in panels]
    texts = [f"{name} {100 * share:.1f} %" for name, share in shares if share is not None]
    return (f"Selections of Async-HFL that the bandwidth limited: {', '.join(texts)}.",) if texts else ()
