"""Ratios between methods, as the paper's tables give them, with the columns and figure lines that show them."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.experiments.comparison.comparison import Panel, Row
from async_hfl.experiments.comparison.outcome import Quantity, Rule, costs
from async_hfl.experiments.comparison.statistics import Ratio, bounded_ratio
from async_hfl.experiments.comparison.tables import ratio_cell
from async_hfl.reports.data.experiment import FigureLine
from async_hfl.reports.tables.table import Cell, Column, Spread

ASYNC_HFL = "async-hfl"
PLUS = "async-hfl-plus"
FIRST = Column("first", "ratio", "measured by the paper's rule: a single evaluation passes the target")
HELD = Column("held", "ratio", "measured when the mean over a window of time passes the target")
UPLINK = Column("uplink", "ratio", "models sent towards the cloud, relative to Async-HFL, as the paper counts")
ALL_BYTES = Column("all bytes", "ratio", "all bytes in both directions, relative to Async-HFL")


def best_variant(panel: Panel, family: str) -> Row | None:
    """Return the row that represents a method."""
    return next((row for row in panel.rows if row.family == family and row.is_best_variant), None)


def relative(
    panel: Panel, family: str, base: str = ASYNC_HFL, rule: Rule = "held", quantity: Quantity = "at"
) -> Ratio | None:
    """Return the value of `family` divided by the value of `base`, paired by seed; a bound if a run did not arrive."""
    compared, reference = best_variant(panel, family), best_variant(panel, base)
    if compared is None or reference is None:
        return None
    return bounded_ratio(
        costs(compared.outcomes, quantity, rule), costs(reference.outcomes, quantity, rule), compared.seeds
    )


def relative_cell(
    panel: Panel, family: str, base: str = ASYNC_HFL, rule: Rule = "held", quantity: Quantity = "at"
) -> Cell:
    """Return the ratio as a cell, or an explanation if there is none: neither method reached the target, or seeds bound
    the ratio from both sides."""
    ratio = relative(panel, family, base, rule, quantity)
    if ratio is not None:
        return ratio_cell(ratio)
    compared, reference = best_variant(panel, family), best_variant(panel, base)
    if compared is None or reference is None or not compared.outcomes or not reference.outcomes:
        return None
    arrived = compared.at_target(quantity, rule) or reference.at_target(quantity, rule)
    return Spread(None, text="undecided" if arrived else "not reached")


def ratio_line(name: str, x: Sequence[float | str], ratios: Sequence[Ratio | None]) -> FigureLine:
    values, low, high = (
        tuple(None if ratio is None else getattr(ratio, part) for ratio in ratios) for part in ("value", "low", "high")
    )
    return FigureLine(name, tuple(x), values, low, high)


def bound_share(panel: Panel, family: str) -> float | None:
    row = best_variant(panel, family)
    return None if row is None else row.bound_share


def bound_note(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Say how often the bandwidth limit mattered; where it rarely did, selection made little difference."""
    shares = [(panel.name, bound_share(panel, ASYNC_HFL)) for panel in panels]
    texts = [f"{name} {100 * share:.1f} %" for name, share in shares if share is not None]
    return (f"Selections of Async-HFL that the bandwidth limited: {', '.join(texts)}.",) if texts else ()
