"""A PyTorch module as a task of your own: one class of sound is louder in each frequency band, two classes a device.

Run it from the directory above (needs `pip install 'async-hfl[torch]'`):

    async-hfl run --task examples/own_torch.py:task --seed 1 --set task.devices=20 --set device.learning_rate=0.05

Every core trains in a process of its own, which loads this file: draw by `seed`, and by nothing else.
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
