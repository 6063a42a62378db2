"""Every task on its real data in a short federated run: the curve rises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import async_hfl

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("ASYNC_HFL_DATA" not in os.environ, reason="needs the data sets: set ASYNC_HFL_DATA"),
]

SHORT = {
    "digits": ["cloud.epochs=20"],
    "har": ["cloud.epochs=20"],
    "mnist": ["cloud.epochs=12", "task.devices=60", "task.samples_per_device=600"],
    "fashion-mnist": ["cloud.epochs=12", "task.devices=60", "task.samples_per_device=600"],
    # The proximal term of these two tasks holds a model so near its start that a short run would show nothing.
    "shakespeare": [
        *("cloud.epochs=5", "task.devices=60", "device.epochs=1", "device.batch_size=10"),
        *("device.learning_rate=0.1", "device.proximal_weight=0.0"),
    ],
    "hpwren": ["cloud.epochs=6", "device.epochs=1", "device.learning_rate=0.05"],
    "cifar10": [
        *("cloud.epochs=3", "task.devices=12", "task.samples_per_device=100", "task.normalisation=group"),
        *("task.partition=iid", "gateway.epochs=10", "device.epochs=1", "device.batch_size=20"),
        *("device.learning_rate=0.05", "device.proximal_weight=0.0"),
    ],
}
MOST_FREQUENT = 0.187
"""Of Shakespeare's characters: what one gets who always says the same. The first epoch is beyond it already."""


@pytest.mark.parametrize("task", SHORT)
def test_the_curve_rises(task: str, tmp_path: Path) -> None:
    run = async_hfl.run(task=task, method="async-hfl-plus", seed=1, overrides=SHORT[task], out=tmp_path / "run")
    metrics = [row["metric"] for row in run.epochs]
    first, last = metrics[0], sum(metrics[-3:]) / 3
    if task == "hpwren":
        assert last < 0.9 * first, "an error falls"
    elif task == "cifar10":
        assert max(metrics) > 0.12, "a thousand images are too few for more: it is better than chance, not a rise"
    elif task == "shakespeare":
        assert last > MOST_FREQUENT + 0.03
    else:
        assert last > first + 0.03
