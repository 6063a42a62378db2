"""A run that is killed at any moment and resumed equals an uninterrupted run, bit by bit."""

from __future__ import annotations

import random
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import HANG_GUARD_S, PROGRAM, SMALL, Call, Outcome, command

# Ten devices and two gateways: a checkpoint every few of the sixty epochs.
DIGITS = (
    *("--task", "digits", "--method", "async-hfl", "--network", "nycmesh-paper"),
    *("--set", "task.devices=10", "--set", "network.gateways=2", "--set", "gateway.epochs=10"),
    *("--set", "cloud.epochs=60", "--set", "task.target=1", "--set", "simulation.checkpoint_epochs=1"),
)
NULL = (*SMALL, "--set", "task.devices=8", "--set", "cloud.epochs=40", "--set", "simulation.checkpoint_epochs=1")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    where = tmp_path_factory.mktemp("uninterrupted")
    done = command("run", *DIGITS, "--out", "run", "--json", cwd=where)
    assert done.code == 0
    return where / "run", done.json


IN_BACKGROUND = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Starts a command with SIGINT ignored, as a shell does for a command that ends with `&`."""


def kill_at(run: Path, rows: int, *arguments: str, how: signal.Signals = signal.SIGKILL) -> int:
    """Start the command and kill it once epochs.csv has this many rows (0: once the file exists)."""
    with (run.parent / "stderr").open("w") as errors:
        child = subprocess.Popen(
            [*IN_BACKGROUND, PROGRAM, *arguments], cwd=run.parent, stdout=subprocess.DEVNULL, stderr=errors
        )
    try:
        guard = time.monotonic() + HANG_GUARD_S
        while child.poll() is None and rows_of(run) < rows:
            assert time.monotonic() < guard, "the run does not get on"
            time.sleep(0.001)
        child.send_signal(how)
        return child.wait(HANG_GUARD_S)
    finally:
        child.kill()
        child.wait()


def rows_of(run: Path) -> int:
    if not (run / "manifest.json").is_file():
        return -1
    epochs = run / "epochs.csv"
    return max(epochs.read_bytes().count(b"\n") - 1, 0) if epochs.is_file() else 0


def assert_same(run: Path, result: dict[str, Any], whole: Path, wanted: dict[str, Any]) -> None:
    own = {"run", "wall_s"}
    assert {key: value for key, value in result.items() if key not in own} == {
        key: value for key, value in wanted.items() if key not in own
    }
    for name in ("events.jsonl", "epochs.csv", "model.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("rows", [0, 7, *(pytest.param(rows, marks=pytest.mark.long) for rows in (1, 29, 48))])
def test_killed_once(rows: int, uninterrupted: tuple[Path, dict[str, Any]], call: Call, tmp_path: Path) -> None:
    """Kill before the first evaluation, before the first checkpoint, and between two checkpoints."""
    run = tmp_path / "run"
    kill_at(run, rows, "run", *DIGITS, "--out", "run", "--json")
    done = call("resume", "run", "--json")
    assert done.code == 0
    assert_same(run, done.json, *uninterrupted)


@pytest.mark.long
def test_killed_twice_in_a_row(uninterrupted: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    kill_at(run, 12, "run", *DIGITS, "--out", "run", "--json")
    kill_at(run, 33, "resume", "run", "--json")
    done = command("resume", "run", "--json", cwd=tmp_path)
    assert done.code == 0
    assert_same(run, done.json, *uninterrupted)


@pytest.mark.parametrize(("how", "code", "rows"), [(signal.SIGINT, 130, 20), (signal.SIGTERM, 143, 1)])
def test_interrupted_by_a_signal(
    how: signal.Signals, code: int, rows: int, uninterrupted: tuple[Path, dict[str, Any]], call: Call, tmp_path: Path
) -> None:
    """The command that is printed continues the run, from a checkpoint that is newer than the last regular one."""
    run = tmp_path / "my run"
    every = ("--set", "simulation.checkpoint_epochs=1000")
    assert kill_at(run, rows, "run", *DIGITS, *every, "--out", "my run", "--json", how=how) == code
    assert (run / "checkpoint.msgpack").is_file()
    last = Path("stderr").read_text().splitlines()[-1]
    assert last == "async-hfl: error: interrupted; `async-hfl resume 'my run'` continues the run"
    done = call(*shlex.split(last.split("`")[1])[1:], "--json")
    assert done.code == 0
    assert_same(run, done.json, *uninterrupted)


def test_interrupted_again_while_it_is_continued(
    uninterrupted: tuple[Path, dict[str, Any]], call: Call, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert kill_at(run, 3, "run", *DIGITS, "--out", "run", "--json", how=signal.SIGTERM) == 143
    assert kill_at(run, 10, "resume", "run", "--json", how=signal.SIGTERM) == 143
    assert_same(run, call("resume", "run", "--json").json, *uninterrupted)


KILLING_POLICY = """
import os, pathlib, signal

calls_left = int(pathlib.Path("calls_left").read_text())

def choose(problem):
    global calls_left
    calls_left -= 1
    if calls_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    fastest = problem.round_latency.argsort()
    room = problem.data_rate[fastest].cumsum() <= problem.capacity
    return problem.candidates[fastest[room]]
