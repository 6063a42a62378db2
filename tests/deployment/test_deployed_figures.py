"""`async-hfl paper fig8|fig9 --deployed`: the testbed's clients as real processes, times divided by one factor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HANG_GUARD_S = 300.0
PROGRAM = str(Path(sys.executable).with_name("async-hfl"))
FACTOR = 200
SIZES = ("task.devices=4", "task.classes_per_device=5", "cloud.epochs=2")
SMALL = ("--tasks", "digits", "--seeds", "1", *(part for size in SIZES for part in ("--set", size)))


def answer(*arguments: str) -> Any:
    called = [PROGRAM, *arguments, "--json"]
    done = subprocess.run(called, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("paper")
    command = ("paper", "fig9", "--deployed", "--time-factor", str(FACTOR), *SMALL, "--out", str(out))
    return out, answer(*command)


def test_clients_are_named_and_take_the_testbeds_times(drawn: tuple[Path, Any]) -> None:
    _, said = drawn
    assert (said["runs"], said["done"], said["complete"]) == (1, 1, True)
    rows = {row["client"]: row for row in said["tables"][0]["rows"]}
    assert set(rows) <= {"pi-1a", "cpu-1 (1)", "pi-1b", "cpu-2 (2)"}
    assert rows
    for row in rows.values():
        # On a busy machine everything takes longer; a transfer never less than the link's rate allows.
        assert row["upload"] > 1.0
        assert row["round"] == pytest.approx(row["download"] + row["training"] + row["upload"])
    assert f"{FACTOR} times as fast" in " ".join(said["tables"][0]["notes"])


def test_the_run_is_like_any_other(drawn: tuple[Path, Any]) -> None:
    out, _ = drawn
    (run,) = (out / "runs").iterdir()
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["time_factor"] == FACTOR
    assert manifest["clients"] == ["pi-1a", "cpu-1 (1)", "pi-1b", "cpu-2 (2)"]
    assert len(manifest["classes"]) == 4
    assert all(kind["slowdown"] >= 1 for kind in manifest["classes"])
    # A model takes 4.2 s from the Pi and 2.1 s from the cluster.
    assert manifest["classes"][1]["rate"] == pytest.approx(2 * manifest["classes"][0]["rate"], rel=1e-3)
    replayed = answer("replay", str(run))
    assert (replayed["differences"], replayed["payloads_missing"]) == (0, 0)
    assert answer("collect", str(out / "again"), str(run / "nodes"))["complete"] is True


def test_fig8_takes_the_run_that_is_there(drawn: tuple[Path, Any]) -> None:
    """The figure is drawn again from the directory alone, in the testbed's seconds."""
    out, _ = drawn
    (run,) = (out / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    (row,) = answer("paper", "fig8", "--runs", str(run), "--out", str(out))["tables"][0]["rows"]
    assert row["method"] == "async-hfl"
    assert row["final"] == summary["final_metric"]
    assert 0 < row["ends"] < FACTOR * summary["virtual_s"]  # without the start of processes


def test_nothing_is_done_twice(drawn: tuple[Path, Any]) -> None:
    out, first = drawn
    command = ("paper", "fig9", "--deployed", "--time-factor", str(FACTOR), *SMALL, "--out", str(out))
    again = answer(*command)
    assert (again["were_there"], again["done"]) == (1, 0)
    assert again["tables"] == first["tables"]
