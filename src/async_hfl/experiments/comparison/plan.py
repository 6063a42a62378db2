"""The plan of `async-hfl compare`: every method on one task, and semi-async with three periods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from async_hfl.core.errors import UserError
from async_hfl.experiments.plans.contender import Contender
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun, check_not_tuned, planned
from async_hfl.experiments.tuning.tuning_file import Tunings

METHODS = (
    *("async-hfl-plus", "async-hfl", "async-hfl-selection", "async-hfl-association", "async-hl", "async-random"),
    *("async-st", "async-age", "two-tier", "semi-async", "fedbuff", "rfl-ha"),
    *("sync-random", "sync-tifl", "sync-oort", "sync-divfl"),
)
PERIODS = (50, 100, 150)
"""Periods in seconds that are tried for semi-async if it is not tuned; the best one represents the method."""


def comparison_plan(
    name: str,
    methods: Sequence[str | Contender],
    seeds: Sequence[int],
    *,
    task: str | None = None,
    network: str | None = None,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    panel: str | None = None,
    tuning: Tunings | None = None,
) -> Plan:
    """Plan all methods with one seed before the next seed, so that an interrupted comparison is still fair."""
    runs: dict[tuple[str, str], PlannedRun] = {}
    plan = partial(planned, task=task, network=network, preset=preset, panel=panel)
    for seed in seeds:
        for method in methods:
            one = method if isinstance(method, Contender) else Contender(method, method)
            given = partial(plan, method=one.method, seed=seed, label=one.label, role=one.role, tuning=tuning)
            own = [*one.overrides, *overrides]
            run = given(overrides=own)
            chosen = {} if run.tuned is None else run.tuned.settings
            for settings, variant in [([], "")] if "gateway.period" in chosen else variants(one.method, own):
                if variant:
                    run = given(overrides=[*own, *settings], variant=variant, best=True)
                runs.setdefault((run.id, run.group), run)
    return Plan(name, tuple(runs.values()))


def variants(method: str, overrides: Sequence[str]) -> list[tuple[list[str], str]]:
    """Return (settings, name) of each variant of a method; the name is empty if there is only one."""
    if method != "semi-async" or any(text.strip().startswith("gateway.period") for text in overrides):
        return [([], "")]
    return [([f"gateway.period={period}"], f"{period} s") for period in PERIODS]


def check_tuning(plan: Plan, tuning: Tunings | None, file: str, overrides: Sequence[str]) -> None:
    """Raise UserError if the tuning file has nothing for this plan, or chose a setting that `--set` gives."""
    check_not_tuned(plan.runs, [text.partition("=")[0].strip() for text in overrides], "--set")
    if tuning is not None and not any(run.tuned for run in plan.runs):
        run = plan.runs[0]
        raise UserError(
            f"--tuning {file}: has no settings for the methods on {run.task} on {run.network} with preset "
            f"{run.preset}; it has: {tuning.places()}; `async-hfl tune` adds others"
        )


def seeds_from(seeds: int | Sequence[int]) -> list[int]:
    """Return 1, 2, 3 for 3, and the seeds of a list."""
    if isinstance(seeds, int):
        return seeds_of(str(seeds))
    if not seeds or not all(isinstance(seed, int) for seed in seeds):
        raise UserError(f"seeds = {seeds!r:.80}: give a number of seeds (3) or a list ([1, 2, 5])")
    return list(dict.fromkeys(seeds))


def names_from(names: str | Sequence[str]) -> list[str]:
    """Return the names of a list, or those in a text, separated by commas."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def seeds_of(text: str) -> list[int]:
    """Parse `3` as 1, 2, 3 and `4,7` as 4 and 7."""
    numbers = listed_seeds(text)
    if "," not in text:
        if numbers[0] < 1:
            raise UserError(f"--seeds {text}: must be at least 1")
        return list(range(1, numbers[0] + 1))
    return numbers


def listed_seeds(text: str) -> list[int]:
    """Parse `4,7` as 4 and 7, and `4` as 4."""
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UserError(f"--seeds {text}: give a number of seeds (3) or a list (1,2,5)") from None
