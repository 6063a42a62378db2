"""The tuning of methods, and the comparison of one method with its best rivals from kept results."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
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
from async_hfl.core.errors import UserError

if TYPE_CHECKING:  # imported when a command runs, so that `async-hfl --help` starts fast
    from async_hfl.experiments.plans.plan import Plan
    from async_hfl.experiments.results.sources import Results
    from async_hfl.experiments.sweeps.sweep import SweepResult
    from async_hfl.experiments.tuning.campaign import Tuning

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
    from async_hfl.experiments.tuning.campaign import tune
    from async_hfl.experiments.tuning.tuning_file import Tunings, check_output, read_tunings, write_tunings

    check_output(options.output)
    former = read_tunings(options.output) if options.output.exists() else Tunings(choices=[])
    if options.points < 1:
        raise UserError(f"--points {options.points}: must be at least 1")
    if options.plan is not None:
        name, tunings = f"tune-{options.plan.stem}", _tunings_of_plan(options)
    else:
        task = Path(options.task.rpartition(":")[0] or options.task).stem if options.task else "digits"
        name, tunings = f"tune-{task}", _tunings(options)
    steps = _Steps(options, name)
    if not tune(tunings, name, steps.make):
        return steps.told_why()
    tuned = former.with_choices([one.choice() for one in tunings])
    write_tunings(options.output, tuned)
    return _told(options, tunings, steps, tuned.digest)


def _tunings(options: argparse.Namespace) -> list[Tuning]:
    """Return the searches for the methods that the options name."""
    from async_hfl.experiments.comparison.plan import METHODS, listed_seeds
    from async_hfl.experiments.plans.contender import contenders
    from async_hfl.experiments.tuning.campaign import Problem, Tuning

    problem = Problem(
        task=options.task,
        network=options.network,
        preset=options.preset,
        overrides=tuple(options.overrides),
        seeds=tuple(listed_seeds(options.seeds)),
    )
    methods = names_in(options.methods) or METHODS
    wanted = contenders(methods, options.task, options.preset, options.overrides, with_equipped=options.equipped)
    return [Tuning(one, problem, options.points) for one in wanted]


def _tunings_of_plan(options: argparse.Namespace) -> list[Tuning]:
    """Return the searches for the methods and labels of --plan."""
    from async_hfl.experiments.comparison.plan import listed_seeds
    from async_hfl.experiments.plans.contender import Contender
    from async_hfl.experiments.plans.plan import read_contenders
    from async_hfl.experiments.tuning.campaign import Problem, Tuning

    for key in ("task", "network", "preset", "methods", "equipped", "overrides"):
        if getattr(options, key):
            raise UserError(f"--{'set' if key == 'overrides' else key}: the plan says it; leave it out with --plan")
    seeds = tuple(listed_seeds(options.seeds))
    found = []
    for run in read_contenders(options.plan, seeds[0]):
        problem = Problem(run.task, run.network, run.preset, (), seeds)
        one = Contender(run.group, run.method, run.overrides, run.role)
        found.append(Tuning(one, problem, options.points))
    return found


class _Steps:
    """The sweeps of a tuning, one for each step, in one folder and with one rows file."""

    def __init__(self, options: argparse.Namespace, name: str) -> None:
        self._options, self.name, self._work = options, name, work_of(options)
        self._folder = self._work.folder(name).make()
        self._work = replace(self._work, rows=self._work.rows or self._folder.path / "rows.jsonl")
        limit = self._work.limit_s
        self._deadline = None if limit is None else time.monotonic() + limit
        self.made, self.known = 0, 0
        self._last: SweepResult | None = None

    def make(self, plan: Plan) -> Results | None:
        from async_hfl.experiments.commands.work import make_plan_runs

        left = None if self._deadline is None else max(1e-9, self._deadline - time.monotonic()) / 60
        work = replace(self._work, limit_minutes=left)
        self._last, results = make_plan_runs(plan, self._folder, work, quiet=self._options.json)
        self.made, self.known = self.made + self._last.done, self.known + self._last.already_complete
        return results if self._last.complete else None

    def told_why(self) -> int:
        """Say why the tuning is not complete, and return the exit code."""
        last = self._last
        assert last is not None
        if last.failed:
            return complain(next(iter(last.failed.values())), 2 if last.users_fault else 1)
        if self._options.json:
            print_json({"complete": False, "stopped": last.stopped, "made": self.made, "were_there": self.known})
        else:
            text = "time limit reached" if last.stopped == "limit" else "interrupted"
            print(f"{text}: {self.made + self.known} runs are complete; the same command continues")
        return 130 if last.stopped == "interrupted" else 0


def _told(options: argparse.Namespace, tunings: list[Tuning], steps: _Steps, digest: str) -> int:
    from async_hfl.experiments.tuning.summary import as_json, tuning_table
    from async_hfl.reports.tables.table import as_rich
    from async_hfl.reports.terminal.console import console as make_console

    if options.json:
        choices = [as_json(one) for one in tunings]
        said: dict[str, Any] = {"output": str(options.output), "digest": digest, "choices": choices}
        print_json({"complete": True, **said, "made": steps.made, "were_there": steps.known})
        return 0
    make_console().print(as_rich(tuning_table(tunings)))
    print(f"{options.output} (digest {digest})")
    return 0


def _rivals(options: argparse.Namespace) -> int:
    from async_hfl.experiments.comparison.report import as_json, markdown
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
    for table in page.tables:
        console.print(as_rich(table))
    return 0
