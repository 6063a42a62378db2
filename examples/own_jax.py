"""A task of your own in plain JAX: tell from three readings which of three wells a water sample is from.

Run it from the directory above:

    async-hfl run --task examples/own_jax.py:task --seed 1 --set task.devices=20 --set device.learning_rate=0.1

Devices have unequal mixtures of wells. docs/own-task.md describes tasks; each is checked before the run begins.
"""

import jax
import numpy as np

from async_hfl import OwnTask

WELLS = np.array([[0.0, 2.0, 1.0], [2.0, 0.0, -1.0], [-2.0, -1.0, 0.0]])


def readings(random, count):
    well = random.integers(0, 3, count)
    return WELLS[well] + random.standard_normal((count, 3)), well


def init(random):
    return {"hidden": random.standard_normal((3, 16)) * 0.5, "out": random.standard_normal((16, 3)) * 0.2}


def apply(parameters, batch):
    return jax.nn.relu(batch @ parameters["hidden"]) @ parameters["out"]


def task(devices, seed):
    return OwnTask(
        init=init, apply=apply, loss="cross-entropy", metric="accuracy", target=0.85,
        train=readings(np.random.default_rng(seed), 50 * devices), partition="dirichlet",
        arguments={"dirichlet_alpha": 0.5, "min_samples_per_device": 5},
        test=readings(np.random.default_rng(0), 500),
    )  # fmt: skip
