"""A small task in PyTorch whose model has statistics and dropout, and is large enough to be stored as a payload."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from async_hfl import TorchTask

INPUTS, HIDDEN, CLASSES = 16, 64, 4


def model() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN),
        torch.nn.BatchNorm1d(HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(HIDDEN, CLASSES),
    )


def sounds(seed: int, count: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    kind = random.integers(0, CLASSES, count)
    return random.standard_normal((count, INPUTS)) + 1.5 * (np.arange(INPUTS) // 4 == kind[:, None]), kind


def task(devices: int, seed: int) -> TorchTask:
    arguments = {"alpha": 1.0, "min_partition_size": 10}
    data = {"train": sounds(seed, 60 * devices), "test": sounds(0, 400)}
    return TorchTask(model=model, target=1.0, partition="dirichlet", arguments=arguments, **data)
