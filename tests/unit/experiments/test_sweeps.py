"""A sweep makes the missing runs, also after interruptions; its folder holds all its state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue
from typing import Any

from experiment_plans import Listener, digests, small_plan

from async_hfl import api
from async_hfl.experiments.comparison.comparison import compare
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.results.sources import FolderResults
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.process_workers import ProcessPool, ProcessWorker
from async_hfl.experiments.sweeps.sweep import SweepResult, sweep
from async_hfl.experiments.sweeps.worker_pool import Message, PoolShape

HANG_GUARD_S = 300


def swept(plan: Plan, out: Path, view: Listener | None = None, **options: Any) -> SweepResult:
    limit = options.pop("limit_s", None)
    folder = SweepFolder(out)
    return sweep(plan.runs, folder, ProcessPool(out, **options), view or Listener(), limit_s=limit)


def test_a_sweep_gives_the_same_runs_as_single_commands(tmp_path: Path) -> None:
    plan = small_plan()
    done = swept(plan, tmp_path / "sweep", processes=2)
    assert done.complete
    assert done.as_json()["done"] == 4
    for run in plan.runs:
        alone = api.run(**run.arguments(), out=tmp_path / run.id)
        assert api.load_run(done.folder.run(run.id)).summary["digest"] == alone.summary["digest"]


def test_several_runs_share_an_engine_in_one_worker(tmp_path: Path) -> None:
    plan = small_plan(tasks="digits", set={"task.devices": 10, "cloud.epochs": 3, "network.gateways": 2})
    view = Listener()
    assert swept(plan, tmp_path / "one", processes=1).complete
    assert swept(plan, tmp_path / "shared", view, processes=1, width=3).complete
    assert view.shape == PoolShape(1, 3)
    assert digests(tmp_path / "one") == digests(tmp_path / "shared")


def test_complete_runs_are_not_repeated(tmp_path: Path) -> None:
    plan = small_plan()
    swept(plan, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    view = Listener()
    again = swept(plan, tmp_path, view)
    assert (again.already_complete, again.done, again.complete) == (4, 0, True)
    assert view.heard == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before


def test_interrupted_runs_are_resumed(tmp_path: Path) -> None:
    plan = small_plan(methods="async-random", seeds=1, set={"task.devices": 8, "cloud.epochs": 40})
    whole = swept(plan, tmp_path / "whole")
    (run,) = plan.runs
    cut = SweepFolder(tmp_path / "cut")
    cut.make()
    seen = 0

    def enough() -> bool:
        nonlocal seen
        seen += 1
        return seen >= 20

    assert not api.run(**run.arguments(), out=cut.run(run.id), pause=enough).complete
    assert cut.state(run.id) == "interrupted"
    done = swept(plan, tmp_path / "cut")
    assert (done.done, done.resumed) == (1, 1)
    assert digests(tmp_path / "cut") == digests(whole.folder.path)


def test_a_run_killed_before_its_manifest_starts_again(tmp_path: Path) -> None:
    plan = small_plan(methods="two-tier", seeds=1)
    left = tmp_path / "runs" / plan.runs[0].id
    left.mkdir(parents=True)
    (left / "manifest.part").write_text("{")
    assert swept(plan, tmp_path).complete
    (stranger := tmp_path / "other" / "runs" / plan.runs[0].id).mkdir(parents=True)
    (stranger / "thesis.txt").write_text("mine")
    other = swept(plan, tmp_path / "other")
    assert "contains other files (thesis.txt)" in other.failed[plan.runs[0].id]
    assert (stranger / "thesis.txt").is_file()


def test_a_limit_stops_at_a_checkpoint(tmp_path: Path) -> None:
    """Half a second of a longer run: it can be resumed and gives the same result."""
    plan = small_plan(
        methods="async-random",
        seeds=1,
        set={"task.devices": 8, "cloud.epochs": 1000, "simulation.checkpoint_epochs": 500},
    )
    first = swept(plan, tmp_path, limit_s=0.6)
    assert (first.stopped, first.left, first.failed) == ("limit", 1, {})
    (run,) = plan.runs
    assert first.folder.state(run.id) == "interrupted"
    assert (first.folder.run(run.id) / "checkpoint.msgpack").is_file()
    second = swept(plan, tmp_path)
    assert second.complete
    assert second.resumed == 1
    whole = swept(plan, tmp_path / "whole")
    assert digests(tmp_path) == digests(whole.folder.path)


def test_two_sweeps_on_one_folder_share_the_work(tmp_path: Path) -> None:
    plan = small_plan(seeds=3, set={"task.devices": 8, "cloud.epochs": 200})
    views = [Listener(), Listener()]
    results: list[SweepResult] = []
    threads = [
        threading.Thread(target=lambda view=view: results.append(swept(plan, tmp_path, view, processes=1)))
        for view in views
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_GUARD_S)
    assert [done.complete for done in results] == [True, True]
    # Each run was started once, by one of the sweeps.
    begun = [run for view in views for run, what in view.heard if what == "began"]
    assert sorted(begun) == sorted(run.id for run in plan.runs)


OWN_POLICY = """
import os, pathlib
FLAG = pathlib.Path(__file__).with_name("tried")

