"""Table 3 and Fig. 3: the motivating study on HAR, on the map of NYC Mesh."""

from __future__ import annotations

from dataclasses import replace

from async_hfl.experiments.comparison.comparison import compare
from async_hfl.experiments.comparison.report import Report, comparison_report, with_page
from async_hfl.experiments.paper import published
from async_hfl.experiments.paper.convergence import PLUS, bound_note, grid
from async_hfl.experiments.paper.entry import Asked, Entry
from async_hfl.experiments.paper.ratios import OURS, all_bytes, bound_share, first, over_cell, uplink
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.reports.data.curves import longer_than
from async_hfl.reports.data.experiment import Figure, FigureLine
from async_hfl.reports.tables.table import Column, Table
from async_hfl.reports.terminal.network_show import draw_both, find_network

_STUDY = (OURS, "sync-oort", "rfl-ha", "semi-async", "two-tier", "async-random", "async-st", PLUS)
_QUICK = "HAR to 90 %, three seeds"


def _plan(name: str, asked: Asked) -> Plan:
    return grid(name, replace(asked, tasks=asked.tasks or ("har",)), _STUDY)


def _table3(asked: Asked, plan: Plan, folder: SweepFolder) -> Report:
    panels = compare(plan.runs, folder, OURS)
    rows = [
        (
            method,
            published.BYTES_HAR.get(method) if panel.name == "har" else None,
            over_cell(panel, method, value=uplink),
            over_cell(panel, method, value=all_bytes),
            bound_share(panel, method),
        )
        for panel in panels
        for method in _STUDY[1:]
    ]
    columns = (
        Column("method"),
        Column("paper", "ratio", note="its Table 3"),
        Column("uplink", "ratio", note="models towards the cloud over those of Async-HFL, as the paper counts"),
        Column("all bytes", "ratio", note="every byte, both ways, over those of Async-HFL"),
        Column("bound", "share", note="selections in which the bandwidth kept a candidate out"),
    )
    title = f"Table 3: bytes to the target over those of Async-HFL ({asked.network}, preset {asked.preset})"
    notes = (
        *bound_note(panels),
        "The paper's text has 426 MB for 0.3x: Async-HFL itself took some 1.4 GB to 95 % there.",
        *_small(asked),
    )
    return with_page(
        comparison_report(title, panels, asked.command), tables=(Table(title, columns, tuple(rows), notes),), figures=()
    )


def _fig3(asked: Asked, plan: Plan, folder: SweepFolder) -> Report:
    panels = compare(plan.runs, folder, OURS)
    rows = [
        (
            method,
            published.TIMES_HAR.get(method) if panel.name == "har" else None,
            over_cell(panel, method, of=first),
            over_cell(panel, method),
            bound_share(panel, method),
        )
        for panel in panels
        for method in _STUDY[1:]
    ]
    columns = (
        Column("method"),
        Column("paper", "ratio", note="time over that of Async-HFL, as its text has it"),
        Column("first", "ratio", note="ours by the paper's rule, a single crossing"),
        Column("held", "ratio", note="ours when the mean of 3 evaluations has passed"),
        Column("bound", "share", note="selections in which the bandwidth kept a candidate out"),
    )
    title = f"Fig. 3: convergence in the motivating study ({asked.network}, preset {asked.preset})"
    view, short = find_network(asked.network)
    page, picture = draw_both(view, asked.out, short)
    notes = (
        *bound_note(panels),
        f"The map and the delays of all 184 devices: {page.name} and {picture.name}, beside this report.",
        *_small(asked),
    )
    lines = []
    for name, values in (("round", view.delays.rounds), ("transfers alone", view.delays.transfers)):
        at, share = longer_than(values)
        lines.append(FigureLine(name, tuple(at.tolist()), tuple(share.tolist())))
    delays = Figure(
        "Fig. 3, second left: round delays of all devices",
        "seconds",
        "share of rounds that take longer",
        tuple(lines),
        log_x=True,
        kind="share",
    )
    table = Table(title, columns, tuple(rows), notes)
    return with_page(comparison_report(title, panels, asked.command), tables=(table,), figures=(delays,))


def _small(asked: Asked) -> tuple[str, ...]:
    return ("A small version: to 90 % in place of 95 %, at most 150 epochs.",) if asked.quick else ()


ENTRIES = (
    Entry(
        "table3",
        "Table 3: bytes in the motivating study (HAR)",
        _QUICK,
        lambda asked: _plan("table3", asked),
        _table3,
    ),
    Entry(
        "fig3",
        "Fig. 3: map, delays and convergence in the motivating study (HAR)",
        _QUICK,
        lambda asked: _plan("fig3", asked),
        _fig3,
    ),
)
