"""`async-hfl data show`: the distribution of data over devices."""

from __future__ import annotations

from pathlib import Path

from command_line import Call

OWN = """
import numpy as np
from async_hfl import OwnTask

def task(devices, seed):
    x = np.random.default_rng(seed).standard_normal((10 * devices, 2))
    return OwnTask(init=lambda random: {"w": np.zeros((2, 2))}, apply=lambda p, b: b @ p["w"], target=0.9,
                   train=(x, x[:, 0] > 0), test=(x, x[:, 0] > 0), class_names=("left", "right"))
"""


def test_picture_and_text(call: Call, tmp_path: Path) -> None:
    done = call("data", "show", "--task", "digits")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "digits over 60 devices, by_class, seed 1",
        "22 to 25 samples per device, 1,437 in total; 1,437 of the 1,437 training samples are on a device",
        "2 of 10 classes per device, 12 devices per class",
        "picture: digits-devices.png",
    ]
    assert (tmp_path / "digits-devices.png").read_bytes().startswith(b"\x89PNG")


def test_the_distribution_is_that_of_a_run(call: Call, tmp_path: Path) -> None:
    done = call(
        "data", "show", "--task", "digits", "--devices", "8", "--seed", "4", "--out", "some.svg", "--json",
        "--set", "task.partition=dirichlet", "--set", "task.dirichlet_alpha=5",
    )  # fmt: skip
    found = done.json
    assert (found["partition"], found["devices"], found["seed"]) == ("dirichlet", 8, 4)
    assert len(found["counts"]) == 8
    assert sum(map(sum, found["counts"])) == 1437
    assert found["picture"] == "some.svg"
    assert (tmp_path / "some.svg").is_file()


def test_a_task_of_the_user(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    found = call("data", "show", "--task", "own.py:task", "--devices", "6", "--json").json
    assert found["class_names"] == ["left", "right"]
    assert [sum(row) for row in found["counts"]] == [10] * 6
    assert (tmp_path / "own-devices.png").is_file()


def test_mistakes(call: Call) -> None:
    for arguments, told in (
        (("--out", "some.jpeg"), "must end in .png, .svg or .pdf"),
        (("--out", "nowhere/some.png"), "nowhere/some.png: cannot be written"),
        (("--task", "null"), "the task null has no data to show"),
        (("--task", "own.py:task"), "there is no file own.py"),
        (("--devices", "0"), "task.devices = 0"),
        (("--devices", "4"), "use at least 5 devices, or 3 classes each (task.classes_per_device)"),
        (("--set", "task.dirichlet_alpha=5"), "task.dirichlet_alpha"),
    ):
        done = call("data", "show", *arguments)
        assert done.code == 2
        assert told in done.told()
