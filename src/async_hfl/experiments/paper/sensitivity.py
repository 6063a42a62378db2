"""Fig. 10 and Fig. 11: sensitivity to bandwidth and target (MNIST), kappa, phi and components (HAR)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from async_hfl.assembly.settings.loading import bandwidth_share, compose
from async_hfl.experiments.comparison.comparison import Panel, compare
from async_hfl.experiments.comparison.report import Report, comparison_report, with_page
from async_hfl.experiments.comparison.tables import over_seeds
from async_hfl.experiments.paper import published, ratios
from async_hfl.experiments.paper.entry import QUICK_EPOCHS, QUICK_TARGET, Entry, PaperOptions
from async_hfl.experiments.paper.ratios import ASYNC_HFL, PLUS
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.results.sources import Results
from async_hfl.reports.data.experiment import Figure, FigureLine
from async_hfl.reports.tables.table import BOUND, Cell, Column, Table

FACTORS = (0.5, 1.0, 2.0)
"""Multiples of the preset's bandwidth: on MNIST the paper's 0.5, 1 and 2 MB/s."""
_METHODS = (ASYNC_HFL, PLUS, "async-random", "sync-random")
_TARGETS = (0.85, 0.90, 0.95)
_QUICK_TARGETS = (0.80, 0.85, 0.90)
_SMALL = ("Small version: HAR instead of MNIST, at most 150 epochs.",)
_OVER = Column("over", note="the baseline of the speed-up of Async-HFL")


def _task(options: PaperOptions) -> str:
    return options.tasks[0] if options.tasks else "har" if options.quick else "mnist"


def scaled_bandwidth(task: str, options: PaperOptions, factor: float) -> str:
    """Return a multiple of the preset's bandwidth, which is in bytes per second or a share of the demand."""
    usual = compose(task=task, network=options.network, preset=options.preset).settings.gateway.bandwidth
    share = bandwidth_share(usual)
    return f'"{100 * share * factor:g}%"' if share is not None else repr(float(usual) * factor)


def _bandwidth_plan(options: PaperOptions) -> Plan:
    task, runs = _task(options), []
    for seed in options.seeds_or(quick=3):
        for factor in FACTORS:
            bandwidth = f"gateway.bandwidth={scaled_bandwidth(task, options, factor)}"
            sets = [*options.small(), *options.overrides, bandwidth]
            runs += [options.planned(task, method, seed, sets, panel=_bandwidth_name(factor)) for method in _METHODS]
    return Plan("fig10-left", tuple(runs))


def _bandwidth_name(factor: float) -> str:
    return f"bandwidth x {factor:g}"


def _bandwidth(options: PaperOptions, plan: Plan, results: Results) -> Report:
    panels = {panel.name: panel for panel in compare(plan.runs, results, ASYNC_HFL)}
    rows = [
        (
            scaled_bandwidth(_task(options), options, factor).strip('"'),
            method,
            published.BANDWIDTH.get((method, factor)) if options.preset == "paper" else None,
            *_cells(panels[_bandwidth_name(factor)], method),
        )
        for factor in FACTORS
        for method in _METHODS[1:]
    ]
    columns = (
        Column("bandwidth", note="of a gateway: bytes per second, or a share of the demand of all its devices"),
        _OVER,
        Column("paper", "ratio", note="on MNIST, from its text"),
        ratios.FIRST,
        ratios.HELD,
        BOUND,
    )
    title = f"Fig. 10 left: speed-up by bandwidth ({_task(options)}, {options.network}, preset {options.preset})"
    figure = _curves(title, "bandwidth relative to the preset", [panels[_bandwidth_name(f)] for f in FACTORS], FACTORS)
    table = Table(
        title, columns, tuple(rows), (*ratios.bound_note(list(panels.values())), *(_SMALL if options.quick else ()))
    )
    report = comparison_report(title, list(panels.values()), options.command)
    return with_page(report, tables=(table,), figures=(figure,))


def _cells(panel: Panel, method: str) -> tuple[Cell, ...]:
    return (
        ratios.relative_cell(panel, method, rule="first"),
        ratios.relative_cell(panel, method),
        ratios.bound_share(panel, ASYNC_HFL),
    )


def _curves(title: str, x_name: str, panels: Sequence[Panel], values: Sequence[float]) -> Figure:
    lines = [
        ratios.ratio_line(method, values, [ratios.relative(panel, method) for panel in panels])
        for method in _METHODS[1:]
    ]
    return Figure(title, x_name, "time relative to Async-HFL", tuple(lines), kind="ratio")


def _target_plan(options: PaperOptions) -> Plan:
    targets = _QUICK_TARGETS if options.quick else _TARGETS
    sets = [f"task.target={targets[-1]}", *([f"cloud.epochs={QUICK_EPOCHS}"] if options.quick else [])]
    runs = [
        options.planned(_task(options), method, seed, [*sets, *options.overrides], levels=targets)
        for seed in options.seeds_or(quick=3)
        for method in _METHODS
    ]
    return Plan("fig10-right", tuple(runs))


