"""A target that the metric cannot reach is refused by every command that composes settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Call

from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import AsyncHflError, SettingsError
from async_hfl.learning.tasks.catalogue import TASKS, TaskOptions, build_task

ACCURACY = (
    "the metric of the task digits is accuracy, which is between 0 and 1; did you mean 0.9?",
    "task.target = 90 (--set task.target=90)",
)
PLAN = """
tasks = "digits"
methods = ["async-random"]

[set]
task.target = 90
"""
OWN = """
import numpy as np
import async_hfl

def close(outputs, targets):
    return outputs[:, 0]

def made(metric, target, direction=None):
    return async_hfl.OwnTask(
        init=lambda random: {"w": np.zeros((2, 2), np.float32)}, apply=lambda p, x: x @ p["w"], metric=metric,
        target=target, direction=direction, train=(np.zeros((9, 2)), np.arange(9) % 2),
        test=(np.zeros((9, 2)), np.arange(9) % 2),
    )

percent = made("accuracy", 90)
share = made("accuracy", 0.9)
error = made("squared-error", -1.0)
own = made(close, 90, "at_least")
loss = made("loss", -5.0)
"""


def test_every_command_that_composes_settings(call: Call) -> None:
    Path("plan.toml").write_text(PLAN)
    wrong = ("--set", "task.target=90")
    for arguments in (
        ("run", *wrong),
        ("central", *wrong),
        ("cluster", *wrong, "--insecure"),
        ("cloud", *wrong, "--insecure"),
    ):
        done = call(*arguments)
        assert done.code == 2
        for part in ACCURACY:
            assert part in done.told()
    for arguments in (("sweep", "plan.toml"), ("compare", "--target", "90")):
        done = call(*arguments)
        assert done.code == 2
        assert ACCURACY[0] in done.told()
    assert [entry.name for entry in Path().iterdir()] == ["plan.toml"]


@pytest.mark.parametrize(
    ("target", "nearest"), [("90", "0.9"), ("10", "0.1"), ("1.1", "1"), ("900", "1"), ("-0.5", "0")]
)
def test_the_nearest_value(target: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match=rf"did you mean {nearest}\?"):
        compose(task="digits", overrides=[f"task.target={target}"])


def test_an_error_has_no_highest_value() -> None:
    assert compose(task="hpwren", overrides=["task.target=1000"]).settings.task.target == 1000
    with pytest.raises(SettingsError, match=r"hpwren is mse, which is at least 0; did you mean 0\?"):
        compose(task="hpwren", overrides=["task.target=-1"])


def test_the_bounds_themselves_can_be_targets() -> None:
    assert [compose(task="digits", overrides=[f"task.target={at}"]).settings.task.target for at in (0, 1)] == [0, 1]


def test_tasks_of_users(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    with pytest.raises(SettingsError, match=r"task\.target = 90 \(task .*percent\).* is accuracy.*did you mean 0\.9\?"):
        compose(task=f"{file}:percent")
    with pytest.raises(SettingsError, match=r"task\.target = 70 \(--set .*did you mean 0\.7\?"):
        compose(task=f"{file}:share", overrides=["task.target=70"])
    with pytest.raises(SettingsError, match="squared-error, which is at least 0"):
        compose(task=f"{file}:error")
    for name, target in (("share", 0.9), ("own", 90), ("loss", -5.0)):
        assert compose(task=f"{file}:{name}").settings.task.target == target


@pytest.mark.parametrize(
    ("task", "ladder", "wrong"),
    [
        ("digits", "[0.8, 85]", r"task.ladder = 85 \(--set .*\): .* between 0 and 1; did you mean 0.85\?"),
        ("digits", "[0.8, 0.9, 0.85]", r"0.85 follows 0.9 \(--set .*ascending, since the metric shall be at least"),
        ("digits", "[0.8, 0.8]", "0.8 follows 0.8"),
        ("digits", "[0.8, nan]", "task.ladder = nan .*finite"),
        ("digits", "0.8", "task.ladder"),
        ("hpwren", "[0.1, 0.2]", "0.2 follows 0.1 .*descending, since the metric shall be at most"),
        ("hpwren", "[0.1, -0.2]", "task.ladder = -0.2"),
    ],
)
def test_a_ladder_that_no_run_can_climb(task: str, ladder: str, wrong: str) -> None:
    with pytest.raises(SettingsError, match=wrong):
        compose(task=task, overrides=[f"task.ladder={ladder}"])


def test_every_built_in_task_has_a_ladder_with_its_target() -> None:
    for task in TASKS:
        settings = compose(task=task).settings.task
        assert len(settings.ladder) >= 4
        assert settings.target in settings.ladder
    assert compose(task="digits", overrides=["task.ladder=[]"]).settings.task.ladder == ()


def test_the_ladder_of_a_users_task(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    steps = {"up": "[0.5, 0.7]", "down": "[0.7, 0.5]", "high": "[0.5, 70]", "words": "['good']"}
    made = [f'{name} = made("accuracy", 0.9, ladder={ladder})' for name, ladder in steps.items()]
    made += ['error = made("squared-error", 1.0, ladder=(3, 2))', 'own = made(close, 9, "at_most", ladder=(8, 9))']
    own = OWN.replace("direction=None):", "direction=None, ladder=()):").replace(
        "target=target,", "target=target, ladder=ladder,"
    )
    file.write_text("\n".join([own.partition("percent =")[0], 'plain = made("accuracy", 0.9)', *made]))
    assert compose(task=f"{file}:plain").settings.task.ladder == ()
    assert compose(task=f"{file}:up").settings.task.ladder == (0.5, 0.7)
    assert compose(task=f"{file}:error").settings.task.ladder == (3.0, 2.0)
    assert compose(task=f"{file}:up", overrides=["task.ladder=[0.6]"]).settings.task.ladder == (0.6,)
    for name, wrong in {
        "down": "0.5 follows 0.7 .task .*ascending",
        "high": "task.ladder = 70 .*did you mean 0.7",
        "words": "ladder: is .'good'.; give a list of numbers",
        "own": "9 follows 8 .*descending",
    }.items():
        with pytest.raises(SettingsError if name != "words" else AsyncHflError, match=wrong):
            compose(task=f"{file}:{name}")


def test_the_metrics_that_are_known_without_the_data() -> None:
    built = build_task("digits", 5, 1, TaskOptions(0.9, "iid"))
    assert built.objective.metric == TASKS["digits"].metric == "accuracy"
    assert [name for name, task in TASKS.items() if task.metric != "accuracy"] == ["hpwren"]