"""


def test_killed_again_and_again_at_random_events(tmp_path: Path) -> None:
    """The policy kills its own process, so that the moments do not depend on the speed of the machine."""
    rng = random.Random(20)
    arguments = ("run", *NULL, "--method", "async-hfl", "--set", "selection.policy=mortal.py:choose", "--json")
    (tmp_path / "mortal.py").write_text(KILLING_POLICY)
    (tmp_path / "calls_left").write_text("-1")
    wanted = command(*arguments, "--out", "whole", cwd=tmp_path).json
    kills, done = 0, Outcome(-9, "", "")
    while done.code == -9:
        (tmp_path / "calls_left").write_text(str(rng.randrange(150, 450)))
        done = command(*arguments, "--out", "run", cwd=tmp_path) if not kills else resumed(tmp_path)
        kills += done.code == -9
        assert kills < 20, "it never gets to its end"
    assert done.code == 0
    assert kills >= 3
    assert_same(tmp_path / "run", done.json, tmp_path / "whole", wanted)


def resumed(where: Path) -> Outcome:
    return command("resume", "run", "--json", cwd=where)


def cut_off(call: Call) -> tuple[Path, dict[str, Any]]:
    """Return a run without its end, as if it had been killed long after its last checkpoint."""
    result = call("run", *NULL, "--set", "cloud.epochs=10", "--set", "simulation.checkpoint_epochs=4", "--out", "run")
    assert result.code == 0
    wanted = call("show", "run", "--json").json
    Path("run/summary.json").unlink()
    return Path("run"), wanted


def test_torn_last_lines(call: Call) -> None:
    run, wanted = cut_off(call)
    whole = {name: (run / name).read_bytes() for name in ("events.jsonl", "epochs.csv", "model.safetensors")}
    (run / "events.jsonl").write_bytes(whole["events.jsonl"][:-20])
    (run / "epochs.csv").write_bytes(whole["epochs.csv"][:-5])
    done = call("resume", "run", "--json")
    assert done.json["digest"] == wanted["digest"]
    assert {name: (run / name).read_bytes() for name in whole} == whole


def test_a_torn_header(call: Call) -> None:
    """Simulates a kill before the first checkpoint, in the middle of a line."""
    run, wanted = cut_off(call)
    (run / "checkpoint.msgpack").unlink()
    (run / "model.safetensors").unlink()
    (run / "events.jsonl").write_bytes((run / "events.jsonl").read_bytes()[:100])
    (run / "epochs.csv").write_bytes(b"at,epo")
    assert call("resume", "run", "--json").json["digest"] == wanted["digest"]


def test_half_written_files(call: Call) -> None:
    """Simulates a kill while the temporary file of a checkpoint, model or summary was written."""
    run, wanted = cut_off(call)
    for name in ("checkpoint", "model", "summary", "manifest"):
        (run / f"{name}.part").write_bytes(b"half of it")
    assert call("resume", "run", "--json").json["digest"] == wanted["digest"]
    assert call("show", "run", "--json").json["digest"] == wanted["digest"]


def test_a_complete_run_is_not_changed(call: Call) -> None:
    wanted = call("run", *SMALL, "--out", "run", "--json").json
    before = {entry.name: (entry.read_bytes(), entry.stat().st_mtime_ns) for entry in Path("run").iterdir()}
    done = call("resume", "run", "--json")
    assert done.code == 0
    assert done.json == wanted
    assert {entry.name: (entry.read_bytes(), entry.stat().st_mtime_ns) for entry in Path("run").iterdir()} == before


def test_a_policy_that_changed_is_refused(call: Call) -> None:
    policy = (
        "def choose(problem):\n    return problem.candidates[:1] if problem.data_rate[0] <= problem.capacity else []\n"
    )
    Path("mine.py").write_text(policy)
    result = call("run", *SMALL, "--set", "selection.policy=mine.py:choose", "--out", "run", "--json")
    assert result.code == 0
    Path("run/summary.json").unlink()
    Path("mine.py").write_text(policy.replace("[:1]", "[-1:]"))
    done = call("resume", "run")
    assert done.code == 2
    assert "mine.py: has changed since the run began; restore it, or start a new run" in done.told()
    Path("mine.py").unlink()
    done = call("resume", "run")
    assert done.code == 2
    assert "mine.py: cannot be read (No such file or directory), and the run needs it; restore it" in done.told()
    Path("mine.py").write_text(policy)
    assert call("resume", "run", "--json").json["digest"] == result.json["digest"]


def test_a_start_model_that_changed_is_refused(call: Call) -> None:
    """Otherwise a run killed before its first checkpoint would silently restart from a different model."""
    call("run", *SMALL, "--out", "first")
    call("run", *SMALL, "--seed", "2", "--out", "second")
    call("model", "first", "start.safetensors")
    result = call("run", *SMALL, "--start-from", "start.safetensors", "--out", "run", "--json")
    Path("run/summary.json").unlink()
    call("model", "second", "start.safetensors")
    done = call("resume", "run")
    assert done.code == 2
    assert "start.safetensors: has changed since the run began" in done.told()
    call("model", "first", "start.safetensors")
    assert call("resume", "run", "--json").json["digest"] == result.json["digest"]
