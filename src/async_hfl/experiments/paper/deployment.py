"""Fig. 8 and Fig. 9: the paper's physical deployment, simulated or with real processes (`--deployed`).

A deployed run leaves the same directory as a simulated one, so `--runs` can draw either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from async_hfl.experiments.comparison.report import Report, narrow
from async_hfl.experiments.paper import published, testbed
from async_hfl.experiments.paper.entry import Entry, PaperOptions
from async_hfl.experiments.paper.testbed import client_names, clock_of, deployed_run
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.results.parts_of_rounds import Parts, mean_parts
from async_hfl.experiments.results.sources import Results
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.experiment import Comparison, Figure, FigureLine, RunGroup
from async_hfl.reports.tables.table import BOUND, Cell, Column, Spread, Table

_METHODS = ("async-hfl", "async-hl", "sync-random")
_ROUNDS, _SYNCHRONOUS = 30, 10
"""Cloud epochs of each method; synchronous methods run for a tenth of them."""
_TASKS = ("mnist", "fashion-mnist", "har", "hpwren")
_QUICK_TASKS = ("har", "digits")
_SHOWN = 10
"""The number of clients of each kind in Fig. 9."""


def _run(task: str, method: str, seed: int, options: PaperOptions, *, parts: bool = False) -> PlannedRun:
    if options.time_factor is not None:
        return deployed_run(task, method, seed, _settings(task, method, options), options, options.time_factor)
    return planned(
        task=task,
        method=method,
        network="file",
        preset=options.preset,
        seed=seed,
        overrides=[*testbed.settings(task), *_settings(task, method, options), *options.overrides],
        panel=task,
        parts=parts,
    )


def _rounds(method: str, options: PaperOptions) -> int:
    rounds = options.rounds or _ROUNDS
    return max(1, rounds // _SYNCHRONOUS) if method.startswith("sync") else rounds


def _settings(task: str, method: str, options: PaperOptions) -> list[str]:
    unreachable = "0.0" if task == "hpwren" else "1.0"  # the runs end after their rounds
    return [
        f"cloud.epochs={_rounds(method, options)}",
        f"task.target={unreachable}",
        # Synchronous rounds have a timeout, as in the authors' final version.
        *(["gateway.round_patience=3"] if method.startswith("sync") else []),
    ]


def _plan8(options: PaperOptions) -> Plan:
    tasks = options.tasks or (_QUICK_TASKS if options.quick else _TASKS)
    seeds = options.seeds_or(quick=2)
    return Plan(
        "fig8", tuple(_run(task, method, seed, options) for task in tasks for seed in seeds for method in _METHODS)
    )


def _plan9(options: PaperOptions) -> Plan:
    task = options.tasks[0] if options.tasks else "har" if options.quick else "mnist"
    return Plan("fig9", (_run(task, "async-hfl", options.seeds_or(quick=1, full=1)[0], options, parts=True),))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A run to draw. Its times are those of the testbed, whatever the speed at which it was made."""

    task: str
    method: str
    at: tuple[float, ...]
    metric: tuple[float | None, ...]
    ends: float
    final: float | None
    bound_share: float
    parts: dict[str, Parts]
    """Mean seconds of download, training and upload by client; only for Fig. 9."""
    factor: float = 1.0
    directory: RunDirectory | None = None

    def until(self, until: float) -> float | None:
        """Return the metric of the last evaluation until then."""
        reached = [metric for at, metric in zip(self.at, self.metric, strict=True) if at <= until]
        return reached[-1] if reached else None


def _read(directory: RunDirectory, *, parts: bool = False) -> _Drawn | None:
    """Read a run directory; None if the run is not complete."""
    manifest, summary, clock = directory.read_manifest(), directory.read_summary(), clock_of(directory)
    if summary is None:
        return None
    rows = list(directory.read_epochs())
    names = client_names(directory)
    found = mean_parts(directory) if parts else {}
    return _Drawn(
        manifest["task"],
        manifest["method"],
        tuple(clock.at(row["at"]) for row in rows),
        tuple(row["metric"] for row in rows),
        clock.at(summary["virtual_s"]),
        summary["final_metric"],
        summary["bandwidth_bound_share"],
        {
            names.get(int(device), f"device {device}"): (down * clock.factor, work * clock.factor, up * clock.factor)
            for device, (down, work, up) in found.items()
        },
        clock.factor,
        directory,
    )


