"""The commands `async-hfl sweep` and `async-hfl compare`, also when killed and started again."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import HANG_GUARD_S, PROGRAM, Call, Outcome, command

PLAN = """
tasks = "null"
networks = "uniform"
methods = ["async-random", "sync-random"]
seeds = 2

[set]
task.devices = 10
task.target = 0.3
network.gateways = 2
cloud.epochs = 60
cloud.epochs_after_target = 60
simulation.checkpoint_epochs = 5
"""
TABLES = ("table-1.csv", "table-2.csv", "table-1.tex", "tables.md")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    where = tmp_path_factory.mktemp("uninterrupted")
    (where / "plan.toml").write_text(PLAN)
    done = command("sweep", "plan.toml", "--processes", "2", "--json", cwd=where)
    assert done.code == 0, done.err
    return where / "runs" / "plan", done


def same_tables(one: Path, other: Path) -> None:
    for name in TABLES:
        assert (one / name).read_bytes() == (other / name).read_bytes()
    for run in (one / "runs").iterdir():
        assert (run / "events.jsonl").read_bytes() == (other / "runs" / run.name / "events.jsonl").read_bytes()


def test_a_sweep_reports_its_result(uninterrupted: tuple[Path, Outcome]) -> None:
    folder, done = uninterrupted
    said = done.json
    assert {key: said[key] for key in ("name", "runs", "were_there", "done", "failed", "left", "complete")} == {
        "name": "plan",
        "runs": 4,
        "were_there": 0,
        "done": 4,
        "failed": {},
        "left": 0,
        "complete": True,
    }
    (panel,) = said["panels"]
    assert panel["panel"] == "null · uniform · tight"
    assert panel["reference"] == "async-random"
    assert [row["group"] for row in panel["rows"]] == ["async-random", "sync-random"]
    for row in panel["rows"]:
        for run, by_seed in zip(row["runs"], row["time_to_target_s"]["by_seed"].values(), strict=True):
            summary = json.loads((folder.parents[1] / run / "summary.json").read_bytes())
            assert by_seed == summary["time_to_target_s"]
    with (folder / "table-1.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["async-random", "sync-random"]
    assert "<html" in (folder / "report.html").read_text()


@pytest.mark.parametrize("runs_done", [0, 1, 3])
def test_killed_and_started_again(runs_done: int, uninterrupted: tuple[Path, Outcome], tmp_path: Path) -> None:
    """After SIGKILL no complete run is repeated, the others continue, and the tables are the same."""
    whole, _ = uninterrupted
    (tmp_path / "plan.toml").write_text(PLAN)
    folder = tmp_path / "runs" / "plan"
    child = subprocess.Popen(
        [PROGRAM, "sweep", "plan.toml", "--processes", "2", "--json"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    guard = time.monotonic() + HANG_GUARD_S
    while child.poll() is None and not (
        any(folder.glob("runs/*/checkpoint.msgpack")) and len(list(folder.glob("runs/*/summary.json"))) >= runs_done
    ):
        assert time.monotonic() < guard, "the sweep does not get on"
        time.sleep(0.002)
    child.kill()
    child.wait()
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/summary.json")}
    again = command("sweep", "plan.toml", "--processes", "2", "--json", cwd=tmp_path)
    assert again.code == 0, again.err
    assert again.json["complete"]
    assert again.json["were_there"] >= len(finished) >= runs_done
    for path, written in finished.items():
        assert path.stat().st_mtime_ns == written
    same_tables(whole, folder)


def test_kept_rows_of_a_killed_sweep(uninterrupted: tuple[Path, Outcome], tmp_path: Path) -> None:
    """Rows survive SIGKILL, the sweep goes on without the directories, and the tables are drawn from rows alone."""
    whole, _ = uninterrupted
    (tmp_path / "plan.toml").write_text(PLAN)
    arguments = ("sweep", "plan.toml", "--workers", "2", "--json", "--rows", "rows.jsonl", "--discard-runs")
    child = subprocess.Popen([PROGRAM, *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = tmp_path / "rows.jsonl"
    guard = time.monotonic() + HANG_GUARD_S
    while child.poll() is None and not (rows.exists() and rows.read_bytes().count(b"\n")):
        assert time.monotonic() < guard, "the sweep does not get on"
        time.sleep(0.002)
    child.kill()
    child.wait()
    known = rows.read_bytes().count(b"\n")
    again = command(*arguments, cwd=tmp_path)
    assert again.code == 0, again.err
    assert again.json["were_there"] >= known
    assert again.json["complete"]
    assert not list((tmp_path / "runs" / "plan" / "runs").iterdir())
    drawn = command("sweep", "plan.toml", "--from-results", "rows.jsonl", "--out", "drawn", "--json", cwd=tmp_path)
    assert drawn.code == 0, drawn.err
    for name in TABLES:
        assert (tmp_path / "drawn" / name).read_bytes() == (whole / name).read_bytes()
    assert (tmp_path / "drawn" / "figure.png").is_file()
    assert not (tmp_path / "drawn" / "runs").exists()


# A background shell starts its children with SIGINT ignored, and the tests may run in one.
WITH_SIGINT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from async_hfl.cli import main
sys.exit(main())
"""


