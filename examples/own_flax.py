"""A Flax module as a task of your own: each device is a household with its own daily curve of power consumption.

Run it from the directory above (needs `pip install flax`):

    async-hfl run --task examples/own_flax.py:task --seed 1 --set device.learning_rate=0.05

For a `flax.nnx` module: `**async_hfl.from_nnx(lambda rngs: Module(rngs))`.
"""

import numpy as np
from flax import linen

from async_hfl import OwnTask, from_flax


class Forecast(linen.Module):
    @linen.compact
    def __call__(self, hours):
        return linen.Dense(1)(linen.tanh(linen.Dense(32)(hours)))


def day(random, shift, count):
    hour = random.uniform(0, 24, count)
    angle = 2 * np.pi * (hour - shift) / 24
    inputs = np.stack([np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)], axis=1)
    use = np.exp(np.cos(angle)) / 2 + 0.05 * random.standard_normal(count)
    return inputs, use[:, None]


HOUSEHOLDS = [day(np.random.default_rng(home), home % 4, 20 + home) for home in range(30)]

task = OwnTask(
    **from_flax(Forecast(), HOUSEHOLDS[0][0][:1]),
    loss="squared-error", metric="squared-error", target=0.02,
    shards=HOUSEHOLDS, test=day(np.random.default_rng(99), 1, 400),
)  # fmt: skip
