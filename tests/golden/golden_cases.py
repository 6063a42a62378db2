"""Small local trainings for two implementations: the engine in JAX and an independent one in PyTorch. Needs numpy only.

All numbers are drawn from uniform doubles, the part of numpy's generators that is least likely to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
FILE = Path(__file__).parent / "local_training.npz"
PROJECTIONS = 6
ENTRIES = 6


@dataclass(frozen=True)
class Case:
    name: str
    samples: int
    input_shape: tuple[int, ...]
    outputs: int
    """Number of classes, or of values in a regression."""
    regression: bool = False
    symbols: int = 0
    """Number of symbols if the inputs are symbols; 0: the inputs are floats."""
    epochs: int = 2
    batch_size: int = 4
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.01
    proximal_weight: float = 0.3

    @property
    def coefficients(self) -> tuple[float, ...]:
        return self.learning_rate, self.momentum, self.weight_decay, self.proximal_weight

    @property
    def steps(self) -> int:
        return -(-self.samples // self.batch_size)


CASES = (
    Case("mlp", 11, (561,), 6, epochs=3),
    Case("cnn", 10, (28, 28, 1), 10),
    # At random weights the gradient of a ResNet is much larger than after an epoch of training.
    Case("resnet18-batch", 5, (32, 32, 3), 10, epochs=1, batch_size=3, learning_rate=0.002),
    Case("resnet18-group", 3, (32, 32, 3), 10, epochs=1, batch_size=2, learning_rate=0.002),
    Case("character-lstm", 10, (80,), 80, symbols=80),
    Case("character-lstm-2", 6, (20,), 80, symbols=80),
    Case("series-lstm", 10, (48, 12), 12, regression=True),
)


def uniform(case: Case, seed: int, what: str, shape: tuple[int, ...]) -> Floats:
    """Draw numbers in [-1, 1) from a stream with this name, so that the order of drawing does not matter."""
    return 2 * np.random.default_rng([seed, crc32(f"{case.name}/{what}".encode())]).random(shape) - 1


def data(case: Case, seed: int) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    """Return inputs and targets."""
    shape = (case.samples, *case.input_shape)
    inputs: npt.NDArray[np.generic] = uniform(case, seed, "inputs", shape)
    if case.symbols:
        inputs = ((inputs + 1) / 2 * case.symbols).astype(np.uint8)  # type: ignore[operator]
    if case.name == "cnn":
        inputs[:, 14:] = -0.4  # a uniform background, where all four values of a pooling window are equal
    targets = uniform(case, seed, "targets", (case.samples, case.outputs) if case.regression else (case.samples,))
    return inputs, targets if case.regression else ((targets + 1) / 2 * case.outputs).astype(np.int32)


def start(case: Case, seed: int, name: str, shape: tuple[int, ...]) -> Floats:
    """Return the initial values of an array of the engine's layout."""
    drawn = uniform(case, seed, f"start/{name}", shape)
    if name.endswith((".scale", ".variance")):
        return 1 + 0.2 * drawn
    if len(shape) == 1 or name.startswith("embedding"):
        return 0.2 * drawn
    return drawn * np.sqrt(3 / np.prod(shape[:-1]))


def orders(case: Case, seed: int) -> npt.NDArray[np.int32]:
    """Return the sample order as (passes, steps, batch size): a random order for each epoch, then the stored order.

    Incomplete batches are padded with row 0."""
    passes = np.zeros((case.epochs + 1, case.steps * case.batch_size), dtype=np.int32)
    for epoch in range(case.epochs):
        passes[epoch, : case.samples] = np.argsort(uniform(case, seed, f"order/{epoch}", (case.samples,)))
    passes[-1, : case.samples] = np.arange(case.samples)
    return passes.reshape(case.epochs + 1, case.steps, case.batch_size)


@dataclass(frozen=True)
class Outcome:
    """The results of one implementation, by the names of the engine's layout."""

    displacement: Mapping[str, Floats]
    """Final minus initial values."""
    gradient: Mapping[str, Floats]
    sums: Floats
    """Sums of loss and squared loss over the last epoch."""


def digest(case: Case, seed: int, what: str, array: Floats) -> Floats:
    """Return a few numbers that identify an array: its norm, products with unit vectors, some entries."""
    flat = array.reshape(-1)
    vectors = uniform(case, seed, f"projection/{what}", (PROJECTIONS, flat.size))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    places = np.linspace(0, flat.size - 1, ENTRIES).astype(int)
    return np.concatenate([[np.linalg.norm(flat)], vectors @ flat, flat[places]])


def digests(case: Case, seed: int, outcome: Outcome) -> dict[str, Floats]:
    """Return the digests of all arrays, sorted by name."""
    found = {"sums": outcome.sums}
    for kind, arrays in (("displacement", outcome.displacement), ("gradient", outcome.gradient)):
        for name, array in arrays.items():
            found[f"{kind}/{name}"] = digest(case, seed, f"{kind}/{name}", array)
    return dict(sorted(found.items()))