def test_ctrl_c_stops_at_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN.replace("cloud.epochs = 60", "cloud.epochs = 3000"))
    arguments = ["sweep", "plan.toml", "--processes", "1", "--json"]
    child = subprocess.Popen(
        [sys.executable, "-c", WITH_SIGINT, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    folder = tmp_path / "runs" / "plan"
    guard = time.monotonic() + HANG_GUARD_S
    while child.poll() is None and not any(folder.glob("runs/*/epochs.csv")):
        assert time.monotonic() < guard, "the sweep does not get on"
        time.sleep(0.002)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=HANG_GUARD_S)
    assert child.returncode == 130
    said = json.loads(out.splitlines()[-1])
    assert (said["stopped"], said["left"], said["failed"]) == ("interrupted", 4, {})
    (begun,) = (folder / "runs").iterdir()
    assert (begun / "checkpoint.msgpack").is_file()


def test_the_text_output_of_compare(call: Call, tmp_path: Path) -> None:
    settings = ["--set", "task.devices=8", "--set", "cloud.epochs=3", "--set", "network.gateways=2"]
    first = call("compare", "--task", "null", "--network", "uniform", "--seeds", "2", *settings, "--out", "c")
    assert first.code == 0, first.err
    assert "null · uniform · tight: time to 2" in first.out
    for method in ("async-hfl-plus", "semi-async, 150 s", "sync-divfl", "two-tier"):
        assert method in first.out
    assert "never" in first.out  # no method can reach a metric of 2
    assert "bound: share of selections limited by the bandwidth" in first.out
    assert (tmp_path / "c" / "report.html").is_file()
    assert (
        "async-hfl compare --task null --network uniform --seeds 2 --set task.devices=8"
        in (tmp_path / "c" / "tables.md").read_text()
    )
    again = call("compare", "--task", "null", "--network", "uniform", "--seeds", "2", *settings, "--out", "c", "--json")
    assert again.json["were_there"] == 36
    assert [row["reached"] for row in again.json["panels"][0]["rows"]] == [0] * 18
    assert {row["time_to_target_s"]["mean"] for row in again.json["panels"][0]["rows"]} == {None}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["compare", "--task", "nul"], "did you mean null?"),
        (["compare", "--methods", "async-hfl,fedavg"], "unknown method 'fedavg'"),
        (["compare", "--seeds", "none"], "--seeds none"),
        (["compare", "--task", "null", "--reference", "fedavg"], "--reference fedavg"),
        (["compare", "--task", "null", "--limit-minutes", "0"], "--limit-minutes 0"),
        (["compare", "--task", "null", "--processes", "0"], "--processes 0"),
        (["compare", "--task", "null", "--on", "slurm"], "--on slurm"),
        (["sweep", "none.toml"], "none.toml: no such file"),
        (["compare", "--task", "null", "--discard-runs"], "--discard-runs: give --rows FILE"),
        (["compare", "--task", "null", "--rows", "a", "--from-results", "b"], "give one of them"),
        (["compare", "--task", "null", "--from-results", "none.jsonl"], "none.jsonl: cannot be read"),
        (["paper", "fig8", "--deployed", "--rows", "a"], "--rows: applies to simulated runs"),
    ],
)
def test_mistakes(arguments: list[str], told: str, call: Call, tmp_path: Path) -> None:
    said = call(*arguments)
    assert said.code == 2
    assert told in said.told()
    assert not (tmp_path / "runs").exists()
