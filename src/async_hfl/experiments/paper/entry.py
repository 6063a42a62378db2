"""An entry of the catalogue: a plan of runs, and a function that makes the report of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_hfl.experiments.comparison.report import Report
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.results.sources import Results
from async_hfl.experiments.tuning.tuning_file import Tunings

NETWORKS = ("nycmesh-paper", "nycmesh")
PRESETS = ("paper", "authors", "tight")
QUICK_TARGET = 0.9
QUICK_EPOCHS = 150


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """The options of `async-hfl paper`."""

    quick: bool = False
    preset: str = "paper"
    network: str = "nycmesh-paper"
    seeds: tuple[int, ...] = ()
    """Empty: the default of the entry."""
    tasks: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    out: Path = Path()
    """The directory of additional files of the report."""
    command: str = ""
    runs: tuple[Path, ...] = ()
    """Run directories to draw instead of the runs of the plan (Fig. 8 and 9)."""
    rounds: int | None = None
    """The number of cloud rounds (Fig. 8 and 9); None: as in the paper."""
    time_factor: float | None = None
    """Speed of real processes relative to the testbed (Fig. 8 and 9); None: simulate."""
    tuning: Tunings | None = None

    @property
    def where(self) -> str:
        return f"({self.network}, preset {self.preset})"

    def seeds_or(self, *, quick: int, full: int = 3) -> tuple[int, ...]:
        return self.seeds or tuple(range(1, 1 + (quick if self.quick else full)))

    def planned(self, task: str, method: str, seed: int, overrides: list[str], **more: Any) -> PlannedRun:
        """Plan a run on the chosen network with the chosen preset; `more` may give label and panel."""
        chosen = {"network": self.network, "preset": self.preset, "seed": seed, "overrides": overrides, **more}
        return planned(task=task, method=method, tuning=self.tuning, tuned_as=method, **chosen)

    def small(self) -> list[str]:
        """Return the settings of the small version."""
        return [f"task.target={QUICK_TARGET}", f"cloud.epochs={QUICK_EPOCHS}"] if self.quick else []


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    title: str
    quick: str
    """Description of the small version."""
    plan: Callable[[PaperOptions], Plan]
    draw: Callable[[PaperOptions, Plan, Results], Report]
