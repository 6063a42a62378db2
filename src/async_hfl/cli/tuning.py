"""The tuning of methods, and the comparison of one method with its best rivals from kept results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_hfl.cli.common import (
    Commands,
    add_choices,
    add_command,
    add_settings,
    complain,
    names_in,
    not_writable,
    print_json,
)
from async_hfl.cli.work import add_work, work_of

if TYPE_CHECKING:  # imported when a command runs, so that `async-hfl --help` starts fast
    from async_hfl.experiments.commands.tune import TuningRun

_POINTS = 12
_SEEDS = "91,92"


def add_commands(commands: Commands) -> None:
    tune = add_command(commands, "tune", _tune, "choose the settings of methods on seeds that are not reported")
    add_choices(tune, "task", "network", "preset")
    tune.add_argument("--methods", metavar="A,B,…", help="default: all")
    plan = "tune the methods and labels of a plan, beginning with their settings there"
    tune.add_argument("--plan", type=Path, metavar="PLAN.toml", help=plan)
    equipped = "tune each method once more with int8 and momentum, if it has not got them"
    tune.add_argument("--equipped", action="store_true", help=equipped)
    tune.add_argument("--seeds", default=_SEEDS, metavar="A,B", help="the seeds of the tuning")
    points = "the most points for each method, of which each is a run with every seed"
    tune.add_argument("--points", type=int, default=_POINTS, metavar="N", help=points)
    output = "the tuning file, .toml or .json; choices for other tasks in it are kept"
    tune.add_argument("--output", type=Path, metavar="FILE", required=True, help=output)
    add_settings(tune, seed=False)
    add_work(tune, "runs/tune-TASK")

    rivals = add_command(commands, "rivals", _rivals, "compare one method with its best rivals, from kept results")
    rivals.add_argument("rows", nargs="+", type=Path, metavar="ROWS", help="files that --rows wrote")
    rivals.add_argument("--method", default="async-hfl-plus", help="the method to compare with its rivals")
    rivals.add_argument("--markdown", type=Path, metavar="FILE", help="write the page to this file")


def _tune(options: argparse.Namespace) -> int:
    from async_hfl.experiments.commands.tune import tuned
    from async_hfl.experiments.comparison.plan import listed_seeds
    from async_hfl.experiments.tuning.campaign import Problem

    seeds = tuple(listed_seeds(options.seeds))
    problem = Problem(options.task, options.network, options.preset, tuple(options.overrides), seeds)
    made = tuned(
        problem,
        options.output,
        work_of(options),
        names_in(options.methods),
        options.plan,
        options.points,
        equipped=options.equipped,
        quiet=options.json,
    )
    return _told(options, made) if made.complete else _told_why(options, made)


def _told_why(options: argparse.Namespace, made: TuningRun) -> int:
    """Say why the tuning is not complete, and return the exit code."""
    last = made.last
    assert last is not None
    if last.failed:
        return complain(next(iter(last.failed.values())), 2 if last.users_fault else 1)
    if options.json:
        print_json({"complete": False, "stopped": last.stopped, "made": made.made, "were_there": made.known})
    else:
        print(f"{made.why()}; the same command continues")
    return 130 if last.stopped == "interrupted" else 0


def _told(options: argparse.Namespace, made: TuningRun) -> int:
    from async_hfl.experiments.tuning.summary import as_json
    from async_hfl.reports.tables.table import as_rich
    from async_hfl.reports.terminal.console import console as make_console

    if options.json:
        choices = [as_json(one) for one in made.tunings]
        said: dict[str, Any] = {"output": str(made.output), "digest": made.digest, "choices": choices}
        print_json({"complete": True, **said, "made": made.made, "were_there": made.known})
        return 0
    make_console().print(as_rich(made.table))
    print(f"{made.output} (digest {made.digest})")
    return 0


def _rivals(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparison.report import as_json, markdown, narrow
    from async_hfl.experiments.results.rows_file import read_rows
    from async_hfl.experiments.rivals.page import rivals_page
    from async_hfl.reports.tables.table import as_rich
    from async_hfl.reports.terminal.console import console as make_console

    command = " ".join(["async-hfl rivals", *map(str, options.rows), f"--method {options.method}"])
    page = rivals_page(list(read_rows(options.rows)), options.method, command)
    if options.markdown is not None:
        try:
            options.markdown.write_text(markdown(page), encoding="utf-8")
        except OSError as error:
            raise not_writable(options.markdown, error) from error
    if options.json:
        print_json({"tables": [as_json(table) for table in page.tables]})
        return 0
    console = make_console()
    for table in page.tables if options.markdown is None else page.tables[:1]:
        console.print(as_rich(narrow(table)))
    if options.markdown is not None:
        print(f"page: {options.markdown}")
    return 0
