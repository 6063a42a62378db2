"""Fig. 8 and Fig. 9: the paper's physical deployment, simulated or with real processes (`--deployed`).

A deployed run leaves the same directory as a simulated one, so `--runs` can draw either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.experiments.comparison.report import Report, narrow
from async_hfl.experiments.paper import published, testbed
from async_hfl.experiments.paper.entry import Entry, PaperOptions
from async_hfl.experiments.paper.testbed import client_names, clock_of, deployed_run
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.experiment import Comparison, Figure, FigureLine, RunGroup
from async_hfl.reports.data.journal_columns import read_columns
from async_hfl.reports.tables.table import BOUND, Cell, Column, Spread, Table

_METHODS = ("async-hfl", "async-hl", "sync-random")
_ROUNDS, _SYNCHRONOUS = 30, 10
"""Cloud epochs of each method; synchronous methods run for a tenth of them."""
_TASKS = ("mnist", "fashion-mnist", "har", "hpwren")
_QUICK_TASKS = ("har", "digits")
_SHOWN = 10
"""The number of clients of each kind in Fig. 9."""


def _run(task: str, method: str, seed: int, options: PaperOptions) -> PlannedRun:
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
    return Plan("fig9", (_run(task, "async-hfl", options.seeds_or(quick=1, full=1)[0], options),))


def _directories(options: PaperOptions, plan: Plan, folder: SweepFolder) -> list[RunDirectory]:
    """Return the runs given by `--runs`, or else the complete runs of the plan."""
    if options.runs:
        return [RunDirectory.open(path) for path in options.runs]
    return [RunDirectory(folder.run(run.id)) for run in plan.runs if folder.state(run.id) == "done"]


def _fig8(options: PaperOptions, plan: Plan, folder: SweepFolder) -> Report:
    found: dict[tuple[str, str], list[RunDirectory]] = {}
    for directory in _directories(options, plan, folder):
        manifest = directory.read_manifest()
        found.setdefault((manifest["task"], manifest["method"]), []).append(directory)
    simulated = _counterparts(options, plan, folder)
    rows = []
    for (task, method), runs in found.items():
        until = published.DEPLOYED_S.get(task, 2000.0)
        ends = [(clock_of(run), summary) for run in runs if (summary := run.read_summary()) is not None]
        rows.append(
            (
                task,
                method,
                published.DEPLOYED.get((task, method)),
                until,
                _over(_at(run, until) for run in runs),
                *([_over(_at(run, until) for run in simulated.get((task, method), ()))] if simulated else []),
                _over(summary["final_metric"] for _, summary in ends),
                _over(clock.at(summary["virtual_s"]) for clock, summary in ends),
                float(np.mean([summary["bandwidth_bound_share"] for _, summary in ends])) if ends else None,
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
    every = [run for runs in found.values() for run in runs]
    notes = _notes(options, every)
    table = Table(title, columns, tuple(rows), notes)
    groups = tuple(RunGroup(method, tuple(run.path for run in runs), task) for (task, method), runs in found.items())
    figures = _curves(found, simulated) if _scaled(every) else ()
    page = Comparison(title, tables=(table,), figures=figures, command=options.command, reference="async-hfl")
    return Report(page, () if figures else groups, (narrow(table),))


def _notes(options: PaperOptions, runs: Sequence[RunDirectory]) -> tuple[str, ...]:
    factors = sorted({clock_of(run).factor for run in runs} - {1.0})
    scaled = [
        f"Real processes, {factor:g} times as fast as the testbed: times, from the first job on, are scaled back."
        for factor in factors
    ]
    return tuple(scaled) if options.runs or scaled else (testbed.NOTE,)


def _scaled(runs: Sequence[RunDirectory]) -> bool:
    """True if a run has a time factor; its own curves, in the seconds of this machine, are then not drawn."""
    return any(clock_of(run).factor != 1.0 for run in runs)


def _counterparts(options: PaperOptions, plan: Plan, folder: SweepFolder) -> dict[tuple[str, str], list[RunDirectory]]:
    """Return the simulated runs in the folder that correspond to a deployed plan."""
    found: dict[tuple[str, str], list[RunDirectory]] = {}
    if options.time_factor is not None and not options.runs:
        for run in plan.runs:
            counterpart = _run(run.task, run.method, run.seed, replace(options, time_factor=None))
            if folder.state(counterpart.id) == "done":
                found.setdefault((run.task, run.method), []).append(RunDirectory(folder.run(counterpart.id)))
    return found


def _curves(
    deployed: dict[tuple[str, str], list[RunDirectory]], simulated: dict[tuple[str, str], list[RunDirectory]]
) -> tuple[Figure, ...]:
    """Return one figure per task with the first seed of each method."""
    lines: dict[str, list[FigureLine]] = {}
    for runs, what in ((deployed, ""), (simulated, ", simulated")):
        for (task, method), (run, *_) in runs.items():
            rows, clock = list(run.read_epochs()), clock_of(run)
            x, y = (tuple(clock.at(row["at"]) for row in rows), tuple(row["metric"] for row in rows))
            lines.setdefault(task, []).append(FigureLine(method + what, x, y))
    return tuple(Figure(f"Fig. 8: {task}", "seconds", "metric", tuple(drawn)) for task, drawn in lines.items())


def _at(run: RunDirectory, until: float) -> float | None:
    """Return the metric of the last evaluation until then."""
    clock = clock_of(run)
    reached = [row["metric"] for row in run.read_epochs() if clock.at(row["at"]) <= until]
    return reached[-1] if reached else None


def _over(values: Iterable[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    return known[0] if len(known) == 1 else Spread.over(known)


def _fig9(options: PaperOptions, plan: Plan, folder: SweepFolder) -> Report:
    parts: dict[str, list[Floats]] = {}
    runs = _directories(options, plan, folder)
    simulated = {} if options.runs else dict(enumerate(testbed.names()))
    for run in runs:
        jobs = read_columns(run).jobs
        times = clock_of(run).factor * np.column_stack((jobs.download_s, jobs.training_s, jobs.upload_s))
        names_of = client_names(run) or simulated
        devices = jobs.device.tolist()
        for place in sorted(np.flatnonzero(np.isfinite(times).all(axis=1)).tolist(), key=devices.__getitem__):
            device = devices[place]
            parts.setdefault(names_of.get(device, f"device {device}"), []).append(times[place])
    means = {name: np.mean(times, axis=0).tolist() for name, times in parts.items()}
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
        _bound_share(runs),
        *_notes(options, runs),
    )
    table = Table(title, columns, rows, tuple(note for note in notes if note))
    kinds = ("Raspberry Pis", "cluster" if simulated else "devices")
    figures = tuple(_parts_figure(what, half, means) for what, half in zip(kinds, halves, strict=True) if half)
    groups = (RunGroup("async-hfl", tuple(run.path for run in runs)),) if runs and not _scaled(runs) else ()
    return Report(Comparison(title, tables=(table,), figures=figures, command=options.command), groups)


def _bound_share(runs: Sequence[RunDirectory]) -> str:
    shares = [summary["bandwidth_bound_share"] for run in runs if (summary := run.read_summary()) is not None]
    return f"Selections limited by the bandwidth: {100 * float(np.mean(shares)):.1f} %." if shares else ""


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