def _kept(run: PlannedRun, results: Results) -> _Drawn | None:
    """Return a simulated run of the testbed; None if it is not complete."""
    one, path = results.of(run), results.directory(run)
    if one is None:
        return None
    names = testbed.names()
    parts = {names[int(device)]: times for device, times in (one.parts or {}).items()}
    shape = (run.task, run.method, tuple(one.curve.at), tuple(one.curve.metric), one.end.at, one.final)
    return _Drawn(*shape, one.bound_share, parts, directory=None if path is None else RunDirectory(path))


def _drawn(options: PaperOptions, plan: Plan, results: Results, *, parts: bool = False) -> list[_Drawn]:
    """Return the runs given by `--runs`, or else the complete runs of the plan."""
    if options.runs:
        return [one for path in options.runs if (one := _read(RunDirectory.open(path), parts=parts)) is not None]
    if options.time_factor is None:
        return [one for run in plan.runs if (one := _kept(run, results)) is not None]
    paths = [path for run in plan.runs if (path := results.directory(run)) is not None]
    return [one for path in paths if (one := _read(RunDirectory(path), parts=parts)) is not None]


def _by_method(runs: Iterable[_Drawn]) -> dict[tuple[str, str], list[_Drawn]]:
    found: dict[tuple[str, str], list[_Drawn]] = {}
    for run in runs:
        found.setdefault((run.task, run.method), []).append(run)
    return found


def _fig8(options: PaperOptions, plan: Plan, results: Results) -> Report:
    every = _drawn(options, plan, results)
    found, simulated = _by_method(every), _by_method(_counterparts(options, plan, results))
    rows = []
    for (task, method), runs in found.items():
        until = published.DEPLOYED_S.get(task, 2000.0)
        beside = simulated.get((task, method), ())
        rows.append(
            (
                task,
                method,
                published.DEPLOYED.get((task, method)),
                until,
                _over(run.until(until) for run in runs),
                *([_over(run.until(until) for run in beside)] if simulated else []),
                _over(run.final for run in runs),
                _over(run.ends for run in runs),
                float(np.mean([run.bound_share for run in runs])),
            )
        )
    columns = (
        Column("task"),
        Column("method"),
        Column("paper", "metric", note="accuracy on the physical deployment after about that time"),
        Column("after", "seconds"),
        Column("measured", "metric", note="at that time; mean and range over seeds"),
        *([Column("simulated", "metric", note="the same in the simulated testbed")] if simulated else []),
        Column("final", "metric", note=f"after {options.rounds or _ROUNDS} cloud epochs; a tenth if synchronous"),
        Column("ends", "seconds", note="time of the final value"),
        BOUND,
    )
    title = f"Fig. 8: convergence on the deployment (preset {options.preset})"
    table = Table(title, columns, tuple(rows), _notes(options, every))
    groups = _groups(found)
    figures = () if groups else _curves(found, simulated)
    page = Comparison(title, tables=(table,), figures=figures, command=options.command, reference="async-hfl")
    return Report(page, groups, (narrow(table),))


def _notes(options: PaperOptions, runs: Sequence[_Drawn]) -> tuple[str, ...]:
    factors = sorted({run.factor for run in runs} - {1.0})
    scaled = [
        f"Real processes, {factor:g} times as fast as the testbed: times, from the first job on, are scaled back."
        for factor in factors
    ]
    return tuple(scaled) if options.runs or scaled else (testbed.NOTE,)


