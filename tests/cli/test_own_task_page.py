"""The Python code, commands and tables of docs/own-task.md."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Call

from async_hfl import OwnTask
from async_hfl.learning.partition.registry import PARTITIONERS

PAGE = (Path(__file__).parents[2] / "docs" / "own-task.md").read_text()


@pytest.fixture
def place(call: Call, tmp_path: Path) -> Path:
    [block] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "my_task.py").write_text(block)
    return tmp_path


def test_the_commands_of_the_page(call: Call, place: Path) -> None:
    [block] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    commands = [line.partition("#")[0].split()[1:] for line in block.splitlines()]
    assert [command[0] for command in commands] == ["run", "data", "central"]
    for command in commands:
        short = ["--set", "central.epochs=3"] if command[0] == "central" else []
        done = call(*command, *short, "--json")
        assert done.code == 0, done.err
        if command[0] == "run":
            assert done.json["target_reached"]


def test_the_example_is_not_tested_on_what_it_trains_on(place: Path) -> None:
    space: dict[str, Any] = {"__name__": "page"}
    exec(compile((place / "my_task.py").read_text(), "my_task.py", "exec"), space)
    made = space["task"](12, 1)
    both = {row.tobytes() for row in made.train[0]} & {row.tobytes() for row in made.test[0]}
    assert (len(made.train[0]), len(made.test[0]), both) == (360, 200, set())


def test_the_table_of_attributes() -> None:
    table = PAGE.partition("| attribute | what it is |")[2].partition("\n\n")[0]
    named = {
        name.partition("(")[0] for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert named == {field.name for field in dataclasses.fields(OwnTask)}


def test_the_table_of_partitions() -> None:
    table = PAGE.partition("| `partition` |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:3]] for row in table.splitlines()[2:]]
    assert [name.strip("`") for name, _ in rows] == list(PARTITIONERS)
    for name, settings in rows:
        pairs = [pair.replace("`", "").split(" = ") for pair in settings.split(", ")]
        told = {pair[0]: pair[-1] for pair in pairs}
        assert told == dict(PARTITIONERS[name.strip("`")].arguments)


def test_a_run_resumes_only_with_the_same_file(call: Call, place: Path) -> None:
    short = ("--set", "task.devices=12", "--set", "cloud.epochs=3")
    done = call("run", "--task", "my_task.py:task", *short, "--out", "one", "--json")
    assert done.code == 0, done.err
    assert done.json["task"] == "my_task.py:task"
    (place / "one" / "summary.json").unlink()
    again = call("resume", "one", "--json")
    assert again.code == 0, again.err
    assert again.json["digest"] == done.json["digest"]
    (place / "one" / "summary.json").unlink()
    (place / "my_task.py").write_text((place / "my_task.py").read_text() + "\n# changed\n")
    assert "my_task.py: has changed since the run began" in call("resume", "one").told()


FIXED = """
import numpy as np
from async_hfl import OwnTask

x = np.random.default_rng(1).standard_normal((70, 8))
task = OwnTask(init=lambda random: {"w": np.zeros((8, 3))}, apply=lambda p, batch: batch @ p["w"], target=0.66,
               shards=[(x[i::7], x[i::7, :3].argmax(axis=1)) for i in range(7)], test=(x, x[:, :3].argmax(axis=1)))
"""


def test_devices_and_target_come_from_the_file(call: Call, place: Path) -> None:
    (place / "fixed.py").write_text(FIXED)
    done = call("run", "--task", "fixed.py:task", "--out", "two", "--set", "cloud.epochs=2", "--json")
    assert done.code == 0, done.err
    settings = json.loads((place / "two" / "manifest.json").read_text())["settings"]["task"]
    assert (settings["devices"], settings["target"]) == (7, 0.66)
    told = call("run", "--task", "fixed.py:task", "--set", "task.devices=9").told()
    assert "fixed.py:task: shards: 7 shards for 9 devices; run it with --set task.devices=7" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--task", "my_task.py:tusk"), "my_task.py has no 'tusk'; it has: "),
        (("--task", "my_tusk.py:task"), "there is no file my_tusk.py"),
        (("--task", "my_task.py"), "write it as FILE.py:TASK"),
        (("--task", "my_task.py:task", "--set", "task.partition=iid"), "the task my_task.py:task does not read it"),
        (("--task", "my_task.py:task", "--set", "task.devices=0"), "task.devices = 0"),
        (("--task", "my_task.py:np"), "my_task.py:np: task: is a numpy; give an async_hfl.OwnTask"),
    ],
)
def test_mistakes(call: Call, place: Path, arguments: tuple[str, ...], told: str) -> None:
    done = call("run", *arguments)
    assert done.code == 2
    assert told in done.told()


def test_an_error_in_the_users_code_names_the_line(call: Call, place: Path) -> None:
    text = (place / "my_task.py").read_text().replace('parameters["b"]', 'parameters["c"]')
    (place / "my_task.py").write_text(text)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if '["c"]' in row)
    told = call("run", "--task", "my_task.py:task").told()
    assert f"my_task.py:task: apply: raised KeyError: 'c' (line {line} of my_task.py)" in told


def test_shapes_that_would_broadcast_are_refused_before_anything_is_trained(call: Call) -> None:
    regression = FIXED.replace(", :3].argmax(axis=1)", ", 0]").replace("(8, 3)", "(8, 1)")
    Path("fixed.py").write_text(regression.replace("target=0.66", 'target=0.66, loss="squared-error", metric="loss"'))
    for command in ("run", "central"):
        done = call(command, "--task", "fixed.py:task")
        assert done.code == 2
        assert "3 samples gave outputs of shape (3, 1) and targets of shape (3,); reshape one of them" in done.told()
        assert done.out == ""
    assert not Path("runs").exists()