def _target(options: PaperOptions, plan: Plan, results: Results) -> Report:
    """Compare the times at which the same runs passed each of the targets."""
    targets = _QUICK_TARGETS if options.quick else _TARGETS
    panels = [compare(plan.runs, results, ASYNC_HFL, target)[0] for target in targets]
    rows = [
        (target, method, published.TARGETS.get(method, {}).get(target), *_cells(panel, method))
        for target, panel in zip(targets, panels, strict=True)
        for method in _METHODS[1:]
    ]
    columns = (
        Column("target", "metric"),
        _OVER,
        Column("paper", "ratio", note="on MNIST"),
        ratios.FIRST,
        ratios.HELD,
        BOUND,
    )
    title = f"Fig. 10 right: speed-up by target ({_task(options)}, {options.network}, preset {options.preset})"
    table = Table(title, columns, tuple(rows), (*ratios.bound_note(panels[-1:]), *(_SMALL if options.quick else ())))
    figure = _curves(title, "target", panels, targets)
    return with_page(comparison_report(title, panels[-1:], options.command), tables=(table,), figures=(figure,))


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A setting of Async-HFL that Fig. 11 varies on HAR."""

    figure: str
    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """Pairs of a value's name and the settings that select it."""
    usual: str
    paper: str


KAPPA = _Parameter(
    "fig11-left",
    "kappa",
    tuple((f"{value:g}", (f"selection.latency_exponent={value}",)) for value in (0.2, 0.5, 1.0)),
    "1",
    "In the paper, a larger kappa is faster.",
)
PHI = _Parameter(
    "fig11-middle",
    "phi",
    tuple((f"{value:g}", (f"association.load_penalty={value}",)) for value in (0.0, 0.1, 0.2, 0.3)),
    "0.1",
    "In the paper, phi = 0.1 is best.",
)
COMPONENTS = _Parameter(
    "fig11-right",
    "components",
    (
        *((str(count), ("utility.compression=pca", f"utility.components={count}")) for count in (5, 10, 20, 30)),
        ("none", ()),
    ),
    "none",
    f"In the paper, 30 components take {published.PCA_TIME} time than whole gradients; bytes: {published.PCA_BYTES}.",
)


def _parameter_plan(parameter: _Parameter) -> Callable[[PaperOptions], Plan]:
    def plan(options: PaperOptions) -> Plan:
        runs = [
            options.planned(
                options.tasks[0] if options.tasks else "har",
                ASYNC_HFL,
                seed,
                [*options.small(), *options.overrides, *settings],
                label=f"{parameter.name} {value}",
            )
            for seed in options.seeds_or(quick=3, full=5)
            for value, settings in parameter.values
        ]
        return Plan(parameter.figure, tuple(runs))

    return plan


def _parameter_draw(parameter: _Parameter) -> Callable[[PaperOptions, Plan, Results], Report]:
    def draw(options: PaperOptions, plan: Plan, results: Results) -> Report:
        usual = f"{parameter.name} {parameter.usual}"
        (panel,) = compare(plan.runs, results, usual)
        names = [f"{parameter.name} {value}" for value, _ in parameter.values]
        rows = []
        times = []
        for (value, _), name in zip(parameter.values, names, strict=True):
            row = ratios.best_variant(panel, name)
            assert row is not None
            held = row.at_target()
            whole = row.over_all_seeds(held)
            times.append(None if whole is None else whole.mean)
            rows.append(
                (
                    value,
                    over_seeds(row, held, "seconds"),
                    over_seeds(row, row.less_warmup(), "seconds"),
                    ratios.relative_cell(panel, name, base=usual),
                    over_seeds(row, row.at_target("bytes_total"), "bytes"),
                    row.bound_share,
                )
            )
        columns = (
            Column(parameter.name),
            Column("to target", "seconds", note="mean and range over seeds"),
            Column(
                "less warm-up",
                "seconds",
                note="in the paper the warm-up is free; with components it waits for all devices",
            ),
            Column("ratio", "ratio", note=f"time relative to {parameter.usual}, paired by seed, with a 95 % interval"),
            Column("bytes", "bytes", note="all bytes until the target"),
            BOUND,
        )
        title = (
            f"{parameter.figure.replace('fig', 'Fig. ').replace('-', ' ')}: time to {panel.target:g} by "
            f"{parameter.name} ({panel.name})"
        )
        small = (f"Small version: to {QUICK_TARGET:g} instead of 0.95, at most {QUICK_EPOCHS} epochs.",)
        table = Table(title, columns, tuple(rows), (parameter.paper, *(small if options.quick else ())))
        line = FigureLine(ASYNC_HFL, tuple(value for value, _ in parameter.values), tuple(times))
        figure = Figure(title, parameter.name, "seconds to the target", (line,), bars=True, kind="seconds")
        return with_page(comparison_report(title, (panel,), options.command), tables=(table,), figures=(figure,))

    return draw


ENTRIES = (
    Entry(
        "fig10-left",
        "Fig. 10 left: speed-up by the bandwidth of gateways (MNIST)",
        "HAR to 90 %, three seeds",
        _bandwidth_plan,
        _bandwidth,
    ),
    Entry(
        "fig10-right",
        "Fig. 10 right: speed-up by target accuracy (MNIST)",
        "HAR to 80, 85 and 90 %, three seeds",
        _target_plan,
        _target,
    ),
    *(
        Entry(
            parameter.figure,
            f"Fig. 11 {parameter.figure.partition('-')[2]}: time to the target by {what} (HAR)",
            "to 90 %, three seeds",
            _parameter_plan(parameter),
            _parameter_draw(parameter),
        )
        for parameter, what in (
            (KAPPA, "kappa, the weight of latency in selection"),
            (PHI, "phi, the weight of load in association"),
            (COMPONENTS, "principal components of the gradients"),
        )
    ),
)
