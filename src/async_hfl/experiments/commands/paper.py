"""`paper`: a table or figure of the Async-HFL paper, as one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from async_hfl.assembly.settings.overrides import Overrides, override_texts
from async_hfl.core.errors import UserError
from async_hfl.experiments.commands.experiment import Experiment
from async_hfl.experiments.commands.work import Work, make_plan_runs
from async_hfl.experiments.comparison.footnotes import footnoted, tuning_notes
from async_hfl.experiments.comparison.plan import check_tuning, names_from, seeds_from
from async_hfl.experiments.comparison.report import write_report
from async_hfl.experiments.paper.catalogue import find
from async_hfl.experiments.paper.entry import NETWORKS, PRESETS, Entry, PaperOptions
from async_hfl.experiments.paper.testbed import run_maker
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.tuning.tuning_file import read_tunings
from async_hfl.reports.terminal.notebook import in_notebook

TIME_FACTOR = 10.0
_MEASURED = ("fig8", "fig9")
"""The entries that the paper measured on a physical deployment."""


def paper(
    name: str,
    *,
    quick: bool = False,
    preset: str = "paper",
    network: str = "nycmesh-paper",
    tasks: str | Sequence[str] = (),
    seeds: int | Sequence[int] | None = None,
    tuning: str | Path | None = None,
    overrides: Overrides = (),
    runs: Sequence[str | Path] = (),
    rounds: int | None = None,
    deployed: bool = False,
    time_factor: float | None = None,
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
    """Reproduce a table or figure of the Async-HFL paper: the command `async-hfl paper` (docs/experiments.md)."""
    asked = PaperCall(
        name=name,
        quick=quick,
        preset=preset,
        network=network,
        tasks=tuple(names_from(tasks)),
        seeds=() if seeds is None else tuple(seeds_from(seeds)),
        tuning=None if tuning is None else str(tuning),
        overrides=tuple(override_texts(overrides)),
        runs=tuple(map(Path, runs)),
        rounds=rounds,
        deployed=deployed,
        time_factor=time_factor,
    )
    work = Work.of(out, on, processes, together, limit_minutes, rows, discard_runs, from_results)
    quiet = not (in_notebook() if progress is None else progress)
    made = reproduced(asked, work, f"async_hfl.paper({name!r}, ...)", quiet=quiet)
    made.check()
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperCall:
    """The arguments of `paper`, but for those about the work."""

    name: str
    quick: bool
    preset: str
    network: str
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    tuning: str | None
    overrides: tuple[str, ...]
    runs: tuple[Path, ...]
    rounds: int | None
    deployed: bool
    time_factor: float | None


def reproduced(asked: PaperCall, work: Work, command: str, *, quiet: bool) -> Experiment:
    """Make the missing runs of the table or figure, and write its files."""
    entry = find(asked.name)
    factor = _checked(asked, entry, work)
    folder = work.folder("paper")
    kind = ("-deployed" if factor is not None else "") + ("-quick" if asked.quick else "")
    options = PaperOptions(
        quick=asked.quick,
        preset=asked.preset,
        network=asked.network,
        seeds=asked.seeds,
        tasks=asked.tasks,
        overrides=asked.overrides,
        out=folder.path / f"{entry.name}-{asked.preset}-{asked.network}{kind}",
        command=command,
        runs=asked.runs,
        rounds=asked.rounds,
        time_factor=factor,
        tuning=None if asked.tuning is None else read_tunings(asked.tuning),
    )
    plan = entry.plan(options)
    if not asked.runs:
        check_tuning(plan, options.tuning, str(asked.tuning), asked.overrides)
    missing = plan if not asked.runs else Plan(plan.name, ())
    real = None if factor is None else run_maker(folder, factor)
    swept, results = make_plan_runs(missing, folder, work, quiet=quiet, real=real)
    report = footnoted(entry.draw(options, plan, results), tuning_notes(plan.runs))
    options.out.mkdir(parents=True, exist_ok=True)
    return Experiment(plan.name, swept, report, (), write_report(report, options.out))


def _checked(asked: PaperCall, entry: Entry, work: Work) -> float | None:
    """Check the arguments; return the time factor of real processes, or None for a simulation."""
    for key, known in (("preset", PRESETS), ("network", NETWORKS)):
        if getattr(asked, key) not in known:
            raise UserError(f"--{key} {getattr(asked, key)}: must be one of {', '.join(known)}")
    measured = entry.name in _MEASURED
    if asked.runs and not measured:
        raise UserError(f"--runs: {entry.name} makes its own runs; only fig8 and fig9 can be drawn from given ones")
    if asked.rounds is not None and (not measured or asked.rounds < 1):
        raise UserError(f"--rounds {asked.rounds}: must be at least 1, and applies to fig8 and fig9 only")
    factor = _time_factor(asked, measured=measured)
    kept = "--rows" if work.rows is not None else "--from-results" if work.from_results else None
    if kept and (factor is not None or asked.runs):
        raise UserError(f"{kept}: applies to simulated runs of a plan; leave out --deployed and --runs")
    return factor


def _time_factor(asked: PaperCall, *, measured: bool) -> float | None:
    if not asked.deployed:
        if asked.time_factor is not None:
            raise UserError("--time-factor: applies to real processes only; give --deployed as well")
        return None
    if not measured or asked.runs:
        raise UserError("--deployed: applies to fig8 and fig9 only, and not together with --runs")
    factor = TIME_FACTOR if asked.time_factor is None else asked.time_factor
    if not 1 <= factor < float("inf"):
        raise UserError(f"--time-factor {factor:g}: must be at least 1")
    return factor
