"""The overhead analysis: bytes of gradients, and seconds per decision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from async_hfl.experiments.comparison.comparison import compare
from async_hfl.experiments.comparison.report import Report, comparison_report, with_page
from async_hfl.experiments.paper import published
from async_hfl.experiments.paper.entry import QUICK_EPOCHS, Entry, PaperOptions
from async_hfl.experiments.paper.ratios import ASYNC_HFL, PLUS
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.results.measured import Measured
from async_hfl.experiments.results.sources import Results
from async_hfl.network.bandwidth import TIGHT
from async_hfl.reports.tables.table import BOUND, Cell, Column, Table

_COMPRESSIONS = {
    "whole gradients": (ASYNC_HFL, ()),
    "30 components": (ASYNC_HFL, ("utility.compression=pca", "utility.components=30")),
    "sketch of 256": (ASYNC_HFL, ("utility.compression=sketch", "utility.sketch_size=256")),
    "update, devices send no gradient": (PLUS, ()),
}
_DECISION_EPOCHS = 30


def _plan(options: PaperOptions) -> Plan:
    """Plan runs on HAR to the target for the bytes, and a few epochs of every task for the decision times."""
    seeds = options.seeds_or(quick=3)
    runs = [
        options.planned("har", method, seed, [*options.small(), *options.overrides, *settings], label=name, panel="har")
        for seed in seeds
        for name, (method, settings) in _COMPRESSIONS.items()
    ]
    tasks = options.tasks or (("har", "digits") if options.quick else published.TASKS)
    epochs = 10 if options.quick else _DECISION_EPOCHS
    return Plan("overhead", (*runs, *(_decisions(task, seeds[0], epochs, options) for task in tasks)))


def _decisions(task: str, seed: int, epochs: int, options: PaperOptions) -> PlannedRun:
    """Plan a run whose decisions are timed. Where the bandwidth does not bind, selection has nothing to solve."""
    overrides = [f'gateway.bandwidth="{TIGHT:.0%}"', *options.overrides, f"cloud.epochs={epochs}"]
    return options.planned(task, ASYNC_HFL, seed, overrides, label="decisions", panel=f"decisions on {task}")


def _draw(options: PaperOptions, plan: Plan, results: Results) -> Report:
    bytes_of = [run for run in plan.runs if run.panel == "har"]
    timed = [(run.task, one) for run in plan.runs if run.group == "decisions" and (one := results.of(run)) is not None]
    panels = compare(bytes_of, results, "whole gradients")
    rows = []
    for row in panels[0].rows:
        counts = [_shares(one.result) for one in row.outcomes]
        rows.append(
            (
                row.group,
                published.PCA_BYTES if row.group == "30 components" else None,
                *(_mean([count[key] for count in counts]) for key in ("gradient", "basis", "control")),
                published.PCA_TIME if row.group == "30 components" else None,
                None if row.speed_up is None else 1 / row.speed_up.value,
                row.bound_share,
            )
        )
    columns = (
        Column("gradients"),
        Column("paper", note="bytes other than models, on HAR"),
        Column("gradient", "share", note="bytes of gradients relative to the bytes of models"),
        Column("basis", "share", note="the same for the components, which are distributed once"),
        Column("control", "share", note="the same for all other messages"),
        Column("paper, time", note="relative to whole gradients"),
        Column("time", "ratio", note="time to the target relative to whole gradients, paired by seed"),
        BOUND,
    )
    title = f"Overhead: bytes {options.where}"
    first = Table(title, columns, tuple(rows))
    second = Table(
        f"Overhead: seconds per decision, where the bandwidth is {TIGHT:.0%} of the demand",
        (
            Column("task"),
            Column("decision"),
            Column("paper", "number", note="seconds with Gurobi on the authors' server"),
            Column("median", "number", note="seconds on this machine"),
            Column("99 %", "number"),
            Column("max", "number"),
            Column("decisions", "count"),
            BOUND,
        ),
        tuple(line for task, result in timed for line in _times(task, result)),
    )
    return with_page(comparison_report(title, panels, options.command), tables=(first, second), figures=())


def _shares(result: Measured) -> dict[str, float]:
    """Return the bytes of each other kind relative to the bytes of models."""
    kinds = result.kinds
    return {kind: kinds.get(kind, 0.0) / max(kinds.get("model", 0.0), 1.0) for kind in ("gradient", "basis", "control")}


def _mean(values: Sequence[float]) -> Cell:
    return float(np.mean(values)) if values else None


def _times(task: str, result: Measured) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for what, published_s in (("selection", published.SELECTION_S), ("association", published.ASSOCIATION_S)):
        if found := result.decisions.get(what):
            times = (found.median_s, found.p99_s, found.most_s)
            bound = result.bound_share if what == "selection" else None
            rows.append((task, what, published_s.get(task), *times, found.count, bound))
    return rows


ENTRIES = (
    Entry(
        "overhead",
        "Overhead analysis: bytes of gradients, seconds per decision",
        f"HAR and digits, three seeds, at most {QUICK_EPOCHS} epochs",
        _plan,
        _draw,
    ),
)
