"""The tuning of several methods: their searches go on in step, and each step is one sweep over the points of all.

The state is in the results of the sweeps alone. The same command after an interruption repeats the searches, finds the
results of the former steps and goes on.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from async_hfl.assembly.runs.provenance import versions
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import UserError
from async_hfl.experiments.plans.contender import Contender
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.results.measured import Measured
from async_hfl.experiments.results.sources import Results
from async_hfl.experiments.tuning.ranking import Score, level_of, rank, score
from async_hfl.experiments.tuning.search import Point, Search, search
from async_hfl.experiments.tuning.tunables import Tunable, Value, tunables_of
from async_hfl.experiments.tuning.tuned import setting_texts
from async_hfl.experiments.tuning.tuning_file import Choice, Place, plain


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem that the methods are tuned for."""

    task: str | None
    network: str | None
    preset: str | None
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]


class Tuning:
    """The search for the settings of one contender, with the results of its points."""

    def __init__(self, one: Contender, problem: Problem, points: int) -> None:
        self.contender, self._problem = one, problem
        overrides = [*one.overrides, *problem.overrides]
        composed = compose(
            task=problem.task, network=problem.network, preset=problem.preset, method=one.method, overrides=overrides
        )
        fixed = [text.partition("=")[0].strip() for text in problem.overrides]
        self._target = composed.settings.task.target
        self._usual: dict[Tunable, Value] = tunables_of(composed.settings, fixed)
        if not self._usual:
            raise UserError(f"{one.name}: --set gives all settings that could be tuned; leave one of them out")
        self.results: dict[Point, Sequence[Measured]] = {}
        self.best: Point | None = None
        """None until the search has ended."""
        self._search: Search = search(len(self._usual), points, self._allowed)
        self.batch: list[Point] = next(self._search)

    def settings(self, point: Point) -> dict[str, Value]:
        """Return the values of the settings at a point."""
        steps = zip(self._usual.items(), point, strict=True)
        found = {one.setting: one.value(usual, by) for (one, usual), by in steps}
        return {key: value for key, value in found.items() if value is not None}

    def runs(self, point: Point) -> list[PlannedRun]:
        problem, settings = self._problem, setting_texts(self.settings(point))
        return [
            planned(
                task=problem.task,
                network=problem.network,
                preset=problem.preset,
                method=self.contender.method,
                seed=seed,
                overrides=[*self.contender.overrides, *problem.overrides, *settings],
                label=self.contender.label,
                variant=", ".join(settings),
                role="tuning",
            )
            for seed in problem.seeds
        ]

    def take(self, results: dict[Point, Sequence[Measured]]) -> None:
        """Take the results of the batch, and ask for the next one."""
        self.results |= results
        try:
            self.batch = self._search.send(partial(rank, self.results, self._target))
        except StopIteration as end:
            self.best, self.batch = end.value, []

    def score(self, point: Point) -> Score | None:
        return score(self.results, point, self._target)

    @property
    def level(self) -> float | None:
        return level_of(self.results, self._target)

    @property
    def packaged(self) -> Point:
        """The point of the packaged settings."""
        return (0.0,) * len(self._usual)

    def choice(self) -> Choice:
        """Return the result of a search that has ended."""
        assert self.best is not None
        runs, settings = self.runs(self.best), self.settings(self.best)
        run = runs[0]
        place = Place.of(run.task, run.network, run.preset)
        return Choice(
            **place._asdict(),
            name=self.contender.name,
            method=self.contender.method,
            settings=settings,
            seeds=list(self._problem.seeds),
            digests=[run.digest for run in runs],
            points=len(self.results),
            level=self.level,
            under=plain({key: value for key, value in run.settings.items() if key not in settings}),
            made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            version=versions()["async-hfl"],
        )

    def _allowed(self, point: Point) -> bool:
        return len(self.settings(point)) == len(point)


Sweep = Callable[[Plan], Results | None]
"""Makes the runs of a plan and returns all results; None if the sweep was interrupted or a run failed."""


def tune(tunings: Sequence[Tuning], name: str, sweep: Sweep) -> bool:
    """Make all runs; return False if they were interrupted."""
    step = 0
    while active := [one for one in tunings if one.best is None]:
        step += 1
        plans = [(one, {point: one.runs(point) for point in one.batch}) for one in active]
        runs = [run for _, points in plans for mine in points.values() for run in mine]
        results = sweep(Plan(f"{name}, step {step}", tuple(runs)))
        if results is None:
            return False
        for one, points in plans:
            one.take({point: _measured(mine, results) for point, mine in points.items()})
    return True


def _measured(runs: Sequence[PlannedRun], results: Results) -> list[Measured]:
    found = [results.of(run) for run in runs]
    assert None not in found, "the sweep is complete"
    return [one for one in found if one is not None]
