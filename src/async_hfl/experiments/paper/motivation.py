"""Table 3 and Fig. 3: the motivating study on HAR over NYC Mesh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from async_hfl.experiments.comparison.comparison import Panel, compare
from async_hfl.experiments.comparison.report import Report, comparison_report, with_page
from async_hfl.experiments.paper import published, ratios
from async_hfl.experiments.paper.convergence import grid
from async_hfl.experiments.paper.entry import Entry, PaperOptions
from async_hfl.experiments.paper.ratios import ASYNC_HFL, PLUS
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.results.sources import Results
from async_hfl.reports.data.curves import tail_distribution
from async_hfl.reports.data.experiment import Figure, FigureLine
from async_hfl.reports.tables.table import BOUND, Cell, Column, Table
from async_hfl.reports.terminal.network_show import draw_both, find_network

_STUDY = (ASYNC_HFL, "sync-oort", "rfl-ha", "semi-async", "two-tier", "async-random", "async-st", PLUS)


def _plan(name: str, options: PaperOptions) -> Plan:
    return grid(name, replace(options, tasks=options.tasks or ("har",)), _STUDY)


def _report(
    options: PaperOptions,
    plan: Plan,
    results: Results,
    table: Table,
    numbers: dict[str, float],
    cells: tuple[Callable[[Panel, str], Cell], ...],
    figures: tuple[Figure, ...] = (),
) -> Report:
    """Fill the table: published number, measured cells and bandwidth share of each method."""
    panels = compare(plan.runs, results, ASYNC_HFL)
    rows = tuple(
        (
            method,
            numbers.get(method) if panel.name == "har" else None,
            *(cell(panel, method) for cell in cells),
            ratios.bound_share(panel, method),
        )
        for panel in panels
        for method in _STUDY[1:]
    )
    small = ("Small version: to 90 % instead of 95 %, at most 150 epochs.",) if options.quick else ()
    table = replace(table, rows=rows, notes=(*ratios.bound_note(panels), *table.notes, *small))
    return with_page(comparison_report(table.title, panels, options.command), tables=(table,), figures=figures)


def _table3(options: PaperOptions, plan: Plan, results: Results) -> Report:
    columns = (Column("method"), Column("paper", "ratio", "its Table 3"), ratios.UPLINK, ratios.ALL_BYTES, BOUND)
    title = f"Table 3: bytes to the target relative to Async-HFL {options.where}"
    note = "The paper's text gives 426 MB for 0.3x, so Async-HFL itself needed about 1.4 GB to reach 95 % there."
    cells = (
        lambda panel, method: ratios.relative_cell(panel, method, quantity="bytes_models_up"),
        lambda panel, method: ratios.relative_cell(panel, method, quantity="bytes_total"),
    )
    return _report(options, plan, results, Table(title, columns, (), (note,)), published.BYTES_HAR, cells)


def _fig3(options: PaperOptions, plan: Plan, results: Results) -> Report:
    paper = Column("paper", "ratio", "time relative to Async-HFL, from its text")
    title = f"Fig. 3: convergence in the motivating study {options.where}"
    view, short = find_network(options.network)
    page, picture = draw_both(view, options.out, short)
    files = " and ".join(file.name for file in (page, picture) if file is not None)
    note = f"The map and the delays of all 184 devices are in {files}, beside this report."
    lines = []
    for name, values in (("round", view.delays.rounds), ("transfers alone", view.delays.transfers)):
        at, share = tail_distribution(values)
        lines.append(FigureLine(name, tuple(at.tolist()), tuple(share.tolist())))
    delays = Figure(
        "Fig. 3, second from left: round delays of all devices",
        "seconds",
        "share of rounds that take longer",
        tuple(lines),
        log_x=True,
        kind="share",
    )
    table = Table(title, (Column("method"), paper, ratios.FIRST, ratios.HELD, BOUND), (), (note,))
    cells = (lambda panel, method: ratios.relative_cell(panel, method, rule="first"), ratios.relative_cell)
    return _report(options, plan, results, table, published.TIMES_HAR, cells, (delays,))


ENTRIES = tuple(
    Entry(name, title, "HAR to 90 %, three seeds", partial(_plan, name), draw)
    for name, title, draw in (
        ("table3", "Table 3: bytes in the motivating study (HAR)", _table3),
        ("fig3", "Fig. 3: map, delays and convergence in the motivating study (HAR)", _fig3),
    )
)
