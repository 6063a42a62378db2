"""Many runs: sweeps over a plan, comparisons of methods, the tables and figures of the paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_hfl.cli.common import (
    Commands,
    add_choices,
    add_command,
    add_settings,
    answer,
    complain,
    names_in,
    print_json,
)
from async_hfl.cli.work import add_work, work_of

if TYPE_CHECKING:  # imported when a command runs, so that `async-hfl --help` starts fast
    from async_hfl.experiments.commands.experiment import Experiment

_TIME_FACTOR = 10.0
_REPEATED = (
    *("task", "tasks", "methods", "network", "preset", "tuning", "untuned", "seeds", "rounds", "target", "reference"),
)
"""The options that the command in a report has."""
_REFERENCE = "speed-ups are relative to this one (default: async-random if present, else the first)"


def add_commands(commands: Commands) -> None:
    sweep = add_command(commands, "sweep", _sweep, "make the runs of a plan that are not complete yet")
    sweep.add_argument("plan", type=Path, metavar="PLAN.toml", help="a plan (docs/experiments.md)")
    sweep.add_argument("--reference", metavar="GROUP", help=_REFERENCE)
    add_work(sweep, "runs/PLAN")
    _add_results(sweep)

    compare = add_command(commands, "compare", _compare, "compare methods on one task with several seeds")
    add_choices(compare, "task", "network", "preset")
    compare.add_argument("--methods", metavar="A,B,…", help="default: all; semi-async runs with three periods")
    equipped = "compare each method once more with int8 and momentum, if it has not got them"
    compare.add_argument("--equipped", action="store_true", help=equipped)
    _add_tuning(compare)
    untuned = "with --tuning: compare these methods once more with their packaged settings"
    compare.add_argument("--untuned", metavar="A,B,…", help=untuned)
    compare.add_argument("--seeds", default="3", metavar="N", help="the number of seeds, or a list: 1,2,5")
    compare.add_argument("--target", type=float, metavar="T", help="the metric to reach (default: the task's target)")
    add_settings(compare, seed=False)
    compare.add_argument("--reference", metavar="METHOD", help=_REFERENCE)
    add_work(compare, "runs/compare-TASK")
    _add_results(compare)

    paper = add_command(commands, "paper", _paper, "reproduce a table or figure of the Async-HFL paper")
    paper.add_argument("name", metavar="NAME", help="a name from `async-hfl paper list`")
    paper.add_argument("--quick", action="store_true", help="a small version that takes minutes on a laptop")
    paper.add_argument("--preset", default="paper", help="the bandwidth of gateways: paper, authors or tight")
    paper.add_argument("--network", default="nycmesh-paper", help="nycmesh-paper or nycmesh")
    paper.add_argument("--tasks", metavar="A,B,…", help="the tasks (default: those of the paper)")
    paper.add_argument("--seeds", metavar="N", help="the number of seeds, or a list: 1,2,5 (default: depends on NAME)")
    _add_tuning(paper)
    add_settings(paper, seed=False)
    paper.add_argument("--runs", nargs="+", type=Path, metavar="RUN", help="fig8, fig9: draw these runs, make none")
    rounds = "fig8, fig9: cloud epochs (default: 30); synchronous methods make a tenth of them"
    paper.add_argument("--rounds", type=int, metavar="N", help=rounds)
    paper.add_argument("--deployed", action="store_true", help="fig8, fig9: run real processes on this machine")
    factor = "with --deployed: run F times as fast as the paper's deployment (default: 10)"
    paper.add_argument("--time-factor", type=float, metavar="F", help=factor)
    add_work(paper, "runs/paper")
    _add_results(paper)


def _add_tuning(parser: argparse.ArgumentParser) -> None:
    text = "use the settings in this file, which `async-hfl tune` wrote (packaged: the file of this version)"
    parser.add_argument("--tuning", metavar="FILE", help=text)


def _add_results(parser: argparse.ArgumentParser) -> None:
    kept = "make no run: write tables and figures from results that --rows kept"
    parser.add_argument("--from-results", nargs="+", type=Path, metavar="FILE", help=kept)


def _sweep(options: argparse.Namespace) -> int:
    from async_hfl.experiments.commands.sweep import compared
    from async_hfl.experiments.plans.plan import read_plan

    plan = read_plan(options.plan)
    title, command = f"async-hfl sweep: {plan.name}", f"async-hfl sweep {options.plan}"
    made = compared(plan, work_of(options), title, command, reference=options.reference, quiet=options.json)
    return _finish_comparison(options, made)


def _compare(options: argparse.Namespace) -> int:
    from async_hfl.experiments.commands.compare import compare_plan, title_of
    from async_hfl.experiments.commands.sweep import compared
    from async_hfl.experiments.comparison.plan import seeds_of

    plan = compare_plan(
        task=options.task,
        network=options.network,
        preset=options.preset,
        methods=names_in(options.methods) or None,
        equipped=options.equipped,
        tuning=options.tuning,
        untuned=names_in(options.untuned),
        seeds=seeds_of(options.seeds),
        target=options.target,
        overrides=options.overrides,
    )
    made = compared(
        plan,
        work_of(options),
        title_of(plan),
        _command(options, "async-hfl compare"),
        reference=options.reference,
        headline=options.target is None,
        quiet=options.json,
    )
    return _finish_comparison(options, made)


def _paper(options: argparse.Namespace) -> int:
    from async_hfl.experiments.commands.paper import PaperCall, reproduced
    from async_hfl.experiments.comparison.plan import seeds_of
    from async_hfl.experiments.paper.catalogue import CATALOGUE

    if options.name == "list":
        rows = [{"name": e.name, "title": e.title, "quick": e.quick} for e in CATALOGUE.values()]
        lines = [f"{row['name']:<13} {row['title']}\n{'':<13} --quick: {row['quick']}" for row in rows]
        return answer(options, rows, lines)
    asked = PaperCall(
        name=options.name,
        quick=options.quick,
        preset=options.preset,
        network=options.network,
        tasks=tuple(names_in(options.tasks)),
        seeds=() if options.seeds is None else tuple(seeds_of(options.seeds)),
        tuning=options.tuning,
        overrides=tuple(options.overrides),
        runs=tuple(options.runs or ()),
        rounds=options.rounds,
        deployed=options.deployed,
        time_factor=options.time_factor,
    )
    command = _command(options, f"async-hfl paper {options.name}{' --quick' if options.quick else ''}")
    return _finish(options, reproduced(asked, work_of(options), command, quiet=options.json), {})


def _command(options: argparse.Namespace, command: str) -> str:
    """Return the command line that makes this report again."""
    parts = [command]
    for key in _REPEATED:
        value = getattr(options, key, None)
        if value is not None:
            parts.append(f"--{key} {value}")
    if getattr(options, "deployed", False):
        parts.append(f"--deployed --time-factor {options.time_factor or _TIME_FACTOR:g}")
    if getattr(options, "equipped", False):
        parts.append("--equipped")
    return " ".join([*parts, *(f"--set {text}" for text in options.overrides)])


def _finish_comparison(options: argparse.Namespace, made: Experiment) -> int:
    return _finish(options, made, {"panels": [panel.as_json() for panel in made.panels]})


def _finish(options: argparse.Namespace, made: Experiment, extra: dict[str, Any]) -> int:
    """Print the tables, and return the exit code."""
    from async_hfl.experiments.comparison.report import as_json
    from async_hfl.reports.figures.pictures import NO_PICTURES, can_draw
    from async_hfl.reports.tables.table import as_rich
    from async_hfl.reports.terminal.console import console as make_console

    if options.json:
        tables = [as_json(table) for table in made.tables]
        print_json({"name": made.name, **made.swept.as_json(), "files": made.files, "tables": tables, **extra})
    else:
        console = make_console()
        for table in made.tables:
            console.print(as_rich(table))
        for what, file in made.files.items():
            console.print(f"{what:<9} {file}", markup=False, soft_wrap=True)
        if not can_draw():
            console.print(NO_PICTURES, markup=False, soft_wrap=True)
        if left := made.left("the same command"):
            console.print(left, style="yellow", markup=False, soft_wrap=True)
    if made.swept.failed:
        return complain(made.failures(), 2 if made.swept.users_fault else 1)
    return 130 if made.swept.stopped == "interrupted" else 0
