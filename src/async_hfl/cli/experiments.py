"""Many runs at once: sweeps of a plan, comparisons of methods, the paper's tables and figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_hfl.cli.common import Commands, finish, print_json
from async_hfl.core.errors import UserError

if TYPE_CHECKING:
    from async_hfl.experiments.crew import Crew
    from async_hfl.experiments.folder import SweepFolder
    from async_hfl.experiments.plan import Plan
    from async_hfl.experiments.report import Report
    from async_hfl.experiments.sweep import Swept


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


def _add_work(parser: argparse.ArgumentParser, out: str) -> None:
    """Who does the work, for how long, and where it goes."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"where runs and tables go ({out}); run again to go on")
    parser.add_argument("--on", metavar="WHERE", default="processes", help="processes (default), ray, ray://HOST:PORT")
    parser.add_argument("--processes", type=int, metavar="P", help="workers (default: one a core; on GPUs a few each)")
    parser.add_argument("--together", type=int, metavar="K", help="runs that share one engine in a worker (GPU: 6)")
    parser.add_argument("--limit-minutes", type=float, metavar="M", help="then checkpoint and stop, to be resumed")


def _sweep(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparison import compare
    from async_hfl.experiments.folder import SweepFolder
    from async_hfl.experiments.plan import read_plan
    from async_hfl.experiments.report import comparison_report

    plan = read_plan(options.plan)
    folder = SweepFolder(options.out or Path("runs") / plan.name)
    swept = _work(options, plan, folder)
    panels = compare(plan.runs, folder, options.reference)
    report = comparison_report(f"async-hfl sweep: {plan.name}", panels, f"async-hfl sweep {options.plan}")
    return _told(options, plan, swept, report, {"panels": [panel.as_json() for panel in panels]})


def _compare(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparing import METHODS, comparison_plan, seeds_of
    from async_hfl.experiments.comparison import compare
    from async_hfl.experiments.folder import SweepFolder
    from async_hfl.experiments.report import comparison_report

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
    report = comparison_report(f"async-hfl compare: {plan.runs[0].task}", panels, _command(options))
    return _told(options, plan, swept, report, {"panels": [panel.as_json() for panel in panels]})


def _command(options: argparse.Namespace) -> str:
    """What to type to get this again."""
    parts = ["async-hfl compare"]
    for key in ("task", "methods", "network", "preset", "seeds", "target", "reference"):
        value = getattr(options, key)
        if value is not None:
            parts.append(f"--{key} {value}")
    return " ".join([*parts, *(f"--set {text}" for text in options.overrides)])


def _work(options: argparse.Namespace, plan: Plan, folder: SweepFolder) -> Swept:
    from async_hfl.experiments.sweep import sweep
    from async_hfl.experiments.view import SweepView

    if options.limit_minutes is not None and not options.limit_minutes > 0:
        raise UserError(f"--limit-minutes {options.limit_minutes:g}: must be more than 0")
    limit_s = None if options.limit_minutes is None else options.limit_minutes * 60
    crew = _crew(options, folder)
    with SweepView(plan.name, quiet=options.json) as view:
        return sweep(plan.runs, folder, crew, view, limit_s=limit_s)


def _crew(options: argparse.Namespace, folder: SweepFolder) -> Crew:
    from async_hfl.experiments.processes import ProcessCrew

    if options.on == "processes":
        return ProcessCrew(folder.path, options.processes, options.together)
    if options.on == "ray" or options.on.startswith("ray://"):
        from async_hfl.experiments.on_ray import RayCrew

        address = None if options.on == "ray" else options.on
        return RayCrew(folder.path, address, options.processes, options.together)
    raise UserError(f"--on {options.on}: there are processes, ray (on this machine) and ray://HOST:PORT")


def _told(options: argparse.Namespace, plan: Plan, swept: Swept, report: Report, extra: dict[str, Any]) -> int:
    """Files, tables, the last line; and the exit code."""
    from rich.console import Console

    from async_hfl.experiments.report import write_report
    from async_hfl.reports.tables import as_rich

    files = write_report(report, swept.folder.path)
    if options.json:
        print_json({"name": plan.name, **swept.as_json(), "files": files, **extra})
    else:
        console = Console(highlight=False)
        for table in report.brief or report.page.tables:
            console.print(as_rich(table))
        for what, file in files.items():
            console.print(f"{what:<9} {file}", markup=False, soft_wrap=True)
        if not swept.complete:
            console.print(_unfinished(swept), style="yellow", markup=False, soft_wrap=True)
    if swept.failed:
        return 2 if swept.users_fault else 1
    return 130 if swept.stopped == "interrupted" else 0


def _unfinished(swept: Swept) -> str:
    parts = [f"{run}: {reason}" for run, reason in swept.failed.items()]
    if swept.left:
        why = {"limit": "time is up", "interrupted": "interrupted", "": "not done"}[swept.stopped]
        parts.append(f"{why}: {swept.left} of {swept.total} runs left; the same command goes on with them")
    return "\n".join(parts)
