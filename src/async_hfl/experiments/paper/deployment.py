"""Fig. 8 and Fig. 9: the paper's physical deployment, simulated; or by real processes (`--deployed`, `--runs`).

A deployed run leaves the same directory as a simulated one, so whatever `--runs` names is drawn in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.experiments.comparison.report import Report, narrow
from async_hfl.experiments.paper import published, testbed
from async_hfl.experiments.paper.deployed import clients, clock_of, deployed_run
from async_hfl.experiments.paper.entry import Asked, Entry
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.experiment import Comparison, Figure, FigureLine, RunGroup
from async_hfl.reports.data.journal_columns import read_columns
from async_hfl.reports.tables.table import Cell, Column, Spread, Table

_METHODS = ("async-hfl", "async-hl", "sync-random")
_ROUNDS, _SYNCHRONOUS = 30, 10
"""Cloud epochs that each was run for, a synchronous method for a tenth of them."""
_TASKS = ("mnist", "fashion-mnist", "har", "hpwren")
_QUICK_TASKS = ("har", "digits")
_SHOWN = 10
"""Clients of each kind in Fig. 9."""


def _run(task: str, method: str, seed: int, asked: Asked) -> PlannedRun:
    if asked.time_factor is not None:
        return deployed_run(task, method, seed, _settings(task, method, asked), asked, asked.time_factor)
    return planned(
        task=task,
        method=method,
        network="file",
        preset=asked.preset,
        seed=seed,
        overrides=[
            *testbed.settings(task),
            *_settings(task, method, asked),
            *asked.overrides,
        ],
        panel=task,
    )


def _rounds(method: str, asked: Asked) -> int:
    rounds = asked.rounds or _ROUNDS
    return max(1, rounds // _SYNCHRONOUS) if method.startswith("sync") else rounds


def _settings(task: str, method: str, asked: Asked) -> list[str]:
    never = "0.0" if task == "hpwren" else "1.0"  # by rounds alone
    return [
        f"cloud.epochs={_rounds(method, asked)}",
        f"task.target={never}",
        # Synchronous rounds have a time-out here, as theirs had in the end.
        *(["gateway.round_patience=3"] if method.startswith("sync") else []),
    ]


def _plan8(asked: Asked) -> Plan:
    tasks = asked.tasks or (_QUICK_TASKS if asked.quick else _TASKS)
    seeds = asked.seeds_or(quick=2)
    return Plan(
        "fig8", tuple(_run(task, method, seed, asked) for task in tasks for seed in seeds for method in _METHODS)
    )


def _plan9(asked: Asked) -> Plan:
    task = asked.tasks[0] if asked.tasks else "har" if asked.quick else "mnist"
    return Plan("fig9", (_run(task, "async-hfl", asked.seeds_or(quick=1, full=1)[0], asked),))


def _directories(asked: Asked, plan: Plan, folder: SweepFolder) -> list[RunDirectory]:
    """The runs that were named, else those of the plan that are done."""
    if asked.runs:
        return [RunDirectory.open(path) for path in asked.runs]
    return [RunDirectory(folder.run(run.id)) for run in plan.runs if folder.state(run.id) == "done"]


def _fig8(asked: Asked, plan: Plan, folder: SweepFolder) -> Report:
    found: dict[tuple[str, str], list[RunDirectory]] = {}
    for directory in _directories(asked, plan, folder):
        manifest = directory.read_manifest()
        found.setdefault((manifest["task"], manifest["method"]), []).append(directory)
    simulated = _counterparts(asked, plan, folder)
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
        Column("paper", "metric", note="accuracy on its physical deployment after about that time"),
        Column("after", "seconds"),
        Column("ours", "metric", note="at that time; mean and range over seeds"),
        *([Column("simulated", "metric", note="the same on the simulated testbed")] if simulated else []),
        Column("final", "metric", note=f"after {asked.rounds or _ROUNDS} cloud epochs, synchronous ones after a tenth"),
        Column("ends", "seconds", note="when that was"),
        Column("bound", "share", note="selections in which the bandwidth kept a candidate out"),
    )
    title = f"Fig. 8: convergence on the deployment (preset {asked.preset})"
    every = [run for runs in found.values() for run in runs]
    notes = _notes(asked, every)
    table = Table(title, columns, tuple(rows), notes)
    groups = tuple(RunGroup(method, tuple(run.path for run in runs), task) for (task, method), runs in found.items())
    figures = _curves(found, simulated) if _scaled(every) else ()
    page = Comparison(title, tables=(table,), figures=figures, command=asked.command, reference="async-hfl")
    return Report(page, () if figures else groups, (narrow(table),))


def _notes(asked: Asked, runs: Sequence[RunDirectory]) -> tuple[str, ...]:
    factors = sorted({clock_of(run).factor for run in runs} - {1.0})
    scaled = [
        f"By real processes, {factor:g} times as fast: all times are the run's times {factor:g}, from its first job on."
        for factor in factors
    ]
    return tuple(scaled) if asked.runs or scaled else (testbed.NOTE,)


def _scaled(runs: Sequence[RunDirectory]) -> bool:
    """Then their own curves, which are in their own seconds, are not drawn."""
    return any(clock_of(run).factor != 1.0 for run in runs)


def _counterparts(asked: Asked, plan: Plan, folder: SweepFolder) -> dict[tuple[str, str], list[RunDirectory]]:
    """Of a deployed plan: the simulated runs that are there."""
    found: dict[tuple[str, str], list[RunDirectory]] = {}
    if asked.time_factor is not None and not asked.runs:
        for run in plan.runs:
            beside = _run(run.task, run.method, run.seed, replace(asked, time_factor=None))
            if folder.state(beside.id) == "done":
                found.setdefault((run.task, run.method), []).append(RunDirectory(folder.run(beside.id)))
    return found


def _curves(
    deployed: dict[tuple[str, str], list[RunDirectory]], simulated: dict[tuple[str, str], list[RunDirectory]]
) -> tuple[Figure, ...]:
    """By task; of several seeds the first."""
    lines: dict[str, list[FigureLine]] = {}
    for runs, what in ((deployed, ""), (simulated, ", simulated")):
        for (task, method), (run, *_) in runs.items():
            rows, clock = list(run.read_epochs()), clock_of(run)
            x, y = (tuple(clock.at(row["at"]) for row in rows), tuple(row["metric"] for row in rows))
            lines.setdefault(task, []).append(FigureLine(method + what, x, y))
    return tuple(Figure(f"Fig. 8: {task}", "seconds", "metric", tuple(drawn)) for task, drawn in lines.items())


def _at(run: RunDirectory, until: float) -> float | None:
    """The metric of the last evaluation by then."""
    clock = clock_of(run)
    reached = [row["metric"] for row in run.read_epochs() if clock.at(row["at"]) <= until]
    return reached[-1] if reached else None


def _over(values: object) -> Cell:
    known = [value for value in values if value is not None]  # type: ignore[attr-defined]
    if not known:
        return None
    return Spread(float(np.mean(known)), min(known), max(known)) if len(known) > 1 else float(known[0])


def _fig9(asked: Asked, plan: Plan, folder: SweepFolder) -> Report:
    parts: dict[str, list[Floats]] = {}
    runs = _directories(asked, plan, folder)
    simulated = {} if asked.runs else dict(enumerate(testbed.names()))
    for run in runs:
        jobs = read_columns(run).jobs
        times = clock_of(run).factor * np.column_stack((jobs.download_s, jobs.training_s, jobs.upload_s))
        called = clients(run) or simulated
        devices = jobs.device.tolist()
        for place in sorted(np.flatnonzero(np.isfinite(times).all(axis=1)).tolist(), key=devices.__getitem__):
            device = devices[place]
            parts.setdefault(called.get(device, f"device {device}"), []).append(times[place])
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
    title = "Fig. 9: where the time of a round goes"
    whole = [sum(means[name]) for name in means]
    notes = (
        f"Mean over all clients: {np.mean(whole):.1f} s a round; the paper's deployment had 120.26 s." if whole else "",
        _bound_share(runs),
        *_notes(asked, runs),
    )
    table = Table(title, columns, rows, tuple(note for note in notes if note))
    kinds = ("Raspberry Pis", "cluster" if simulated else "devices")
    figures = tuple(_broken_up(what, half, means) for what, half in zip(kinds, halves, strict=True) if half)
    groups = (RunGroup("async-hfl", tuple(run.path for run in runs)),) if runs and not _scaled(runs) else ()
    return Report(Comparison(title, tables=(table,), figures=figures, command=asked.command), groups)


def _bound_share(runs: Sequence[RunDirectory]) -> str:
    shares = [summary["bandwidth_bound_share"] for run in runs if (summary := run.read_summary()) is not None]
    return f"Selections in which the bandwidth bound: {100 * float(np.mean(shares)):.1f} %." if shares else ""


def _broken_up(what: str, names: Sequence[str], means: dict[str, list[float]]) -> Figure:
    lines = tuple(
        FigureLine(part, tuple(names), tuple(means[name][place] for name in names))
        for place, part in enumerate(("download", "training", "upload"))
    )
    return Figure(f"Fig. 9: {what}", "client", "seconds", lines, bars=True, kind="seconds")


ENTRIES = (
    Entry(
        "fig8",
        "Fig. 8: convergence on the deployment: 30 cloud epochs (simulated, or --deployed)",
        "HAR and digits, two seeds",
        _plan8,
        _fig8,
    ),
    Entry(
        "fig9",
        "Fig. 9: download, training and upload by client (simulated, or --deployed)",
        "HAR in place of MNIST",
        _plan9,
        _fig9,
    ),
)
