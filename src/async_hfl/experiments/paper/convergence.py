"""Table 6 and Fig. 7: how much sooner, and with how many bytes, Async-HFL is there on six data sets."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.experiments.comparison.comparison import Panel, compare
from async_hfl.experiments.comparison.plan import comparison_plan
from async_hfl.experiments.comparison.report import Report, comparison_report, with_page
from async_hfl.experiments.comparison.tables import RULES
from async_hfl.experiments.paper import published
from async_hfl.experiments.paper.entry import Asked, Entry
from async_hfl.experiments.paper.ratios import OURS, all_bytes, bound_share, first, over, over_cell, uplink
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.reports.data.experiment import Figure, FigureLine
from async_hfl.reports.tables.table import Column, Table

PLUS = "async-hfl-plus"
QUICK_TASKS = ("har", "digits")
ABLATION = ("async-random", "async-hfl-selection", "async-hfl-association", OURS)
NOT_SYNCHRONOUS = ("async-hl", "async-random", "semi-async", "rfl-ha")


def grid(name: str, asked: Asked, methods: Sequence[str], quick_seeds: int = 3) -> Plan:
    """These methods on every task."""
    tasks = asked.tasks or (QUICK_TASKS if asked.quick else published.TASKS)
    runs: list[PlannedRun] = []
    for task in tasks:
        small = asked.small() if task in QUICK_TASKS else []
        runs += comparison_plan(
            name,
            methods,
            asked.seeds_or(quick=quick_seeds),
            task=task,
            network=asked.network,
            preset=asked.preset,
            overrides=[*small, *asked.overrides],
            panel=task,
        ).runs
    return Plan(name, tuple(runs))


def left_out(asked: Asked) -> tuple[str, ...]:
    if not asked.quick:
        return ()
    return ("A small version: fewer tasks (HAR, and digits, which the paper has not), to 90 %, at most 150 epochs.",)


def _table6(asked: Asked, plan: Plan, folder: SweepFolder) -> Report:
    panels = compare(plan.runs, folder, OURS)
    rows = [
        (
            panel.name,
            baseline,
            published.SPEED_UPS[panel.name][number] if panel.name in published.SPEED_UPS else None,
            over_cell(panel, baseline, of=first),
            over_cell(panel, baseline),
            over_cell(panel, baseline, base=PLUS),
            bound_share(panel, baseline),
        )
        for panel in panels
        for number, baseline in enumerate(published.BASELINES)
    ]
    columns = (
        Column("task"),
        Column("baseline"),
        Column("paper", "ratio", note="its Table 6"),
        Column("first", "ratio", note="ours by the paper's rule, a single crossing"),
        Column("held", "ratio", note="ours when the mean of 3 evaluations has passed"),
        Column("plus", "ratio", note="held, of Async-HFL+ in the place of Async-HFL"),
        Column("bound", "share", note="selections of the baseline in which the bandwidth kept a candidate out"),
    )
    title = f"Table 6: speed-up of Async-HFL over each baseline ({asked.network}, preset {asked.preset})"
    table = Table(title, columns, tuple(rows), (*bound_note(panels), RULES[2], *left_out(asked)))
    return with_page(comparison_report(title, panels, asked.command), tables=(table,), figures=())


def bound_note(panels: Sequence[Panel]) -> tuple[str, ...]:
    """The one figure without which the others cannot be read."""
    told = []
    for panel in panels:
        share = bound_share(panel, OURS)
        if share is not None:
            told.append(f"{panel.name} {100 * share:.1f} %")
    return (f"Selections of Async-HFL in which the bandwidth bound: {', '.join(told)}.",) if told else ()


def _fig7_left(asked: Asked, plan: Plan, folder: SweepFolder) -> Report:
    panels = compare(plan.runs, folder, OURS)
    rows = [
        (
            panel.name,
            method,
            published.SAVINGS.get(method) if panel.name in published.TASKS else None,
            over_cell(panel, method, value=uplink),
            over_cell(panel, method, value=all_bytes),
            bound_share(panel, method),
        )
        for panel in panels
        for method in (*NOT_SYNCHRONOUS, PLUS)
    ]
    columns = (
        Column("task"),
        Column("method"),
        Column("paper", note="what Async-HFL saves of its bytes, over all tasks"),
        Column("uplink", "ratio", note="models towards the cloud over those of Async-HFL, as the paper counts"),
        Column("all bytes", "ratio", note="every byte, both ways, over those of Async-HFL"),
        Column("bound", "share", note="selections in which the bandwidth kept a candidate out"),
    )
    title = f"Fig. 7 left: bytes to the target over those of Async-HFL ({asked.network}, preset {asked.preset})"
    table = Table(title, columns, tuple(rows), (*bound_note(panels), *left_out(asked)))
    figure = _bars(title, "models uplink, ratio", panels, (*NOT_SYNCHRONOUS, PLUS), bytes_too=True)
    return with_page(comparison_report(title, panels, asked.command), tables=(table,), figures=(figure,))


def _fig7_right(asked: Asked, plan: Plan, folder: SweepFolder) -> Report:
    panels = compare(plan.runs, folder, "async-random")
    rows = [
        (
            panel.name,
            method,
            published.ABLATION.get(panel.name, {}).get(method),
            over_cell(panel, "async-random", base=method, of=first),
            over_cell(panel, "async-random", base=method),
            bound_share(panel, method),
        )
        for panel in panels
        for method in (*ABLATION[1:], PLUS)
    ]
    columns = (
        Column("task"),
        Column("method"),
        Column("paper", "ratio", note="speed-up over random choice, as its text has it"),
        Column("first", "ratio", note="ours by the paper's rule, a single crossing"),
        Column("held", "ratio", note="ours when the mean of 3 evaluations has passed"),
        Column("bound", "share", note="selections in which the bandwidth kept a candidate out"),
    )
    title = f"Fig. 7 right: what selection and association add ({asked.network}, preset {asked.preset})"
    table = Table(title, columns, tuple(rows), (*bound_note(panels), *left_out(asked)))
    figure = _bars(title, "time over that of Async-HFL", panels, (*ABLATION, PLUS))
    return with_page(comparison_report(title, panels, asked.command), tables=(table,), figures=(figure,))


def _bars(title: str, y_name: str, panels: Sequence[Panel], methods: Sequence[str], bytes_too: bool = False) -> Figure:
    lines = []
    for method in methods:
        ratios = [over(panel, method, value=uplink) if bytes_too else over(panel, method) for panel in panels]
        lines.append(
            FigureLine(
                method,
                tuple(panel.name for panel in panels),
                tuple(None if ratio is None else ratio.value for ratio in ratios),
                tuple(None if ratio is None else ratio.low for ratio in ratios),
                tuple(None if ratio is None else ratio.high for ratio in ratios),
            )
        )
    return Figure(title, "task", y_name, tuple(lines), bars=True, kind="ratio")


_SMALL = "HAR and digits to 90 %, three seeds"
ENTRIES = (
    Entry(
        "table6",
        "Table 6: speed-up of Async-HFL over eight baselines on six data sets",
        _SMALL,
        lambda asked: grid("table6", asked, (OURS, PLUS, *published.BASELINES)),
        _table6,
    ),
    Entry(
        "fig7-left",
        "Fig. 7 left: bytes to the target, of the methods that are not synchronous",
        _SMALL,
        lambda asked: grid("fig7-left", asked, (OURS, PLUS, *NOT_SYNCHRONOUS)),
        _fig7_left,
    ),
    Entry(
        "fig7-right",
        "Fig. 7 right: selection and association, each alone and both",
        _SMALL,
        lambda asked: grid("fig7-right", asked, (*ABLATION, PLUS)),
        _fig7_right,
    ),
)
