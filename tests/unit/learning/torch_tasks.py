"""Tasks in PyTorch for the tests: the training processes import them from here by name."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

from async_hfl.learning.own.task import TorchTask

SIZES = (24, 1, 70, 32, 33, 5)
INPUTS, HIDDEN, CLASSES = 6, 5, 3


def arrays() -> tuple[Any, Any]:
    random = np.random.default_rng(5)
    total = sum(SIZES)
    return random.standard_normal((total, INPUTS)).astype(np.float32), random.integers(0, CLASSES, total)


def shards() -> list[tuple[Any, Any]]:
    x, y = arrays()
    stops = np.cumsum(SIZES)
    return [(x[stop - size : stop], y[stop - size : stop]) for size, stop in zip(SIZES, stops, strict=True)]


def perceptron() -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES))


def small(**changed: Any) -> TorchTask:
    x, y = arrays()
    given: dict[str, Any] = {"model": perceptron, "shards": shards(), "test": (x, y), "target": 0.9, **changed}
    return TorchTask(**given)


def normalised_everywhere() -> TorchTask:
    """Some last batches have one sample, and one device has no other."""
    return small(model=normalised().model)


def normalised() -> TorchTask:
    import torch

    def model() -> Any:
        return torch.nn.Sequential(
            torch.nn.Linear(INPUTS, HIDDEN),
            torch.nn.BatchNorm1d(HIDDEN),
            torch.nn.Dropout(0.3),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, CLASSES),
        )

    return small(model=model, shards=[pair for pair in shards() if len(pair[0]) == 32])


def regression() -> TorchTask:
    import torch

    x, _ = arrays()
    values = (x @ np.arange(INPUTS)).astype(np.float32)[:, None]
    return small(
        model=lambda: torch.nn.Linear(INPUTS, 1),
        loss="squared-error",
        metric="absolute-error",
        target=0.1,
        shards=None,
        train=(x, values),
        test=(x, values),
    )


def in_columns(**changed: Any) -> TorchTask:
    """Outputs of shape (n, 1), targets of shape (n,)."""
    import torch

    x, _ = arrays()
    values = (x @ np.arange(INPUTS)).astype(np.float32)
    given: dict[str, Any] = {"shards": None, "train": (x, values), "test": (x, values), "direction": "at_most"}
    return small(model=lambda: torch.nn.Linear(INPUTS, 1), **{**given, **changed})


def first_output(outputs: Any, targets: Any) -> Any:
    return (outputs[:, 0] - targets) ** 2


def broadcast(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).mean(dim=1)


def loss_broadcasts() -> TorchTask:
    return in_columns(loss="squared-error", metric="loss")


def metric_broadcasts() -> TorchTask:
    return in_columns(loss=first_output, metric="absolute-error")


def own_loss_broadcasts() -> TorchTask:
    return in_columns(loss=broadcast, metric="loss")


def own_metric_broadcasts() -> TorchTask:
    return in_columns(loss=first_output, metric=broadcast)


def own_loss_of_a_column() -> TorchTask:
    return in_columns(loss=first_output, metric=first_output)


def quarter() -> TorchTask:
    def accuracy(outputs: Any, targets: Any) -> Any:
        return outputs[:, 0] * 0 + 0.25

    return small(metric=accuracy, direction="at_least")


def other_data_each_time() -> TorchTask:
    x, y = arrays()
    return small(test=(x + os.getpid(), y))


def wrong_loss() -> TorchTask:
    import torch

    return small(loss=torch.nn.functional.cross_entropy)


def wrong_metric() -> TorchTask:
    import torch

    return small(metric=torch.nn.functional.cross_entropy, direction="at_most")


def raises() -> TorchTask:
    def model() -> Any:
        raise ValueError("no such layer")

    return small(model=model)


def not_a_module() -> TorchTask:
    return small(model=dict)


def few_outputs() -> TorchTask:
    import torch

    return small(model=lambda: torch.nn.Linear(INPUTS, 2))


def dies_in_training() -> TorchTask:
    import torch

    class Deadly(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron()

        def forward(self, batch: Any) -> Any:
            if len(batch) > 3:  # not while it is being tried
                os.kill(os.getpid(), signal.SIGKILL)
            return self.inner(batch)

    return small(model=Deadly)


def images() -> TorchTask:
    """Convolutions, batch normalisation and dense layers."""
    import torch

    def model() -> Any:
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3, bias=False),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(16 * 4, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, CLASSES),
        )

    random = np.random.default_rng(11)
    kind = random.integers(0, CLASSES, sum(SIZES))
    pattern = random.standard_normal((CLASSES, 1, 8, 8))
    x = (random.standard_normal((len(kind), 1, 8, 8)) + pattern[kind]).astype(np.float32)
    stops = np.cumsum(SIZES)
    parts = [(x[stop - size : stop], kind[stop - size : stop]) for size, stop in zip(SIZES, stops, strict=True)]
    return small(model=model, shards=parts, test=(x, kind))


def sequences() -> TorchTask:
    """A recurrent layer, whose parameters are a part of the flat vector."""
    import torch

    class Recurrent(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(1, HIDDEN, num_layers=2, batch_first=True)
            self.output = torch.nn.Linear(HIDDEN, CLASSES)

        def forward(self, batch: Any) -> Any:
            steps, _ = self.lstm(batch[:, :, None])
            return self.output(steps[:, -1])

    return small(model=Recurrent)


def weighted() -> TorchTask:
    """A loss with a constant that stays on the processor."""
    import torch

    weights = torch.tensor([1.0, 2.0, 3.0])
    return small(loss=lambda o, t: torch.nn.functional.cross_entropy(o, t, weight=weights, reduction="none"))
