"""A task with an optimiser of its own, from optax: the wells of own_jax.py, by Lion with clipped gradients.

Run it from the directory above (`pip install optax` first):

    async-hfl run --task examples/own_optax.py:task --seed 1 --set task.devices=20 --set device.learning_rate=0.005

`optimiser` is a function of the learning rate, so that `device.learning_rate` and `central` work; it may also be a
transformation, whose learning rate is its own. Its state begins anew with each job.
"""

import jax
import numpy as np
import optax

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
        init=init, apply=apply, target=0.85, test=readings(np.random.default_rng(0), 500),
        train=readings(np.random.default_rng(seed), 50 * devices),
        optimiser=lambda rate: optax.chain(optax.clip_by_global_norm(1.0), optax.lion(rate)),
    )  # fmt: skip
