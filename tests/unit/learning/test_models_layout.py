"""The sizes and initial weights of the models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from async_hfl.learning.models.cnn import cnn
from async_hfl.learning.models.lstm import character_lstm, series_lstm
from async_hfl.learning.models.mlp import mlp
from async_hfl.learning.models.model import Model
from async_hfl.learning.models.resnet import resnet18

MODELS: dict[str, tuple[Callable[[], Model], int, int]] = {
    "mlp": (lambda: mlp(561, 128, 6), 72_710, 0),
    "cnn": (cnn, 431_080, 0),
    "resnet18-batch": (lambda: resnet18("batch"), 11_173_962, 9_600),
    "resnet18-group": (lambda: resnet18("group"), 11_173_962, 0),
    "character-lstm": (character_lstm, 52_720, 0),
    "character-lstm-2": (lambda: character_lstm(layers=2), 133_520, 0),
    "series-lstm": (series_lstm, 74_252, 0),
}


@pytest.mark.parametrize(("make", "trained", "statistics"), MODELS.values(), ids=MODELS)
def test_parameter_counts_are_the_published_ones(make: Callable[[], Model], trained: int, statistics: int) -> None:
    model = make()
    assert model.trained_size == trained
    assert model.layout.size == trained + statistics
    assert model.bytes == 4 * (trained + statistics)


@pytest.mark.parametrize("make", [made[0] for made in MODELS.values()], ids=MODELS)
def test_first_weights_follow_the_stream(make: Callable[[], Model]) -> None:
    model = make()
    one, again, other = (model.init(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    assert one.dtype == np.float32


def bounds(model: Model) -> dict[str, tuple[float, float]]:
    """Smallest and largest initial value of each array."""
    arrays = model.layout.unflatten(model.init(np.random.default_rng(1)))
    return {name: (float(array.min()), float(array.max())) for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (cnn, {"first": 1 / 5, "second": 1 / 500**0.5, "hidden": 1 / 800**0.5, "output": 1 / 500**0.5}),
        (series_lstm, {"layer1": 1 / 128**0.5, "output": 1 / 128**0.5}),
        (lambda: character_lstm(layers=2), {"layer1": 1 / 10, "layer2": 1 / 10, "output": 1 / 10}),
        (resnet18, {"stem.weight": 1 / 27**0.5, "stage3.block1.shortcut.weight": 1 / 128**0.5, "output": 1 / 512**0.5}),
    ],
    ids=["cnn", "series-lstm", "character-lstm", "resnet18"],
)
def test_first_weights_as_pytorch_draws_them(make: Callable[[], Model], expected: dict[str, float]) -> None:
    found = bounds(make())
    for part, bound in expected.items():
        of_part = [values for name, values in found.items() if name.startswith(part)]
        assert of_part
        least, largest = min(low for low, _ in of_part), max(high for _, high in of_part)
        assert -bound <= least < -0.9 * bound
        assert 0.9 * bound < largest <= bound


def test_normalisation_starts_as_the_identity() -> None:
    model = resnet18()
    for name, values in model.layout.unflatten(model.init(np.random.default_rng(1))).items():
        if name.endswith((".scale", ".variance")):
            assert (values == 1).all()
        if name.endswith((".shift", ".mean")):
            assert not values.any()


def test_embedding_starts_normal() -> None:
    model = character_lstm()
    table = model.layout.unflatten(model.init(np.random.default_rng(1)))["embedding.weight"]
    assert abs(table.mean()) < 0.15
    assert 0.9 < table.std() < 1.1
