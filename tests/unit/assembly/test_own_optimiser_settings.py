"""Settings that the optimiser of a user's task replaces are refused, before optax is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from async_hfl.assembly.runs.central_run import train_task_centrally
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import SettingsError

FILE = """
import numpy as np
from async_hfl import OwnTask

X, Y = np.ones((8, 2)), np.arange(8) % 2

def made(**optimiser):
    return OwnTask(init=lambda r: {"w": np.zeros((2, 2))}, apply=lambda p, b: b @ p["w"], target=0.9,
                   shards=[(X, Y)] * 4, test=(X, Y), **optimiser)

function, transformation, none = made(optimiser=lambda rate: rate), made(optimiser=object()), made()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("name", "override", "told"),
    [
        ("function", "device.optimiser=adam", "an optimiser of its own; leave it out"),
        ("function", "device.momentum=0.5", "an optimiser of its own; leave it out"),
        ("transformation", "device.momentum=0.5", "an optimiser of its own; leave it out"),
        ("transformation", "device.learning_rate=0.5", "make it a function of the learning rate, or leave this out"),
    ],
)
def test_a_setting_that_is_not_read(name: str, override: str, told: str, file: Path) -> None:
    with pytest.raises(SettingsError, match=rf"{override.partition('=')[0]} \(--set .*mine\.py:{name} has .*{told}"):
        compose(task=f"{file}:{name}", overrides=[override])


@pytest.mark.parametrize("name", ["function", "none"])
def test_a_learning_rate_that_is_read(name: str, file: Path) -> None:
    settings = compose(task=f"{file}:{name}", overrides=["device.learning_rate=0.5"]).settings
    assert settings.device.learning_rate == 0.5


def test_central_needs_a_function_of_the_learning_rate(file: Path) -> None:
    settings = compose(task=f"{file}:transformation").settings
    with pytest.raises(SettingsError, match=r"transformation: optimiser: .*give a function of the learning rate"):
        train_task_centrally(settings, 1, None)
