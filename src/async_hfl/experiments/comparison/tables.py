"""A comparison as tables: time to the target, and its cost in bytes and energy."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.experiments.comparison.comparison import Panel, Row
from async_hfl.experiments.comparison.outcome import at_target
from async_hfl.experiments.comparison.statistics import Ratio
from async_hfl.reports.tables.table import BOUND, Cell, Column, Kind, Spread, Table, shown

RULES = (
    "Time to target (held): until the mean of the metric over a window of time passes it, dated at its middle. "
    "First: until a single evaluation does (the paper's rule).",
    "Over seeds: mean, minimum and maximum; if a seed never reached the target, the values of the seeds instead.",
    "Speed-up: geometric mean of the ratios, paired by seed, with a 95 % interval (Student's t of the logarithms). "
    "A run that never reached the target counts as its whole duration: the ratio is then a bound, marked < or >. There "
    "is none if seeds bound it from both sides.",
)


def time_table(panel: Panel) -> Table:
    beside = panel.own_target != panel.target
    columns = (
        Column("method"),
        Column("reached", note="number of seeds that reached the target"),
        Column(f"to {panel.target:g}", "seconds"),
        *([Column(f"to {panel.own_target:g}", "seconds", note="the target of the task")] if beside else []),
        Column("less warm-up", "seconds", note="counted from the end of the warm-up"),
        Column("first", "seconds"),
        Column("speed-up", "ratio", note=f"relative to {panel.reference}"),
    )
    rows = [
        (
            row.group,
            _reached(row),
            over_seeds(row, row.at_target(), "seconds"),
            *([over_seeds(row, at_target(row.at_own_target), "seconds")] if beside else []),
            over_seeds(row, row.less_warmup(), "seconds"),
            over_seeds(row, row.at_target(rule="first"), "seconds"),
            speed_up(row, panel),
        )
        for row in panel.rows
    ]
    common = f"{panel.target:g} is the highest level that every method held with every seed."
    notes = (*RULES, *([common] if beside else []))
    return _table(panel, columns, rows, f"{panel.name}: time to {panel.target:g}", notes)


def cost_table(panel: Panel) -> Table:
    rows = [
        (
            row.group,
            over_seeds(row, row.at_target("bytes_total"), "bytes"),
            over_seeds(row, row.at_target("bytes_models_up"), "bytes"),
            None if row.energy is None else row.energy.mean,
            None if row.final is None else row.final.mean,
            row.bound_share,
        )
        for row in panel.rows
    ]
    return _table(panel, _COST, rows, f"{panel.name}: cost to reach {panel.target:g}", ())


def brief_table(panel: Panel) -> Table:
    """Return the main columns in a table that fits a terminal of 80 columns."""
    times = [whole.mean for row in panel.rows if (whole := row.over_all_seeds(row.at_target()))]
    unit, seconds = ("h", 3600.0) if times and max(times) > 7200 else ("min", 60.0)
    columns = (
        Column("method"),
        Column("seeds", note="number that reached the target, of all"),
        Column(unit, "number", note="time until the mean over a window passes the target; ± standard deviation"),
        Column("speed-up", "ratio", note=f"relative to {panel.reference}, paired by seed, with a 95 % interval"),
        Column("MB", "number", note="all bytes sent until the target"),
        Column("kJ", "number", note="energy of all devices"),
        BOUND,
    )
    rows = [
        (
            row.group,
            f"{row.reached}/{row.seeds}",
            _short(row, row.at_target(), seconds, spread=True),
            _short_ratio(row, panel),
            _short(row, row.at_target("bytes_total"), 1e6),
            None if row.energy is None else _three(row.energy.mean / 1e3),
            None if row.bound_share is None else f"{100 * row.bound_share:.0f} %",
        )
        for row in panel.rows
    ]
    return _table(panel, columns, rows, f"{panel.name}: time to {panel.target:g}", ())


_COST = (
    Column("method"),
    Column("bytes", "bytes", note="all bytes until the target, over both tiers and in both directions"),
    Column("uplink", "bytes", note="models sent towards the cloud, which is what the paper counts"),
    Column("energy", "joules", note="of all devices, for computing and radio"),
    Column("final", "metric", note="metric of the final model, mean over seeds"),
    BOUND,
)


def _table(
    panel: Panel, columns: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]], title: str, notes: tuple[str, ...]
) -> Table:
    best = fastest(panel)
    if panel.usual_reference not in ("", panel.reference):
        because = f"because {panel.usual_reference} never reached {panel.target:g}"
        notes = (*notes, f"Speed-ups are relative to {panel.reference}, {because}.")
    variants = [row.group for row in panel.rows if not row.is_best_variant]
    if variants:
        notes = (*notes, f"Variants that are not the best of their method: {'; '.join(variants)}.")
    return Table(title, columns, tuple(rows), notes, tuple(n for n, row in enumerate(panel.rows) if row is best))


def _reached(row: Row) -> str:
    return f"{row.reached} of {row.seeds}" + (f", {row.missing} missing" if row.missing else "")


def _short(row: Row, values: dict[int, float], unit: float, *, spread: bool = False) -> str | None:
    whole = row.over_all_seeds(values)
    if whole is None:
        return "never" if row.outcomes and not values else _seeds(len(values)) if values else None
    if not spread or whole.deviation is None:
        return _three(whole.mean / unit)
    return f"{_three(whole.mean / unit)} ±{100 * whole.deviation / whole.mean:.0f}%"


def _seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def _short_ratio(row: Row, panel: Panel) -> str | None:
    if row.group == panel.reference:
        return "1"
    ratio = row.speed_up
    if ratio is None:
        return None
    seeds = "" if ratio.pairs == ratio.seeds else f" {ratio.pairs}/{ratio.seeds}"
    between = "" if ratio.low is None else f" ({two_figures(ratio.low)}-{two_figures(ratio.high or ratio.low)})"
    return f"{ratio.bound}{shown(ratio.value, 'ratio').removesuffix('x')}{between}{seeds}"


def two_figures(value: float) -> str:
    """Format with two significant figures, without an exponent for large values."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _three(value: float) -> str:
    """Format with three significant figures, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def fastest(panel: Panel) -> Row | None:
    """Return the fastest method among those that reached the target with every seed."""
    there = [row for row in panel.rows if row.is_best_variant and row.seeds and row.reached == row.seeds]
    return min(there, key=lambda row: sum(row.at_target().values()), default=None)


def over_seeds(row: Row, values: dict[int, float], kind: Kind) -> Cell:
    """Return mean and range or, if a seed never reached the target, the value of each seed."""
    whole = row.over_all_seeds(values)
    if whole is not None:
        return whole.mean if len(values) == 1 else Spread(whole.mean, min(values.values()), max(values.values()))
    if not row.outcomes:
        return None
    if not values:
        return Spread(None, text="never")
    each = [shown(values[one.seed], kind) if one.seed in values else "never" for one in row.outcomes]
    return Spread(None, text=", ".join(each))


def speed_up(row: Row, panel: Panel) -> Cell:
    if row.speed_up is not None:
        return 1.0 if row.group == panel.reference else ratio_cell(row.speed_up)
    return None


def ratio_cell(ratio: Ratio) -> Spread:
    some = "" if ratio.pairs == ratio.seeds else f"({ratio.pairs} of {ratio.seeds} seeds)"
    return Spread(ratio.value, ratio.low, ratio.high, some, ratio.bound)
