"""A comparison as tables: when the target was reached, and what it took."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from async_hfl.experiments.comparison import Panel, Row
from async_hfl.experiments.statistics import Ratio
from async_hfl.reports.tables import Cell, Column, Kind, Spread, Table, shown

RULES = (
    "Time to target: the mean of 3 evaluations has passed it (held); first: a single one has, the paper's rule.",
    "Over seeds: the mean, and the range or (±) the standard deviation; where a seed never got there, no mean.",
    "Speed-up: geometric mean of the seeds' ratios, paired by seed, with Student's 95 % interval of their logarithms.",
)
Cells = Callable[[Row, Panel], tuple[Cell, ...]]


def time_table(panel: Panel, *, brief: bool = False) -> Table:
    """`brief`: for a terminal, the spread as a percentage of the mean."""
    columns = (
        Column("method"),
        Column("reached", note="seeds that held the target"),
        Column("to target", "seconds"),
        Column("first", "seconds"),
        Column("speed-up", "ratio", note=f"over {panel.reference}"),
    )
    return _table(panel, columns, partial(_times, brief=brief), f"{panel.name}: time to {panel.target:g}", RULES)


def cost_table(panel: Panel, *, brief: bool = False) -> Table:
    columns = (
        Column("method"),
        Column("bytes", "bytes", note="to the target, all of them: both tiers, both directions, every kind"),
        Column("uplink", "bytes", note="models towards the cloud only, as the paper counts"),
        Column("energy", "joules", note="of all devices for computing and radio"),
        Column("final", "metric", note="the last model's, mean over seeds"),
        Column("bound", "share", note="selections in which the bandwidth kept a candidate out"),
    )
    return _table(panel, columns, partial(_costs, brief=brief), f"{panel.name}: what it took to {panel.target:g}", ())


def _times(row: Row, panel: Panel, *, brief: bool) -> tuple[Cell, ...]:
    return (
        row.group,
        f"{row.reached} of {row.seeds}" + (f", {row.missing} missing" if row.missing else ""),
        over_seeds(row, row.held(lambda r: r.at), "seconds", brief),
        over_seeds(row, row.crossed(lambda r: r.at), "seconds", brief),
        1.0 if row.group == panel.reference and row.speed_up else speed_up(row),
    )


def _costs(row: Row, panel: Panel, *, brief: bool) -> tuple[Cell, ...]:
    return (
        row.group,
        over_seeds(row, row.held(lambda r: r.bytes_total), "bytes", brief),
        over_seeds(row, row.held(lambda r: r.bytes_models_up), "bytes", brief),
        None if row.energy is None else row.energy.mean,
        None if row.final is None else row.final.mean,
        row.bound_share,
    )


def _table(panel: Panel, columns: tuple[Column, ...], cells: Cells, title: str, notes: tuple[str, ...]) -> Table:
    best = fastest(panel)
    variants = [row.group for row in panel.rows if not row.counts]
    if variants:
        notes = (*notes, f"Not the best of its kind, shown all the same: {'; '.join(variants)}.")
    rows = tuple(cells(row, panel) for row in panel.rows)
    return Table(title, columns, rows, notes, tuple(n for n, row in enumerate(panel.rows) if row is best))


def fastest(panel: Panel) -> Row | None:
    """Of those that reached the target with every seed."""
    there = [row for row in panel.rows if row.counts and row.seeds and row.reached == row.seeds]
    return min(there, key=lambda row: sum(row.held(lambda r: r.at).values()), default=None)


def over_seeds(row: Row, values: dict[int, float], kind: Kind, brief: bool = False) -> Cell:
    """Mean and range of all seeds; where some never got there, each seed's own."""
    whole = row.whole(values)
    if whole is not None:
        if whole.deviation is None:
            return whole.mean
        if brief:
            return Spread(whole.mean, text=f"±{100 * whole.deviation / whole.mean:.0f} %")
        return Spread(whole.mean, min(values.values()), max(values.values()))
    if not row.outcomes:
        return None
    if not values:
        return Spread(None, text="never")
    each = [shown(values[one.seed], kind) if one.seed in values else "never" for one in row.outcomes]
    return Spread(None, text=", ".join(each))


def speed_up(row: Row) -> Cell:
    if row.speed_up is not None:
        return ratio_cell(row.speed_up)
    return None if row.speed_up_below is None else Spread(None, text=f"below {shown(row.speed_up_below, 'ratio')}")


def ratio_cell(ratio: Ratio) -> Spread:
    some = "" if ratio.pairs == ratio.seeds else f"({ratio.pairs} of {ratio.seeds} seeds)"
    return Spread(ratio.value, ratio.low, ratio.high, some)
