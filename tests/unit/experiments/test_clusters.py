"""Cluster runs of a plan: complete runs are kept, interrupted ones start again, failures are recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from async_hfl import api
from async_hfl.core.errors import AsyncHflError
from async_hfl.deployment.processes.main_loop import Interrupted
from async_hfl.experiments.paper import testbed
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.sweeps.cluster_runs import make_cluster_runs
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.simulation.recorded_run import Progress

Told = list[tuple[str, str]]
SIZE = ["task.devices=4", "network.gateways=2", "cloud.epochs=2"]


class Notebook:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def began(self, total: int, done: int, shape: Any) -> None:
        return

    def status(self, run: PlannedRun, data: dict[str, Any]) -> None:
        return

    def note(self, text: str) -> None:
        self.notes.append(text)


def simulated(run: PlannedRun, out: Path, progress: Callable[[Progress], None]) -> api.Run:
    return api.run(**run.arguments(), out=out)


@pytest.fixture
def runs() -> list[PlannedRun]:
    return [
        planned(task="null", method="async-random", network="uniform", preset=None, seed=seed, overrides=SIZE)
        for seed in (1, 2)
    ]


def test_complete_runs_are_kept(runs: list[PlannedRun], tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    first = make_cluster_runs(runs[:1], folder, simulated, Notebook())
    assert (first.already_complete, first.done, first.complete) == (0, 1, True)
    second = make_cluster_runs(runs, folder, simulated, Notebook())
    assert (second.already_complete, second.done, second.complete) == (1, 1, True)


def test_an_interrupted_run_starts_again(runs: list[PlannedRun], tmp_path: Path) -> None:
    folder, view = SweepFolder(tmp_path), Notebook()
    make_cluster_runs(runs[:1], folder, simulated, view)
    (folder.run(runs[0].id) / "summary.json").unlink()
    swept = make_cluster_runs(runs[:1], folder, simulated, view)
    assert (swept.already_complete, swept.done) == (0, 1)
    assert len(list((tmp_path / "broken").iterdir())) == 1
    assert "starting again" in view.notes[0]


def test_a_failure_is_recorded_and_other_runs_continue(runs: list[PlannedRun], tmp_path: Path) -> None:
    def fails(run: PlannedRun, out: Path, progress: Callable[[Progress], None]) -> api.Run:
        if run.seed == 1:
            raise AsyncHflError("no more ports")
        return simulated(run, out, progress)

    folder = SweepFolder(tmp_path)
    swept = make_cluster_runs(runs, folder, fails, Notebook())
    assert (swept.done, swept.failed) == (1, {runs[0].id: "no more ports"})
    assert folder.failures(runs[0].id)[0]["reason"] == "no more ports"


def test_an_interrupt_stops_the_sweep(runs: list[PlannedRun], tmp_path: Path) -> None:
    def interrupts(run: PlannedRun, out: Path, progress: Callable[[Progress], None]) -> api.Run:
        raise Interrupted(2)

    swept = make_cluster_runs(runs, SweepFolder(tmp_path), interrupts, Notebook())
    assert (swept.stopped, swept.left) == ("interrupted", 2)


def test_after_the_limit_no_run_is_started(runs: list[PlannedRun], tmp_path: Path) -> None:
    swept = make_cluster_runs(runs, SweepFolder(tmp_path), simulated, Notebook(), limit_s=0.0)
    assert (swept.stopped, swept.left) == ("limit", 2)


def test_a_client_is_never_faster_than_the_machine() -> None:
    # pi-1a trains for 42 s and sends a model in 4.2 s.
    assert testbed.classes(1, 10.0, 0.42, 42_000) == ["1:10:100000"]
    assert testbed.classes(1, 10.0, 42.0, 42_000) == ["1:1:100000"]
