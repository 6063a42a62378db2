"""Many runs: sweeps over a plan, comparisons of methods, the tables and figures of the paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_hfl.cli.common import Commands, add_choices, add_command, add_settings, answer, complain, print_json
from async_hfl.core.errors import UserError

if TYPE_CHECKING:  # imported when a command runs, so that `async-hfl --help` starts fast
    from async_hfl.experiments.comparison.report import Report
    from async_hfl.experiments.plans.plan import Plan
    from async_hfl.experiments.sweeps.folder import SweepFolder
    from async_hfl.experiments.sweeps.sweep import SweepResult
    from async_hfl.experiments.sweeps.worker_pool import WorkerPool

_TIME_FACTOR = 10.0
_REFERENCE = "speed-ups are relative to this one (default: async-random if present, else the first)"


def add_commands(commands: Commands) -> None:
    sweep = add_command(commands, "sweep", _sweep, "make the runs of a plan that are not complete yet")
    sweep.add_argument("plan", type=Path, metavar="PLAN.toml", help="a plan (docs/experiments.md)")
    sweep.add_argument("--reference", metavar="GROUP", help=_REFERENCE)
    _add_work(sweep, "runs/PLAN")

    compare = add_command(commands, "compare", _compare, "compare methods on one task with several seeds")
    add_choices(compare, "task", "network", "preset")
    compare.add_argument("--methods", metavar="A,B,…", help="default: all; semi-async runs with three periods")
    compare.add_argument("--seeds", default="3", metavar="N", help="the number of seeds, or a list: 1,2,5")
    compare.add_argument("--target", type=float, metavar="T", help="the metric to reach (default: the task's target)")
    add_settings(compare, seed=False)
    compare.add_argument("--reference", metavar="METHOD", help=_REFERENCE)
    _add_work(compare, "runs/compare-TASK")

    paper = add_command(commands, "paper", _paper, "reproduce a table or figure of the Async-HFL paper")
    paper.add_argument("name", metavar="NAME", help="a name from `async-hfl paper list`")
    paper.add_argument("--quick", action="store_true", help="a small version that takes minutes on a laptop")
    paper.add_argument("--preset", default="paper", help="the bandwidth of gateways: paper, authors or tight")
    paper.add_argument("--network", default="nycmesh-paper", help="nycmesh-paper or nycmesh")
    paper.add_argument("--tasks", metavar="A,B,…", help="the tasks (default: those of the paper)")
    paper.add_argument("--seeds", metavar="N", help="the number of seeds, or a list: 1,2,5 (default: depends on NAME)")
    add_settings(paper, seed=False)
    paper.add_argument("--runs", nargs="+", type=Path, metavar="RUN", help="fig8, fig9: draw these runs, make none")
    rounds = "fig8, fig9: cloud epochs (default: 30); synchronous methods make a tenth of them"
    paper.add_argument("--rounds", type=int, metavar="N", help=rounds)
    paper.add_argument("--deployed", action="store_true", help="fig8, fig9: run real processes on this machine")
    factor = "with --deployed: run F times as fast as the paper's deployment (default: 10)"
    paper.add_argument("--time-factor", type=float, metavar="F", help=factor)
    _add_work(paper, "runs/paper")


def _add_work(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options about workers, time limit and output directory."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"the directory of runs and tables (default: {out})")
    parser.add_argument("--on", metavar="WHERE", default="processes", help="processes, ray or ray://HOST:PORT")
    parser.add_argument("--processes", type=int, metavar="P", help="workers (default: one per core, several per GPU)")
    parser.add_argument("--together", type=int, metavar="K", help="runs at once in a worker (default: 1; 6 on a GPU)")
    parser.add_argument("--limit-minutes", type=float, metavar="M", help="stop then; the same command continues later")


def _sweep(options: argparse.Namespace) -> int:
    from async_hfl.experiments.plans.plan import read_plan

    plan = read_plan(options.plan)
    return _compare_runs(options, plan, f"async-hfl sweep: {plan.name}", f"async-hfl sweep {options.plan}")


def _compare(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparison.plan import METHODS, comparison_plan, seeds_of

    target = [] if options.target is None else [f"task.target={options.target!r}"]
    plan = comparison_plan(
        f"compare-{Path(options.task.rpartition(':')[0] or options.task).stem if options.task else 'digits'}",
        METHODS if options.methods is None else [name.strip() for name in options.methods.split(",")],
        seeds_of(options.seeds),
        task=options.task,
        network=options.network,
        preset=options.preset,
        overrides=[*options.overrides, *target],
    )
    title = f"async-hfl compare: {plan.runs[0].task}"
    return _compare_runs(options, plan, title, _command(options, "async-hfl compare"))


def _compare_runs(options: argparse.Namespace, plan: Plan, title: str, command: str) -> int:
    from async_hfl.experiments.comparison.comparison import compare
    from async_hfl.experiments.comparison.report import comparison_report
    from async_hfl.experiments.sweeps.folder import SweepFolder

    folder = SweepFolder(options.out or Path("runs") / plan.name)
    swept = _work(options, plan, folder)
    panels = compare(plan.runs, folder, options.reference)
    report = comparison_report(title, panels, command)
    return _finish_report(options, plan, swept, report, {"panels": [panel.as_json() for panel in panels]})


def _paper(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparison.plan import seeds_of
    from async_hfl.experiments.paper.catalogue import CATALOGUE, find
    from async_hfl.experiments.paper.entry import NETWORKS, PRESETS, PaperOptions
    from async_hfl.experiments.plans.plan import Plan
    from async_hfl.experiments.sweeps.folder import SweepFolder

    if options.name == "list":
        rows = [{"name": e.name, "title": e.title, "quick": e.quick} for e in CATALOGUE.values()]
        lines = [f"{row['name']:<13} {row['title']}\n{'':<13} --quick: {row['quick']}" for row in rows]
        return answer(options, rows, lines)
    entry = find(options.name)
    for key, known in (("preset", PRESETS), ("network", NETWORKS)):
        if getattr(options, key) not in known:
            raise UserError(f"--{key} {getattr(options, key)}: must be one of {', '.join(known)}")
    if options.runs and entry.name not in ("fig8", "fig9"):
        raise UserError(f"--runs: {entry.name} makes its own runs; only fig8 and fig9 can be drawn from given ones")
    if options.rounds is not None and (entry.name not in ("fig8", "fig9") or options.rounds < 1):
        raise UserError(f"--rounds {options.rounds}: must be at least 1, and applies to fig8 and fig9 only")
    factor = _time_factor(options, entry.name)
    folder = SweepFolder(options.out or Path("runs") / "paper")
    kind = ("-deployed" if factor is not None else "") + ("-quick" if options.quick else "")
    asked = PaperOptions(
        quick=options.quick,
        preset=options.preset,
        network=options.network,
        seeds=() if options.seeds is None else tuple(seeds_of(options.seeds)),
        tasks=() if options.tasks is None else tuple(task.strip() for task in options.tasks.split(",")),
        overrides=tuple(options.overrides),
        out=folder.path / f"{entry.name}-{options.preset}-{options.network}{kind}",
        command=_command(options, f"async-hfl paper {entry.name}{' --quick' if options.quick else ''}"),
        runs=tuple(options.runs or ()),
        rounds=options.rounds,
        time_factor=factor,
    )
    plan = entry.plan(asked)
    swept = _work(options, plan if not options.runs else Plan(plan.name, ()), folder, factor)
    asked.out.mkdir(parents=True, exist_ok=True)
    return _finish_report(options, plan, swept, entry.draw(asked, plan, folder), {}, asked.out)


def _time_factor(options: argparse.Namespace, entry: str) -> float | None:
    """Return the time factor of real processes, or None for a simulation."""
    if not options.deployed:
        if options.time_factor is not None:
            raise UserError("--time-factor: applies to real processes only; give --deployed as well")
        return None
    if entry not in ("fig8", "fig9") or options.runs:
        raise UserError("--deployed: applies to fig8 and fig9 only, and not together with --runs")
    factor: float = _TIME_FACTOR if options.time_factor is None else options.time_factor
    if not 1 <= factor < float("inf"):
        raise UserError(f"--time-factor {factor:g}: must be at least 1")
    return factor


def _command(options: argparse.Namespace, command: str) -> str:
    """Return the command line that makes this report again."""
    parts = [command]
    for key in ("task", "tasks", "methods", "network", "preset", "seeds", "rounds", "target", "reference"):
        value = getattr(options, key, None)
        if value is not None:
            parts.append(f"--{key} {value}")
    if getattr(options, "deployed", False):
        parts.append(f"--deployed --time-factor {options.time_factor or _TIME_FACTOR:g}")
    return " ".join([*parts, *(f"--set {text}" for text in options.overrides)])


def _work(
    options: argparse.Namespace, plan: Plan, folder: SweepFolder, time_factor: float | None = None
) -> SweepResult:
    """Make the missing runs of a plan, with real processes if there is a time factor."""
    from async_hfl.experiments.comparison.comparison import check_reference
    from async_hfl.experiments.sweeps.sweep import sweep
    from async_hfl.experiments.sweeps.view import SweepView

    check_reference(plan.runs, getattr(options, "reference", None))
    if options.limit_minutes is not None and not options.limit_minutes > 0:
        raise UserError(f"--limit-minutes {options.limit_minutes:g}: must be more than 0")
    limit_s = None if options.limit_minutes is None else options.limit_minutes * 60
    with SweepView(plan.name, quiet=options.json, panels=len({run.panel for run in plan.runs}) > 1) as view:
        if time_factor is not None:
            from async_hfl.experiments.paper.testbed import run_maker
            from async_hfl.experiments.sweeps.cluster_runs import make_cluster_runs

            return make_cluster_runs(plan.runs, folder, run_maker(folder, time_factor), view, limit_s=limit_s)
        return sweep(plan.runs, folder, _worker_pool(options, folder), view, limit_s=limit_s)


def _worker_pool(options: argparse.Namespace, folder: SweepFolder) -> WorkerPool:
    from async_hfl.experiments.sweeps.process_workers import ProcessPool

    if options.on == "processes":
        return ProcessPool(folder.path, options.processes, options.together)
    if options.on == "ray" or options.on.startswith("ray://"):
        from async_hfl.experiments.sweeps.ray_workers import RayPool

        address = None if options.on == "ray" else options.on
        return RayPool(folder.path, address, options.processes, options.together)
    raise UserError(f"--on {options.on}: must be processes, ray (on this machine) or ray://HOST:PORT")


def _finish_report(
    options: argparse.Namespace,
    plan: Plan,
    swept: SweepResult,
    report: Report,
    extra: dict[str, Any],
    out: Path | None = None,
) -> int:
    """Write the files, print the tables, and return the exit code."""
    from rich.console import Console

    from async_hfl.experiments.comparison.report import as_json, write_report
    from async_hfl.reports.tables.table import as_rich

    files = write_report(report, out or swept.folder.path)
    if options.json:
        tables = [as_json(table) for table in report.brief or report.page.tables]
        print_json({"name": plan.name, **swept.as_json(), "files": files, "tables": tables, **extra})
    else:
        console = Console(highlight=False)
        for table in report.brief or report.page.tables:
            console.print(as_rich(table))
        for what, file in files.items():
            console.print(f"{what:<9} {file}", markup=False, soft_wrap=True)
        if swept.left and not swept.failed:
            why = {"limit": "time limit reached", "interrupted": "interrupted", "": "not done"}[swept.stopped]
            left = f"{why}: {swept.left} of {swept.total} runs left; the same command continues with them"
            console.print(left, style="yellow", markup=False, soft_wrap=True)
    if swept.failed:
        reasons = list(dict.fromkeys(swept.failed.values()))
        text = f"{len(swept.failed)} of {swept.total} runs failed: {reasons[0]}"
        more = f"; and {len(reasons) - 1} other reasons in {swept.folder.path / 'failures'}" if reasons[1:] else ""
        return complain(text + more, 2 if swept.users_fault else 1)
    return 130 if swept.stopped == "interrupted" else 0
