"""The size of a client update for each task, and the number of clients of a call."""

from __future__ import annotations

from dataclasses import dataclass, replace

MOMENTUM = 0.9


@dataclass(frozen=True)
class Size:
    name: str
    """Name of the row in the table; a task may have several rows."""
    task: str
    samples: int
    epochs: int
    batch_size: int
    clients: int
    learning_rate: float
    proximal_weight: float
    weight_decay: float = 0.0
    momentum: float = MOMENTUM

    @property
    def update(self) -> str:
        return f"{self.samples} samples x {self.epochs}, batch {self.batch_size}"


# Learning rates and penalties are those of the library's tasks; samples, epochs and batches are the benchmark's own.
SIZES = (
    Size("digits", "digits", 24, 5, 32, 60, 0.05, 0.1),
    Size("har", "har", 300, 5, 32, 120, 0.003, 0.1),
    Size("mnist", "mnist", 600, 1, 32, 184, 0.01, 0.1),
    Size("shakespeare", "shakespeare", 256, 1, 32, 128, 0.01, 0.2),
    Size("hpwren", "hpwren", 512, 1, 32, 64, 0.001, 0.1),
    Size("cifar10", "cifar10", 128, 1, 32, 10, 0.001, 1.0, 5e-4),
)
MANY_RESNETS = Size("cifar10-50", "cifar10", 128, 1, 32, 50, 0.001, 1.0, 5e-4)
"""More than ten ResNets, for an accelerator."""
QUICK_SAMPLES = {"cifar10": 32}
"""A step of a ResNet-18 takes seconds on two cores."""


def wanted_sizes(
    tasks: list[str], *, accelerator: bool, quick: bool, task_settings: bool, clients: dict[str, int]
) -> list[Size]:
    """Return the sizes to measure. `task_settings`: with the epochs and batch sizes of the library's tasks."""
    found = []
    for size in (*SIZES, *([MANY_RESNETS] if accelerator and not quick else [])):
        if size.task not in tasks:
            continue
        if quick:
            size = replace(size, samples=QUICK_SAMPLES.get(size.task, size.samples))
        if task_settings:
            size = replace(size, epochs=5, batch_size=32 if size.task in ("digits", "hpwren") else 100)
        found.append(replace(size, clients=clients.get(size.name, size.clients)))
    return found
