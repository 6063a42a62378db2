"""The plan of `async-hfl compare`: every method on one task, and semi-async with three periods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from async_hfl.core.errors import UserError
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun, planned

METHODS = (
    *("async-hfl-plus", "async-hfl", "async-hfl-selection", "async-hfl-association", "async-hl", "async-random"),
    *("async-st", "async-age", "two-tier", "semi-async", "rfl-ha"),
    *("sync-random", "sync-tifl", "sync-oort", "sync-divfl"),
)
PERIODS = (50, 100, 150)
"""Periods in seconds that are tried for semi-async; the best one represents the method."""


def comparison_plan(
    name: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    *,
    task: str | None = None,
    network: str | None = None,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    panel: str | None = None,
) -> Plan:
    """Plan all methods with one seed before the next seed, so that an interrupted comparison is still fair."""
    runs: dict[str, PlannedRun] = {}
    plan = partial(planned, task=task, network=network, preset=preset, panel=panel)
    for seed in seeds:
        for method in methods:
            for settings, variant in variants(method, overrides):
                own = [*overrides, *settings]
                run = plan(method=method, seed=seed, overrides=own, variant=variant, best=bool(variant))
                runs.setdefault(run.id, run)
    return Plan(name, tuple(runs.values()))


def variants(method: str, overrides: Sequence[str]) -> list[tuple[list[str], str]]:
    """Return (settings, name) of each variant of a method; the name is empty if there is only one."""
    if method != "semi-async" or any(text.strip().startswith("gateway.period") for text in overrides):
        return [([], "")]
    return [([f"gateway.period={period}"], f"{period} s") for period in PERIODS]


def seeds_of(text: str) -> list[int]:
    """Parse `3` as 1, 2, 3 and `4,7` as 4 and 7."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds {text}: give a number of seeds (3) or a list (1,2,5)") from None
    if "," not in text:
        if numbers[0] < 1:
            raise UserError(f"--seeds {text}: must be at least 1")
        return list(range(1, numbers[0] + 1))
    return list(dict.fromkeys(numbers))
