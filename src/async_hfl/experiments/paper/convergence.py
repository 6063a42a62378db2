"""Table 6 and Fig. 7: time and bytes to the target of Async-HFL and the baselines on six data sets."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.experiments.comparison.comparison import Panel, compare
from async_hfl.experiments.comparison.outcome import Quantity
from async_hfl.experiments.comparison.plan import comparison_plan
from async_hfl.experiments.comparison.report import Report, comparison_report, with_page
from async_hfl.experiments.comparison.tables import RULES
from async_hfl.experiments.paper import published, ratios
from async_hfl.experiments.paper.entry import Entry, PaperOptions
from async_hfl.experiments.paper.ratios import ASYNC_HFL, PLUS
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.results.sources import Results
from async_hfl.reports.data.experiment import Figure
from async_hfl.reports.tables.table import BOUND, Column, Table

QUICK_TASKS = ("har", "digits")
ABLATION = ("async-random", "async-hfl-selection", "async-hfl-association", ASYNC_HFL)
NOT_SYNCHRONOUS = ("async-hl", "async-random", "semi-async", "rfl-ha")


def grid(name: str, options: PaperOptions, methods: Sequence[str], quick_seeds: int = 3) -> Plan:
    """Plan these methods on every task."""
    tasks = options.tasks or (QUICK_TASKS if options.quick else published.TASKS)
    runs: list[PlannedRun] = []
    for task in tasks:
        small = options.small() if task in QUICK_TASKS else []
        runs += comparison_plan(
            name,
            methods,
            options.seeds_or(quick=quick_seeds),
            task=task,
            network=options.network,
            preset=options.preset,
            overrides=[*small, *options.overrides],
            panel=task,
            tuning=options.tuning,
        ).runs
    return Plan(name, tuple(runs))


def _quick_note(options: PaperOptions) -> tuple[str, ...]:
    if not options.quick:
        return ()
    return ("Small version: only HAR and digits (which the paper does not have), to 90 %, at most 150 epochs.",)


def _table6(options: PaperOptions, plan: Plan, results: Results) -> Report:
    panels = compare(plan.runs, results, ASYNC_HFL)
    rows = [
        (
            panel.name,
            baseline,
            published.SPEED_UPS[panel.name][number] if panel.name in published.SPEED_UPS else None,
            ratios.relative_cell(panel, baseline, rule="first"),
            ratios.relative_cell(panel, baseline),
            ratios.relative_cell(panel, baseline, base=PLUS),
            ratios.bound_share(panel, baseline),
        )
        for panel in panels
        for number, baseline in enumerate(published.BASELINES)
    ]
    plus = Column("plus", "ratio", "the same as held, for Async-HFL+ instead of Async-HFL")
    columns = (
        Column("task"),
        Column("baseline"),
        Column("paper", "ratio", "its Table 6"),
        ratios.FIRST,
        ratios.HELD,
        plus,
        BOUND,
    )
    title = f"Table 6: speed-up of Async-HFL over each baseline {options.where}"
    table = Table(title, columns, tuple(rows), (*ratios.bound_note(panels), RULES[2], *_quick_note(options)))
    return with_page(comparison_report(title, panels, options.command), tables=(table,), figures=())


def _fig7_left(options: PaperOptions, plan: Plan, results: Results) -> Report:
    panels = compare(plan.runs, results, ASYNC_HFL)
    methods = (*NOT_SYNCHRONOUS, PLUS)
    rows = [
        (
            panel.name,
            method,
            published.SAVINGS.get(method) if panel.name in published.TASKS else None,
            ratios.relative_cell(panel, method, quantity="bytes_models_up"),
            ratios.relative_cell(panel, method, quantity="bytes_total"),
            ratios.bound_share(panel, method),
        )
        for panel in panels
        for method in methods
    ]
    paper = Column("paper", note="bytes that Async-HFL saves, over all tasks")
    title = f"Fig. 7 left: bytes to the target relative to Async-HFL {options.where}"
    figure = _bars(title, "uplink of models, ratio", panels, methods, "bytes_models_up")
    columns = (Column("task"), Column("method"), paper, ratios.UPLINK, ratios.ALL_BYTES, BOUND)
    table = Table(title, columns, tuple(rows), (*ratios.bound_note(panels), *_quick_note(options)))
    return with_page(comparison_report(title, panels, options.command), tables=(table,), figures=(figure,))


def _fig7_right(options: PaperOptions, plan: Plan, results: Results) -> Report:
    panels = compare(plan.runs, results, "async-random")
    rows = [
        (
            panel.name,
            method,
            published.ABLATION.get(panel.name, {}).get(method),
            ratios.relative_cell(panel, "async-random", base=method, rule="first"),
            ratios.relative_cell(panel, "async-random", base=method),
            ratios.bound_share(panel, method),
        )
        for panel in panels
        for method in (*ABLATION[1:], PLUS)
    ]
    paper = Column("paper", "ratio", "speed-up over random choice, from its text")
    title = f"Fig. 7 right: contributions of selection and association {options.where}"
    figure = _bars(title, "time relative to Async-HFL", panels, (*ABLATION, PLUS), "at")
    columns = (Column("task"), Column("method"), paper, ratios.FIRST, ratios.HELD, BOUND)
    table = Table(title, columns, tuple(rows), (*ratios.bound_note(panels), *_quick_note(options)))
    return with_page(comparison_report(title, panels, options.command), tables=(table,), figures=(figure,))


def _bars(title: str, y_name: str, panels: Sequence[Panel], methods: Sequence[str], quantity: Quantity) -> Figure:
    tasks = [panel.name for panel in panels]
    lines = [
        ratios.ratio_line(method, tasks, [ratios.relative(panel, method, quantity=quantity) for panel in panels])
        for method in methods
    ]
    return Figure(title, "task", y_name, tuple(lines), bars=True, kind="ratio")


_SMALL = "HAR and digits to 90 %, three seeds"
ENTRIES = (
    Entry(
        "table6",
        "Table 6: speed-up of Async-HFL over eight baselines on six data sets",
        _SMALL,
        lambda options: grid("table6", options, (ASYNC_HFL, PLUS, *published.BASELINES)),
        _table6,
    ),
    Entry(
        "fig7-left",
        "Fig. 7 left: bytes to the target, without the synchronous methods",
        _SMALL,
        lambda options: grid("fig7-left", options, (ASYNC_HFL, PLUS, *NOT_SYNCHRONOUS)),
        _fig7_left,
    ),
    Entry(
        "fig7-right",
        "Fig. 7 right: selection and association, separately and combined",
        _SMALL,
        lambda options: grid("fig7-right", options, (*ABLATION, PLUS)),
        _fig7_right,
    ),
)
