"""`compare`: methods on one task with several seeds, as one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from async_hfl.api.arguments import Network, Task, named
from async_hfl.assembly.settings.overrides import Overrides, override_texts
from async_hfl.assembly.user_code.loading import short_name
from async_hfl.assembly.user_code.objects import shown
from async_hfl.core.errors import UserError
from async_hfl.experiments.commands.experiment import Experiment
from async_hfl.experiments.commands.sweep import compared
from async_hfl.experiments.commands.work import Work
from async_hfl.experiments.comparison.plan import METHODS, check_tuning, comparison_plan, names_from, seeds_from
from async_hfl.experiments.plans.contender import Contender, contenders
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.tuning.tuning_file import read_tunings
from async_hfl.reports.terminal.notebook import in_notebook

Methods = str | Sequence[str] | Mapping[str, Mapping[str, Any]]
"""Names; or settings by name: {"async-hfl": {}, "mine": {"method": "async-hfl", "gateway.aggregation": MyRule}}."""
_METHOD = "method"


def compare(
    *,
    task: Task | None = None,
    network: Network | None = None,
    preset: str | None = None,
    methods: Methods | None = None,
    equipped: bool = False,
    tuning: str | Path | None = None,
    untuned: str | Sequence[str] = (),
    seeds: int | Sequence[int] = 3,
    target: float | None = None,
    overrides: Overrides = (),
    reference: str | None = None,
    out: str | Path | None = None,
    on: str | None = None,
    processes: int | None = None,
    together: int | None = None,
    limit_minutes: float | None = None,
    rows: str | Path | None = None,
    discard_runs: bool = False,
    from_results: str | Path | Sequence[str | Path] = (),
    progress: bool | None = None,
) -> Experiment:
    """Compare methods on one task with several seeds: the command `async-hfl compare`.

    `methods` are names (default: all), or the settings of each under a name of its own; without the key `method` the
    name is that of a method. `seeds` is a number of seeds or a list. Runs with objects made in Python are made in this
    process, others by workers (`on`, `processes`). Runs that the folder `out` already has are not made again.

    >>> chosen = {"task": "null", "network": "uniform", "overrides": {"task.devices": 20, "cloud.epochs": 3}}
    >>> made = async_hfl.compare(methods=["async-hfl", "async-random"], seeds=2, on="here", **chosen)
    >>> made.frame()[["method", "seeds", "reached"]].to_dict("list")
    {'method': ['async-hfl', 'async-random'], 'seeds': [2, 2], 'reached': [0, 0]}
    """
    plan = compare_plan(
        task=task,
        network=network,
        preset=preset,
        methods=methods,
        equipped=equipped,
        tuning=tuning,
        untuned=names_from(untuned),
        seeds=seeds_from(seeds),
        target=target,
        overrides=overrides,
    )
    work = Work.of(out, on, processes, together, limit_minutes, rows, discard_runs, from_results)
    made = compared(
        plan,
        work,
        title_of(plan),
        "async_hfl.compare(...)",
        reference=reference,
        headline=target is None,
        quiet=not (in_notebook() if progress is None else progress),
    )
    made.check()
    return made


def compare_plan(
    *,
    task: Task | None,
    network: Network | None,
    preset: str | None,
    methods: Methods | None,
    equipped: bool,
    tuning: str | Path | None,
    untuned: Sequence[str],
    seeds: Sequence[int],
    target: float | None,
    overrides: Overrides,
) -> Plan:
    """Return the runs of a comparison. The caller keeps objects alive until they are made."""
    given = named(task, network, overrides)
    if untuned and tuning is None:
        raise UserError("--untuned: give --tuning FILE as well; without it no method is tuned")
    tunings = None if tuning is None else read_tunings(str(tuning))
    plan = comparison_plan(
        f"compare-{short_name(given.task) if given.task else 'digits'}",
        _contenders(methods, given.task, preset, given.overrides, equipped=equipped, untuned=untuned),
        seeds,
        task=given.task,
        network=given.network,
        preset=preset,
        overrides=[*given.overrides, *([] if target is None else [f"task.target={target!r}"])],
        tuning=tunings,
    )
    check_tuning(plan, tunings, str(tuning), given.overrides)
    return plan


def title_of(plan: Plan) -> str:
    return f"async-hfl compare: {shown(plan.runs[0].task)}"


def _contenders(
    methods: Methods | None,
    task: str | None,
    preset: str | None,
    overrides: Sequence[str],
    *,
    equipped: bool,
    untuned: Sequence[str],
) -> list[Contender]:
    if not isinstance(methods, Mapping):
        names = METHODS if methods is None else names_from(methods)
        return contenders(names, task, preset, overrides, with_equipped=equipped, untuned=untuned)
    if equipped:
        raise UserError("--equipped: applies to methods that are named; leave it out, or give the settings of each")
    found = []
    for name, settings in methods.items():
        own = {key: value for key, value in settings.items() if key != _METHOD}
        found.append(Contender(name, str(settings.get(_METHOD, name)), tuple(override_texts(own))))
    return found + [Contender(f"{method}, untuned", method) for method in untuned]
