"""Many runs at once: sweeps of a plan, comparisons of methods, the paper's tables and figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_hfl.cli.common import Commands, complain, finish, print_json
from async_hfl.core.errors import UserError

if TYPE_CHECKING:
    from async_hfl.experiments.comparison.report import Report
    from async_hfl.experiments.plans.plan import Plan
    from async_hfl.experiments.sweeps.folder import SweepFolder
    from async_hfl.experiments.sweeps.sweep import Swept
    from async_hfl.experiments.sweeps.worker_pool import WorkerPool


_TIME_FACTOR = 10.0


def add_commands(commands: Commands) -> None:
    sweep = commands.add_parser("sweep", help="make every run of a plan; goes on where it was stopped")
    sweep.add_argument("plan", type=Path, metavar="PLAN.toml")
    sweep.add_argument("--reference", metavar="GROUP", help="speed-ups are over this (async-random, else the first)")
    _add_work(sweep, "runs/PLAN")
    finish(sweep, _sweep)

    compare = commands.add_parser("compare", help="which method is fastest? All of them on one task, several seeds")
    compare.add_argument("--task", help="what is learnt (`async-hfl tasks`)")
    compare.add_argument("--methods", metavar="A,B,…", help="default: all; semi-async with three periods")
    compare.add_argument("--network", help="where (`async-hfl networks`)")
    compare.add_argument("--preset", help="bandwidth preset: tight, paper or authors")
    compare.add_argument("--seeds", default="3", metavar="N", help="how many (3), or which: 1,2,5")
    compare.add_argument("--target", type=float, metavar="T", help="the metric to reach (default: the task's)")
    compare.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    compare.add_argument("--reference", metavar="METHOD", help="speed-ups are over this (async-random, else the first)")
    _add_work(compare, "runs/compare-TASK")
    finish(compare, _compare)

    paper = commands.add_parser("paper", help="a table or figure of the Async-HFL paper, with its own figures beside")
    paper.add_argument("name", metavar="NAME", help="as `async-hfl paper list` has it")
    paper.add_argument("--quick", action="store_true", help="a small version: minutes on a laptop")
    paper.add_argument("--preset", default="paper", help="bandwidth: paper (default), authors or tight")
    paper.add_argument("--network", default="nycmesh-paper", help="nycmesh-paper (default) or nycmesh")
    paper.add_argument("--tasks", metavar="A,B,…", help="default: as the paper has it")
    paper.add_argument("--seeds", metavar="N", help="how many, or which: 1,2,5 (default: as the paper has it)")
    paper.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    paper.add_argument("--runs", nargs="+", type=Path, metavar="RUN", help="fig8, fig9: draw these runs, simulate none")
    paper.add_argument(
        "--rounds", type=int, metavar="N", help="fig8, fig9: cloud rounds (30), synchronous methods a tenth of them"
    )
    paper.add_argument("--deployed", action="store_true", help="fig8, fig9: by real processes on this machine, in turn")
    paper.add_argument(
        "--time-factor", type=float, metavar="F", help="with --deployed: F times as fast as the testbed (10)"
    )
    _add_work(paper, "runs/paper")
    finish(paper, _paper)


def _add_work(parser: argparse.ArgumentParser, out: str) -> None:
    """Who does the work, for how long, and where it goes."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"where runs and tables go ({out}); run again to go on")
    parser.add_argument("--on", metavar="WHERE", default="processes", help="processes (default), ray, ray://HOST:PORT")
    parser.add_argument("--processes", type=int, metavar="P", help="workers (default: one a core; on GPUs a few each)")
    parser.add_argument("--together", type=int, metavar="K", help="runs that share one engine in a worker (GPU: 6)")
    parser.add_argument("--limit-minutes", type=float, metavar="M", help="then checkpoint and stop, to be resumed")


