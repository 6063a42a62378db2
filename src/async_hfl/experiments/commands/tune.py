"""`tune`: the best settings of methods, chosen on seeds that are not reported, as one call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.text import Text

from async_hfl.api.arguments import Network, Task, named
from async_hfl.assembly.settings.overrides import Overrides
from async_hfl.assembly.user_code.loading import short_name
from async_hfl.core.errors import InternalError, UserError
from async_hfl.experiments.commands.work import Work, make_plan_runs
from async_hfl.experiments.comparison.plan import METHODS, names_from
from async_hfl.experiments.plans.contender import Contender, contenders
from async_hfl.experiments.plans.plan import Plan, read_contenders
from async_hfl.experiments.results.sources import Results
from async_hfl.experiments.sweeps.sweep import SweepResult
from async_hfl.experiments.tuning.campaign import Problem, Tuning
from async_hfl.experiments.tuning.campaign import tune as tune_all
from async_hfl.experiments.tuning.summary import tuning_table
from async_hfl.experiments.tuning.tuning_file import Tunings, check_output, read_tunings, write_tunings
from async_hfl.reports.tables.table import Table, as_rich
from async_hfl.reports.terminal.notebook import as_html, in_notebook

SEEDS, POINTS = (91, 92), 12


@dataclass(slots=True, repr=False)
class TuningRun:
    """The tuning of several methods and its progress. In a notebook it prints itself as a table."""

    name: str
    output: Path
    tunings: list[Tuning]
    digest: str | None = None
    """That of the tuning file; None if the tuning is not complete."""
    made: int = 0
    known: int = 0
    """Runs that were made, and those that were there."""
    last: SweepResult | None = field(default=None)

    def __repr__(self) -> str:
        state = f"digest {self.digest}" if self.complete else f"{self.why()}; the same call continues"
        return f"<Tuning {self.output}: {state}>"

    def _repr_html_(self) -> str:
        return as_html(as_rich(self.table) if self.complete else Text(repr(self)))

    @property
    def complete(self) -> bool:
        return self.digest is not None

    @property
    def table(self) -> Table:
        """The chosen settings, and the time to the level with them and with the packaged ones."""
        return tuning_table(self.tunings)

    def why(self) -> str:
        """Return in words why the tuning is not complete."""
        stopped = "time limit reached" if self.last is not None and self.last.stopped == "limit" else "interrupted"
        return f"{stopped}: {self.made + self.known} runs are complete"


def tune(
    output: str | Path,
    *,
    task: Task | None = None,
    network: Network | None = None,
    preset: str | None = None,
    methods: str | Sequence[str] = (),
    plan: str | Path | None = None,
    equipped: bool = False,
    seeds: Sequence[int] = SEEDS,
    points: int = POINTS,
    overrides: Overrides = (),
    out: str | Path | None = None,
    on: str | None = None,
    processes: int | None = None,
    together: int | None = None,
    limit_minutes: float | None = None,
    rows: str | Path | None = None,
    discard_runs: bool = False,
    progress: bool | None = None,
) -> TuningRun:
    """Choose the settings of methods (default: all) on seeds that are not reported: the command `async-hfl tune`.

    `output` is the tuning file, which `compare(tuning=...)` takes. Called again after an interruption it continues.
    """
    given = named(task, network, overrides)
    problem = Problem(given.task, given.network, preset, tuple(given.overrides), tuple(seeds))
    work = Work.of(out, on, processes, together, limit_minutes, rows, discard_runs, ())
    quiet = not (in_notebook() if progress is None else progress)
    file = None if plan is None else Path(plan)
    made = tuned(problem, Path(output), work, names_from(methods), file, points, equipped=equipped, quiet=quiet)
    if made.last is not None and made.last.failed:
        raise (UserError if made.last.users_fault else InternalError)(next(iter(made.last.failed.values())))
    return made


def tuned(
    problem: Problem,
    output: Path,
    work: Work,
    methods: Sequence[str],
    plan: Path | None,
    points: int,
    *,
    equipped: bool,
    quiet: bool,
) -> TuningRun:
    """Tune the methods, or those of a plan, and write the tuning file unless something stopped it."""
    check_output(output)
    former = read_tunings(output) if output.exists() else Tunings(choices=[])
    if points < 1:
        raise UserError(f"--points {points}: must be at least 1")
    if plan is not None:
        _check_alone(problem, methods, equipped=equipped)
        name, tunings = f"tune-{plan.stem}", _of_plan(plan, problem, points)
    else:
        name = f"tune-{short_name(problem.task) if problem.task else 'digits'}"
        wanted = contenders(methods or METHODS, problem.task, problem.preset, problem.overrides, with_equipped=equipped)
        tunings = [Tuning(one, problem, points) for one in wanted]
    run = TuningRun(name, output, tunings)
    if tune_all(tunings, name, _Steps(run, work, quiet=quiet).make):
        choices = former.with_choices([one.choice() for one in tunings])
        write_tunings(output, choices)
        run.digest = choices.digest
    return run


def _check_alone(problem: Problem, methods: Sequence[str], *, equipped: bool) -> None:
    given = {"task": problem.task, "network": problem.network, "preset": problem.preset}
    for key, value in {**given, "methods": methods, "equipped": equipped, "set": problem.overrides}.items():
        if value:
            raise UserError(f"--{key}: the plan says it; leave it out with --plan")


def _of_plan(plan: Path, problem: Problem, points: int) -> list[Tuning]:
    """Return the searches for the methods and labels of a plan."""
    found = []
    for run in read_contenders(plan, problem.seeds[0]):
        own = Problem(run.task, run.network, run.preset, (), problem.seeds)
        found.append(Tuning(Contender(run.group, run.method, run.overrides, run.role), own, points))
    return found


class _Steps:
    """The sweeps of a tuning, one for each step, in one folder and with one rows file."""

    def __init__(self, run: TuningRun, work: Work, *, quiet: bool) -> None:
        self._run, self._quiet = run, quiet
        self._folder = work.folder(run.name).make()
        self._work = replace(work, rows=work.rows or self._folder.path / "rows.jsonl")
        limit = work.limit_s
        self._deadline = None if limit is None else time.monotonic() + limit

    def make(self, plan: Plan) -> Results | None:
        left = None if self._deadline is None else max(1e-9, self._deadline - time.monotonic()) / 60
        work, run = replace(self._work, limit_minutes=left), self._run
        run.last, results = make_plan_runs(plan, self._folder, work, quiet=self._quiet)
        run.made, run.known = run.made + run.last.done, run.known + run.last.already_complete
        return results if run.last.complete else None