def _groups(found: dict[tuple[str, str], list[_Drawn]]) -> tuple[RunGroup, ...]:
    """Return the groups whose curves the page draws: none if there are no directories, or if their times are scaled."""
    every = [run for runs in found.values() for run in runs]
    if any(run.directory is None or run.factor != 1.0 for run in every):
        return ()
    return tuple(
        RunGroup(method, tuple(run.directory.path for run in runs if run.directory is not None), task)
        for (task, method), runs in found.items()
    )


def _counterparts(options: PaperOptions, plan: Plan, results: Results) -> list[_Drawn]:
    """Return the simulated runs that correspond to a deployed plan."""
    if options.time_factor is None or options.runs:
        return []
    same = [_run(run.task, run.method, run.seed, replace(options, time_factor=None)) for run in plan.runs]
    return [one for run in same if (one := _kept(run, results)) is not None]


def _curves(
    deployed: dict[tuple[str, str], list[_Drawn]], simulated: dict[tuple[str, str], list[_Drawn]]
) -> tuple[Figure, ...]:
    """Return one figure per task with the first seed of each method."""
    lines: dict[str, list[FigureLine]] = {}
    for runs, what in ((deployed, ""), (simulated, ", simulated")):
        for (task, method), (run, *_) in runs.items():
            lines.setdefault(task, []).append(FigureLine(method + what, run.at, run.metric))
    return tuple(Figure(f"Fig. 8: {task}", "seconds", "metric", tuple(drawn)) for task, drawn in lines.items())


def _over(values: Iterable[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    return known[0] if len(known) == 1 else Spread.over(known)


def _fig9(options: PaperOptions, plan: Plan, results: Results) -> Report:
    runs = _drawn(options, plan, results, parts=True)
    parts: dict[str, list[Parts]] = {}
    for run in runs:
        for name, times in run.parts.items():
            parts.setdefault(name, []).append(times)
    means: dict[str, list[float]] = {name: np.mean(times, axis=0).tolist() for name, times in parts.items()}
    halves = [[name for name in means if testbed.on_a_pi(name) is pi][:_SHOWN] for pi in (True, False)]
    rows = tuple((name, *means[name], sum(means[name])) for half in halves for name in half)
    columns = (
        Column("client"),
        Column("download", "seconds"),
        Column("training", "seconds"),
        Column("upload", "seconds"),
        Column("round", "seconds", note="mean over the jobs of the run"),
    )
    title = "Fig. 9: parts of a round"
    whole = [sum(means[name]) for name in means]
    notes = (
        f"Mean over all clients: {np.mean(whole):.1f} s per round; 120.26 s in the paper's deployment."
        if whole
        else "",
        f"Selections limited by the bandwidth: {100 * float(np.mean([run.bound_share for run in runs])):.1f} %."
        if runs
        else "",
        *_notes(options, runs),
    )
    table = Table(title, columns, rows, tuple(note for note in notes if note))
    kinds = ("Raspberry Pis", "devices" if options.runs else "cluster")
    figures = tuple(_parts_figure(what, half, means) for what, half in zip(kinds, halves, strict=True) if half)
    page = Comparison(title, tables=(table,), figures=figures, command=options.command)
    return Report(page, _groups({("", "async-hfl"): runs} if runs else {}))


def _parts_figure(what: str, names: Sequence[str], means: dict[str, list[float]]) -> Figure:
    lines = tuple(
        FigureLine(part, tuple(names), tuple(means[name][place] for name in names))
        for place, part in enumerate(("download", "training", "upload"))
    )
    return Figure(f"Fig. 9: {what}", "client", "seconds", lines, bars=True, kind="seconds")


ENTRIES = (
    Entry(
        "fig8",
        "Fig. 8: convergence on the deployment in 30 cloud epochs (simulated, or --deployed)",
        "HAR and digits, two seeds",
        _plan8,
        _fig8,
    ),
    Entry(
        "fig9",
        "Fig. 9: download, training and upload by client (simulated, or --deployed)",
        "HAR instead of MNIST",
        _plan9,
        _fig9,
    ),
)
