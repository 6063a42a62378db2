"""Small plans of runs that take a few milliseconds and learn nothing, and helpers to make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from async_hfl.experiments.plans.plan import Plan, make_plan
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.sweeps.worker_pool import PoolShape

SMALL: dict[str, Any] = {
    "tasks": "null",
    "networks": "uniform",
    "methods": ["async-random", "two-tier"],
    "seeds": 2,
    "set": {"task": {"devices": 8}, "network": {"gateways": 2}, "cloud": {"epochs": 4}},
}


def small_plan(**changes: Any) -> Plan:
    return make_plan({**SMALL, **changes}, "the test", "small")


class Listener:
    """A view that records everything it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.shape = PoolShape(0, 0)

    def began(self, total: int, done: int, shape: PoolShape) -> None:
        self.shape = shape

    def status(self, run: PlannedRun, data: dict[str, Any]) -> None:
        self.heard.append((run.id, data["what"]))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def those(self, what: str) -> set[str]:
        return {run for run, status in self.heard if status == what}


def digests(folder: Path) -> dict[str, bytes]:
    """Return the journal of each run by its id."""
    return {path.parent.name: path.read_bytes() for path in sorted(folder.glob("runs/*/events.jsonl"))}
