"""`sweep`: the runs of a plan, as one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from async_hfl.assembly.settings.overrides import value_text
from async_hfl.assembly.user_code.objects import name_of_object
from async_hfl.core.errors import UserError
from async_hfl.experiments.commands.experiment import Experiment
from async_hfl.experiments.commands.work import Work, make_plan_runs
from async_hfl.experiments.comparison.comparison import compare as compare_groups
from async_hfl.experiments.comparison.footnotes import footnoted, tuning_notes
from async_hfl.experiments.comparison.report import comparison_report, write_report
from async_hfl.experiments.plans.plan import Plan, make_plan, read_plan
from async_hfl.reports.terminal.notebook import in_notebook

_OBJECT_LISTS = {"tasks": "task", "networks": "network"}


def sweep(
    plan: str | Path | Mapping[str, Any],
    *,
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
    """Make the runs of a plan that are not complete yet: the command `async-hfl sweep`.

    `plan` is a file (docs/experiments.md), or the same as a mapping, in which tasks, networks, policies and rules may
    be objects made in Python.

    >>> plan = {"tasks": "null", "networks": "uniform", "methods": "async-random", "seeds": 1,
    ...         "set": {"task.devices": 20, "cloud.epochs": 3}, "vary": {"gateway.bandwidth": ["25%", "50%"]}}
    >>> len(async_hfl.sweep(plan, on="here").runs)
    2
    """
    read, title = plan_from(plan)
    work = Work.of(out, on, processes, together, limit_minutes, rows, discard_runs, from_results)
    made = compared(
        read,
        work,
        f"async-hfl sweep: {read.name}",
        f"async_hfl.sweep({title})",
        reference=reference,
        quiet=not (in_notebook() if progress is None else progress),
    )
    made.check()
    return made


def compared(
    plan: Plan,
    work: Work,
    title: str,
    command: str,
    *,
    reference: str | None = None,
    headline: bool = True,
    quiet: bool,
) -> Experiment:
    """Make the missing runs of a plan, compare those that are complete, and write the files."""
    folder = work.folder(plan.name)
    swept, results = make_plan_runs(plan, folder, work, reference=reference, quiet=quiet)
    panels = compare_groups(plan.runs, results, reference, headline=headline)
    report = footnoted(comparison_report(title, panels, command), tuning_notes(plan.runs))
    folder.path.mkdir(parents=True, exist_ok=True)
    return Experiment(plan.name, swept, report, panels, write_report(report, folder.path))


def plan_from(plan: str | Path | Mapping[str, Any]) -> tuple[Plan, str]:
    """Return a plan and its name in the command that made it. The caller keeps objects in a mapping alive."""
    if not isinstance(plan, Mapping):
        return read_plan(Path(plan)), repr(str(plan))
    table = _without_objects(plan)
    if "case" in table:
        cases = table["case"]
        if not isinstance(cases, Sequence) or isinstance(cases, str):
            raise UserError(f"the plan: case must be a list of mappings, not {cases!r:.80}")
        table["case"] = [_without_objects(case) if isinstance(case, Mapping) else case for case in cases]
    return make_plan(table, "the plan", "sweep"), "..."


def _without_objects(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of a plan with names in the place of objects."""
    found = dict(table)
    for axis, setting in _OBJECT_LISTS.items():
        if axis in found:
            given = found[axis] if isinstance(found[axis], list | tuple) else [found[axis]]
            found[axis] = [_named(setting, value) for value in given]
    for key in ("set", "vary"):
        if isinstance(found.get(key), Mapping):
            found[key] = _settings("", found[key])
    return found


def _settings(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= _settings(f"{path}.", value)
        elif isinstance(value, list | tuple):
            found[path] = [_named(path, one) for one in value]
        else:
            found[path] = _named(path, value)
    return found


def _named(setting: str, value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return value if value_text(value) is not None else name_of_object(setting, value)
