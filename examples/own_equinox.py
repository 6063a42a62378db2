"""An Equinox module as a task of your own, with its own loss and metric: is a point in the upper half of a ring?

Run it from the directory above (needs `pip install equinox`):

    async-hfl run --task examples/own_equinox.py:task --seed 1 --set device.learning_rate=0.1

The module is called with one sample; `from_equinox` maps it over a batch.
"""

import equinox as eqx
import jax
import numpy as np

from async_hfl import OwnTask, from_equinox


def ring(random, count):
    angle = random.uniform(-np.pi, np.pi, count)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) * random.uniform(1, 2, (count, 1)), angle > 0


def loss(outputs, upper):
    return jax.nn.softplus(outputs[:, 0] * (1 - 2 * upper))


def right(outputs, upper):
    return (outputs[:, 0] > 0) == upper


task = OwnTask(
    **from_equinox(lambda key: eqx.nn.MLP(in_size=2, out_size=1, width_size=16, depth=1, key=key)),
    loss=loss, metric=right, direction="at_least", target=0.97,
    shards=[ring(np.random.default_rng(device), 30) for device in range(24)],
    test=ring(np.random.default_rng(99), 500),
)  # fmt: skip
