"""Sweeps on a local Ray cluster: killed and restarted, and with runs that are copied because no folder is shared."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs async-hfl[ray]")

pytestmark = pytest.mark.long
HANG_GUARD_S = 600
PROGRAM = str(Path(sys.executable).with_name("async-hfl"))
PLAN = """
tasks = "digits"
methods = ["async-random", "sync-random"]
seeds = 2

[set]
task.devices = 10
task.target = 0.5
network.gateways = 2
gateway.epochs = 5
cloud.epochs = 12
simulation.checkpoint_epochs = 1
"""
COPIED_RUNS = """
import sys
from pathlib import Path
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.ray_workers import RayPool
from async_hfl.experiments.plans.plan import read_plan
from async_hfl.experiments.sweeps.sweep import sweep

class Quiet:
    def began(self, *_): pass
    def status(self, *_): pass
    def note(self, *_): pass

plan, out, limit = read_plan(Path("plan.toml")), Path("travel"), float(sys.argv[1])
done = sweep(plan.runs, SweepFolder(out), RayPool(out, share_folder=False), Quiet(), limit_s=limit)
print(done.complete, done.stopped, done.left)
"""


def sweep(where: Path, out: str, *more: str) -> None:
    subprocess.run(
        [PROGRAM, "sweep", "plan.toml", "--out", out, "--json", *more],
        cwd=where,
        check=True,
        capture_output=True,
        timeout=HANG_GUARD_S,
    )


def results(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/*/events.jsonl")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("whole")
    (where / "plan.toml").write_text(PLAN)
    sweep(where, "processes")
    return where / "processes"


def test_a_sweep_that_is_killed_and_restarted(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    folder = tmp_path / "ray"
    child = subprocess.Popen(
        [PROGRAM, "sweep", "plan.toml", "--out", "ray", "--on", "ray", "--json"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    guard = time.monotonic() + HANG_GUARD_S
    while child.poll() is None and not list(folder.glob("runs/*/summary.json")):
        assert time.monotonic() < guard, "the sweep makes no progress"
        time.sleep(0.01)
    child.kill()
    child.wait()
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/summary.json")}
    assert finished
    sweep(tmp_path, "ray", "--on", "ray")
    for path, written in finished.items():
        assert path.stat().st_mtime_ns == written
    assert results(folder) == results(whole)
    assert (folder / "table-1.csv").read_bytes() == (whole / "table-1.csv").read_bytes()


def test_runs_are_copied_if_no_folder_is_shared(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    script = tmp_path / "travels.py"
    script.write_text(COPIED_RUNS)
    for limit in ("1", "500"):
        # First for one second only: runs come back paused and are sent out again.
        done = subprocess.run(
            [sys.executable, str(script), limit],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
            timeout=HANG_GUARD_S,
        )
    assert done.stdout.splitlines()[-1].startswith("True")
    assert results(tmp_path / "travel") == results(whole)
