"""What an entry of the catalogue is: a plan, and how to draw what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from async_hfl.experiments.comparison.report import Report
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.sweeps.folder import SweepFolder

NETWORKS = ("nycmesh-paper", "nycmesh")
PRESETS = ("paper", "authors", "tight")
QUICK_TARGET = 0.9
QUICK_EPOCHS = 150


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user wants of it."""

    quick: bool = False
    preset: str = "paper"
    network: str = "nycmesh-paper"
    seeds: tuple[int, ...] = ()
    """None given: as the entry has it."""
    tasks: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    out: Path = Path()
    """Where files of the report go, beyond the report itself."""
    command: str = ""
    runs: tuple[Path, ...] = ()
    """Drawn in place of runs of the plan, where the entry can."""
    rounds: int | None = None
    """Cloud rounds, where the entry stops by them; none: the paper's."""
    time_factor: float | None = None
    """By real processes, so many times as fast as the testbed, where the entry can; none: simulated."""

    def seeds_or(self, *, quick: int, full: int = 3) -> tuple[int, ...]:
        return self.seeds or tuple(range(1, 1 + (quick if self.quick else full)))

    def small(self) -> list[str]:
        """Settings of the small version."""
        return [f"task.target={QUICK_TARGET}", f"cloud.epochs={QUICK_EPOCHS}"] if self.quick else []


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    title: str
    quick: str
    """What the small version is."""
    plan: Callable[[Asked], Plan]
    draw: Callable[[Asked, Plan, SweepFolder], Report]