def _sweep(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparison.comparison import compare
    from async_hfl.experiments.comparison.report import comparison_report
    from async_hfl.experiments.plans.plan import read_plan
    from async_hfl.experiments.sweeps.folder import SweepFolder

    plan = read_plan(options.plan)
    folder = SweepFolder(options.out or Path("runs") / plan.name)
    swept = _work(options, plan, folder)
    panels = compare(plan.runs, folder, options.reference)
    report = comparison_report(f"async-hfl sweep: {plan.name}", panels, f"async-hfl sweep {options.plan}")
    return _told(options, plan, swept, report, {"panels": [panel.as_json() for panel in panels]})


def _compare(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparison.comparison import compare
    from async_hfl.experiments.comparison.plan import METHODS, comparison_plan, seeds_of
    from async_hfl.experiments.comparison.report import comparison_report
    from async_hfl.experiments.sweeps.folder import SweepFolder

    target = [] if options.target is None else [f"task.target={options.target!r}"]
    methods = METHODS if options.methods is None else [name.strip() for name in options.methods.split(",")]
    name = f"compare-{Path(options.task.rpartition(':')[0] or options.task).stem if options.task else 'digits'}"
    plan = comparison_plan(
        name,
        methods,
        seeds_of(options.seeds),
        task=options.task,
        network=options.network,
        preset=options.preset,
        overrides=[*options.overrides, *target],
    )
    folder = SweepFolder(options.out or Path("runs") / name)
    swept = _work(options, plan, folder)
    panels = compare(plan.runs, folder, options.reference)
    report = comparison_report(
        f"async-hfl compare: {plan.runs[0].task}", panels, _command(options, "async-hfl compare")
    )
    return _told(options, plan, swept, report, {"panels": [panel.as_json() for panel in panels]})


def _paper(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparison.plan import seeds_of
    from async_hfl.experiments.paper.catalogue import CATALOGUE, find
    from async_hfl.experiments.paper.entry import NETWORKS, PRESETS, Asked
    from async_hfl.experiments.plans.plan import Plan
    from async_hfl.experiments.sweeps.folder import SweepFolder

    if options.name == "list":
        rows = [{"name": e.name, "title": e.title, "quick": e.quick} for e in CATALOGUE.values()]
        if options.json:
            print_json(rows)
        else:
            for row in rows:
                print(f"{row['name']:<13} {row['title']}\n{'':<13} --quick: {row['quick']}")
        return 0
    entry = find(options.name)
    for key, known in (("preset", PRESETS), ("network", NETWORKS)):
        if getattr(options, key) not in known:
            raise UserError(f"--{key} {getattr(options, key)}: for the paper there are {', '.join(known)}")
    if options.runs and entry.name not in ("fig8", "fig9"):
        raise UserError(f"--runs: {entry.name} is simulated; only fig8 and fig9 can be drawn from runs of your own")
    if options.rounds is not None and (entry.name not in ("fig8", "fig9") or options.rounds < 1):
        raise UserError(f"--rounds {options.rounds}: at least 1, and only fig8 and fig9 stop by rounds")
    factor = _time_factor(options, entry.name)
    folder = SweepFolder(options.out or Path("runs") / "paper")
    kind = ("-deployed" if factor is not None else "") + ("-quick" if options.quick else "")
    asked = Asked(
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
    return _told(options, plan, swept, entry.draw(asked, plan, folder), {}, asked.out)


def _time_factor(options: argparse.Namespace, entry: str) -> float | None:
    """None: simulated."""
    if not options.deployed:
        if options.time_factor is not None:
            raise UserError("--time-factor: only real processes have one; say --deployed, too")
        return None
    if entry not in ("fig8", "fig9") or options.runs:
        raise UserError("--deployed: of fig8 and fig9, and not of runs that are there (--runs)")
    factor: float = _TIME_FACTOR if options.time_factor is None else options.time_factor
    if not 1 <= factor < float("inf"):
        raise UserError(f"--time-factor {factor:g}: must be at least 1")
    return factor


def _command(options: argparse.Namespace, command: str) -> str:
    """What to type to get this again."""
    parts = [command]
    for key in ("task", "tasks", "methods", "network", "preset", "seeds", "rounds", "target", "reference"):
        value = getattr(options, key, None)
        if value is not None:
            parts.append(f"--{key} {value}")
    if getattr(options, "deployed", False):
        parts.append(f"--deployed --time-factor {options.time_factor or _TIME_FACTOR:g}")
    return " ".join([*parts, *(f"--set {text}" for text in options.overrides)])


def _work(options: argparse.Namespace, plan: Plan, folder: SweepFolder, time_factor: float | None = None) -> Swept:
    """With a time factor: by real processes."""
    from async_hfl.experiments.comparison.comparison import check_reference
    from async_hfl.experiments.sweeps.sweep import sweep
    from async_hfl.experiments.sweeps.view import SweepView

    check_reference(plan.runs, getattr(options, "reference", None))
    if options.limit_minutes is not None and not options.limit_minutes > 0:
        raise UserError(f"--limit-minutes {options.limit_minutes:g}: must be more than 0")
    limit_s = None if options.limit_minutes is None else options.limit_minutes * 60
    with SweepView(plan.name, quiet=options.json, panels=len({run.panel for run in plan.runs}) > 1) as view:
        if time_factor is not None:
            from async_hfl.experiments.paper.deployed import maker
            from async_hfl.experiments.sweeps.cluster_runs import deploy

            return deploy(plan.runs, folder, maker(folder, time_factor), view, limit_s=limit_s)
        crew = _crew(options, folder)
        return sweep(plan.runs, folder, crew, view, limit_s=limit_s)


def _crew(options: argparse.Namespace, folder: SweepFolder) -> WorkerPool:
    from async_hfl.experiments.sweeps.process_workers import ProcessPool

    if options.on == "processes":
        return ProcessPool(folder.path, options.processes, options.together)
    if options.on == "ray" or options.on.startswith("ray://"):
        from async_hfl.experiments.sweeps.ray_workers import RayPool

        address = None if options.on == "ray" else options.on
        return RayPool(folder.path, address, options.processes, options.together)
    raise UserError(f"--on {options.on}: there are processes, ray (on this machine) and ray://HOST:PORT")


def _told(
    options: argparse.Namespace,
    plan: Plan,
    swept: Swept,
    report: Report,
    extra: dict[str, Any],
    out: Path | None = None,
) -> int:
    """Files, tables, the last line; and the exit code."""
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
            why = {"limit": "time is up", "interrupted": "interrupted", "": "not done"}[swept.stopped]
            left = f"{why}: {swept.left} of {swept.total} runs left; the same command goes on with them"
            console.print(left, style="yellow", markup=False, soft_wrap=True)
    if swept.failed:
        reasons = list(dict.fromkeys(swept.failed.values()))
        said = f"{len(swept.failed)} of {swept.total} runs failed: {reasons[0]}"
        more = f"; and {len(reasons) - 1} other reasons in {swept.folder.path / 'failures'}" if reasons[1:] else ""
        return complain(said + more, 2 if swept.users_fault else 1)
    return 130 if swept.stopped == "interrupted" else 0
