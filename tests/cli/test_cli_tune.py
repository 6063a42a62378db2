"""The command `async-hfl tune`, also when killed, and the commands that read its file."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import HANG_GUARD_S, PROGRAM, Call, Outcome, command

DIGITS = (
    *("--task", "digits", "--network", "uniform"),
    *(
        "--set",
        "task.devices=10",
        "--set",
        "network.gateways=2",
        "--set",
        "cloud.epochs=12",
        "--set",
        "task.target=0.85",
    ),
)
TUNE = ("tune", *DIGITS, "--methods", "semi-async", "--points", "4", "--workers", "2", "--json")
COMPARE = ("compare", *DIGITS, "--methods", "semi-async", "--workers", "2", "--out", "compared")
OWN_TASK = Path(__file__).parents[2] / "examples" / "own_jax.py"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A tuning that nobody interrupted."""
    where = tmp_path_factory.mktemp("tuned")
    done = command(*TUNE, "--output", "T.toml", cwd=where)
    assert done.code == 0, done.err
    return where, done


def without_time(done: Outcome) -> list[dict[str, Any]]:
    return [{**choice, "made": ""} for choice in done.json["choices"]]


def test_the_best_of_the_points_is_chosen(tuned: tuple[Path, Outcome]) -> None:
    where, done = tuned
    (choice,) = done.json["choices"]
    assert done.json["made"] == 8
    assert (choice["task"], choice["network"], choice["preset"], choice["name"]) == (
        *("digits", "uniform", "tight"),
        "semi-async",
    )
    assert (choice["points"], choice["seeds"]) == (4, [91, 92])
    assert [one["settings"] for one in choice["measured"]][:2] == [
        {"device.learning_rate": 0.05, "gateway.period": 100.0},
        {"device.learning_rate": 0.16, "gateway.period": 100.0},
    ]
    assert [one["reached"] for one in choice["measured"]] == [2, 2, 2, 2]
    assert choice["settings"] == min(choice["measured"], key=lambda one: one["time_s"])["settings"]
    rows = [json.loads(line) for line in (where / "runs" / "tune-digits" / "rows.jsonl").read_text().splitlines()]
    assert {row["seed"] for row in rows if row["digest"] in choice["digests"]} == {91, 92}
    assert {row["role"] for row in rows} == {"tuning"}


