"""A PyTorch module as a task of your own: each class of sounds is loud in one frequency band; two classes per device.

Run it from the directory above (needs `pip install 'async-hfl[torch]'`):

    async-hfl run --task examples/own_torch.py:task --seed 1 --set task.devices=20 --set device.learning_rate=0.05

Each core trains in its own process, which loads this file, so the data must depend on `seed` and nothing else.
"""

import numpy as np
import torch

from async_hfl import TorchTask


class Bands(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

    def forward(self, batch):
        return self.layers(batch)


def sounds(random, count):
    kind = random.integers(0, 4, count)
    return random.standard_normal((count, 16)) + 1.5 * (np.arange(16) // 4 == kind[:, None]), kind


def task(devices, seed):
    return TorchTask(
        model=Bands, loss="cross-entropy", metric="accuracy", target=0.9,
        train=sounds(np.random.default_rng(seed), 40 * devices),
        partition="by_class", arguments={"classes_per_device": 2},
        test=sounds(np.random.default_rng(0), 400),
    )  # fmt: skip