def choose(problem):
    if FLAG.read_text().count("x") < {failures}:
        FLAG.write_text(FLAG.read_text() + "x")
        {how}
    return [int(problem.candidates[0])]
"""


def own_policy(tmp_path: Path, failures: int, how: str) -> Plan:
    file = tmp_path / "own.py"
    file.write_text(OWN_POLICY.format(failures=failures, how=how))
    (tmp_path / "tried").write_text("")
    settings = {
        "task.devices": 4,
        "network.gateways": 1,
        "cloud.epochs": 3,
        "selection.policy": f"{file}:choose",
        "gateway.bandwidth": 1e9,
    }
    return small_plan(methods="async-random", seeds=1, set=settings)


def test_a_worker_that_dies_is_replaced_and_its_run_is_retried(tmp_path: Path) -> None:
    plan = own_policy(tmp_path, 1, "os.kill(os.getpid(), 9)")
    view = Listener()
    done = swept(plan, tmp_path / "sweep", view)
    assert done.complete
    assert "was killed (SIGKILL, perhaps out of memory); retrying" in view.notes[0]
    (kept,) = (tmp_path / "sweep" / "failures").iterdir()
    assert "SIGKILL" in json.loads(kept.read_text())[0]["reason"]


def test_a_run_that_always_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    plan = own_policy(tmp_path, 99, "os._exit(7)")
    both = Plan("both", (*plan.runs, *small_plan(methods="two-tier", seeds=1).runs))
    done = swept(both, tmp_path / "sweep")
    assert list(done.failed) == [plan.runs[0].id]
    assert done.failed[plan.runs[0].id] == "its process ended with exit code 7"
    assert (done.done, done.left, done.complete) == (1, 0, False)
    assert (tmp_path / "tried").read_text() == "xxx"
    (panel,) = compare(both.runs, FolderResults(done.folder))
    assert {row.group: row.missing for row in panel.rows} == {"async-random": 1, "two-tier": 0}


def test_a_mistake_of_the_user_is_not_retried(tmp_path: Path) -> None:
    plan = own_policy(tmp_path, 99, "raise ValueError('no idea')")
    done = swept(plan, tmp_path / "sweep")
    assert "no idea" in done.failed[plan.runs[0].id]
    assert done.users_fault
    assert (tmp_path / "tried").read_text() == "x"


def test_a_worker_exits_when_its_sweep_has_gone(tmp_path: Path) -> None:
    inbox: Queue[Message] = Queue()
    member = ProcessWorker(0, tmp_path, inbox, os.environ)
    process = member._process
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(HANG_GUARD_S) == 0
    assert "died" in inbox.get(timeout=HANG_GUARD_S).data


def test_a_claim_is_released_when_its_process_ends(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.make()
    script = (
        "import pathlib, sys\nfrom async_hfl.experiments.sweeps.folder import SweepFolder\n"
        "with SweepFolder(pathlib.Path(sys.argv[1])).claimed('a') as mine:\n    print(mine, flush=True)\n    input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "True\n"
    with folder.claimed("a") as mine:
        assert not mine
    child.kill()
    child.communicate()
    with folder.claimed("a") as mine:
        assert mine