def test_a_killed_tuning_goes_on(tuned: tuple[Path, Outcome], tmp_path: Path) -> None:
    arguments = (*TUNE, "--output", "T.toml", "--rows", "kept.jsonl", "--discard-runs")
    child = subprocess.Popen([PROGRAM, *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = tmp_path / "kept.jsonl"
    guard = time.monotonic() + HANG_GUARD_S
    while child.poll() is None and not (rows.exists() and rows.read_bytes().count(b"\n")):
        assert time.monotonic() < guard, "the tuning does not get on"
        time.sleep(0.002)
    child.kill()
    child.wait()
    known = rows.read_bytes().count(b"\n")
    assert not (tmp_path / "T.toml").exists()
    again = command(*arguments, cwd=tmp_path)
    assert again.code == 0, again.err
    assert again.json["were_there"] >= known >= 1
    assert again.json["made"] + again.json["were_there"] == 8
    assert without_time(again) == without_time(tuned[1])
    assert not list((tmp_path / "runs" / "tune-digits" / "runs").iterdir())


def test_a_time_limit_stops_a_tuning(call: Call, tmp_path: Path) -> None:
    arguments = ("tune", "--task", "null", "--network", "uniform", "--methods", "two-tier", "--output", "T.toml")
    stopped = call(*arguments, "--limit-minutes", "1e-9", "--json")
    assert (stopped.code, stopped.json["complete"], stopped.json["stopped"]) == (0, False, "limit")
    told = call(*arguments, "--limit-minutes", "1e-9")
    assert told.out == "time limit reached: 0 runs are complete; the same command continues\n"
    assert not (tmp_path / "T.toml").exists()


def test_tables_name_what_was_tuned(tuned: tuple[Path, Outcome], call: Call, tmp_path: Path) -> None:
    file = str(tuned[0] / "T.toml")
    done = call(*COMPARE, "--tuning", file, "--untuned", "semi-async", "--seeds", "1", "--rows", "rows.jsonl")
    assert done.code == 0, done.err
    said, digest = " ".join(done.out.split()), tuned[1].json["digest"]
    assert f"Tuned on seeds 91, 92, which are not reported (tuning file {digest}): semi-async: device.learning_" in said
    text = (tmp_path / "compared" / "tables.md").read_text()
    assert text.count("* Tuned on seeds 91, 92") == text.count("\n## ") == 2
    assert f"--tuning {file} --untuned semi-async" in text
    page = (tmp_path / "compared" / "report.html").read_text()
    assert f"tuning file {digest}" in page
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    by_group = {row["group"]: row["tuned"] for row in rows}
    assert by_group["semi-async"]["digest"] == digest
    assert by_group["semi-async"]["settings"] == tuned[1].json["choices"][0]["settings"]
    assert by_group["semi-async, untuned, 50 s"] is None
    shown = call("rivals", "rows.jsonl", "--method", "semi-async", "--markdown", "page.md")
    assert shown.code == 0, shown.err
    assert "settings chosen" in (tmp_path / "page.md").read_text()


def test_no_result_on_a_seed_of_the_tuning(tuned: tuple[Path, Outcome], call: Call) -> None:
    refused = call(*COMPARE, "--tuning", str(tuned[0] / "T.toml"), "--seeds", "1,92")
    assert refused.code == 2
    assert "seed 92: the settings of semi-async were chosen on it" in refused.told()


def test_tunings_that_do_not_fit(tuned: tuple[Path, Outcome], call: Call) -> None:
    file = str(tuned[0] / "T.toml")
    for arguments, told in (
        (
            (*COMPARE, "--tuning", file, "--set", "gateway.period=3"),
            "--set gateway.period: the tuning file has a value",
        ),
        ((*COMPARE, "--untuned", "semi-async"), "--untuned: give --tuning FILE as well"),
        (("paper", "table6", "--quick", "--tuning", file), "has no settings for the methods on har"),
        ((*TUNE, "--output", "T.txt"), "--output T.txt: give a file that ends in .toml or .json"),
        ((*TUNE, "--output", "T.toml", "--points", "0"), "--points 0: must be at least 1"),
        (
            ("tune", "--methods", "two-tier", "--set", "device.learning_rate=1", "--output", "T.toml"),
            "two-tier: --set gives all settings that could be tuned",
        ),
        (("rivals", "none.jsonl"), "none.jsonl: cannot be read"),
    ):
        refused = call(*arguments)
        assert refused.code == 2
        assert told in refused.told()


def test_the_paper_with_tuned_settings(tuned: tuple[Path, Outcome], call: Call, tmp_path: Path) -> None:
    """Tune one method of an entry; the notes are below each of its tables."""
    where = ("--network", "nycmesh-paper", "--preset", "tight")
    small = ("--set", "task.devices=10", "--set", "cloud.epochs=2", "--workers", "1")
    made = call(
        "tune", "--task", "digits", *where, *small, "--methods", "async-random", "--points", "1", "--output", "T.json"
    )
    assert made.code == 0, made.err
    entry = ("paper", "fig7-right", "--quick", "--tasks", "digits", "--seeds", "1", *where, *small)
    done = call(*entry, "--tuning", "T.json", "--out", "p")
    assert done.code == 0, done.err
    text = (tmp_path / "p" / "fig7-right-tight-nycmesh-paper-quick" / "tables.md").read_text()
    assert text.count("* Tuned on seeds 91, 92") == text.count("\n## ")
    assert "async-random: device.learning_rate=0.05" in text
    assert "With packaged settings: async-hfl-selection" in text


PLAN = """
tasks = "null"
networks = "uniform"
tuning = "T.toml"
seeds = [1]
set = { task.devices = 8, task.target = 0.3, network.gateways = 2, cloud.epochs = 20 }

[[case]]
methods = "two-tier"

[[case]]
methods = "semi-async"
label = "with momentum"
role = "equipped"
set = { cloud.momentum = 0.5 }

[[case]]
methods = "two-tier"
label = "as packaged"
tuning = ""

[[case]]
methods = "semi-async"
label = "without"
role = "ablation"
base = "with momentum"
"""


def test_the_methods_and_labels_of_a_plan(call: Call, tmp_path: Path) -> None:
    """One plan is tuned, and then made with the tuned settings."""
    (tmp_path / "plan.toml").write_text(PLAN)
    made = call("tune", "--plan", "plan.toml", "--points", "3", "--workers", "1", "--output", "T.toml", "--json")
    assert made.code == 0, made.err
    relays, momentum = made.json["choices"]
    assert (relays["name"], list(relays["settings"])) == ("two-tier", ["device.learning_rate"])
    assert (momentum["name"], momentum["method"]) == ("with momentum", "semi-async")
    assert list(momentum["settings"]) == ["device.learning_rate", "gateway.period", "cloud.momentum"]
    done = call("sweep", "plan.toml", "--workers", "1", "--json")
    assert done.code == 0, done.err
    chosen = {row["group"]: row["tuned"] for row in done.json["panels"][0]["rows"]}
    assert chosen["two-tier"] == relays["settings"]
    assert chosen["with momentum"] == momentum["settings"]
    assert chosen["as packaged"] is None
    assert chosen["without"] == {key: momentum["settings"][key] for key in ("device.learning_rate", "gateway.period")}


@pytest.mark.parametrize(
    ("plan", "arguments", "told"),
    [
        (PLAN, ("--task", "har"), "--task: the plan says it; leave it out with --plan"),
        (PLAN, ("--set", "cloud.epochs=3"), "--set: the plan says it"),
        (f"vary.gateway.epochs = [1]{PLAN}", (), "leave out vary"),
        ('[case]\nmethods = "two-tier"\n', (), "write each case as a table, [[case]]"),
        ('methods = "two-tier"\ntuning = "T.toml"\n[[case]]\ntuning = ""\n', (), "has no case that could be tuned"),
        (
            'methods = "two-tier"\n[[case]]\n[[case]]\npanel = "churn"\nset.cloud.epochs = 3\n',
            (),
            "two-tier has different settings in digits",
        ),
    ],
)
def test_plans_that_cannot_be_tuned(
    plan: str, arguments: tuple[str, ...], told: str, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(plan)
    refused = call("tune", "--plan", "plan.toml", "--output", "T.toml", *arguments)
    assert refused.code == 2
    assert told in refused.told()


def test_a_task_of_ones_own(call: Call) -> None:
    task = ("--task", f"{OWN_TASK}:task", "--network", "uniform", "--methods", "two-tier")
    small = (*("--set", "task.devices=10", "--set", "network.gateways=2", "--set", "cloud.epochs=3"), "--workers", "1")
    made = call("tune", *task, *small, "--seeds", "7", "--points", "2", "--output", "T.json", "--json")
    assert made.code == 0, made.err
    (choice,) = made.json["choices"]
    assert (choice["task"], choice["seeds"], choice["points"]) == ("own_jax.py:task", [7], 2)
    done = call("compare", *task, *small, "--seeds", "1", "--tuning", "T.json", "--json")
    assert done.code == 0, done.err
    assert done.json["panels"][0]["rows"][0]["tuned"] == choice["settings"]
