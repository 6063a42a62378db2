"""The same local training by the engine's own function, in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from golden_cases import Case, Outcome, data, orders, start

from async_hfl.learning.backend import jax
from async_hfl.learning.local_training import local_training
from async_hfl.learning.models.cnn import cnn
from async_hfl.learning.models.lstm import character_lstm, series_lstm
from async_hfl.learning.models.mlp import mlp
from async_hfl.learning.models.model import Model
from async_hfl.learning.models.resnet import resnet18
from async_hfl.learning.objectives import classification, regression
from async_hfl.learning.recipe import Shape
from async_hfl.learning.resident import Resident

FORMS: dict[str, dict[str, Callable[[], Model]]] = {
    "mlp": {"": lambda: mlp(561, 128, 6)},
    "cnn": {"": cnn, "banded": lambda: cnn(banded=True)},
    "resnet18-batch": {"": lambda: resnet18("batch")},
    "resnet18-group": {"": lambda: resnet18("group")},
    "character-lstm": {"": character_lstm, "hoisted": lambda: character_lstm(hoisted=True, unroll=4)},
    "character-lstm-2": {"": lambda: character_lstm(layers=2)},
    "series-lstm": {"": series_lstm, "hoisted": lambda: series_lstm(hoisted=True, unroll=4)},
}
"""By case: the models, each in every form it can be written in."""


def train(case: Case, seed: int, form: str = "") -> Outcome:
    model = FORMS[case.name][form]()
    layout = model.layout
    first = {name: start(case, seed, name, shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}
    objective = regression(case.outputs) if case.regression else classification(case.outputs)
    inputs, targets = data(case, seed)
    with jax.enable_x64(True):
        ours = jax.jit(local_training(model, objective, Shape(case.epochs, case.batch_size, gradient=True)))
        trained = ours(
            Resident(inputs, targets, None, None, None),
            np.array(case.coefficients),
            np.concatenate([values.reshape(-1) for values in first.values()]),
            # In double precision JAX counts in 64 bits too.
            orders(case, seed).astype(np.int64),
            np.int64(case.samples),
        )
    weights, sums, gradient = (np.asarray(part) for part in trained)
    assert weights.dtype == np.float64
    final = layout.unflatten(weights)  # type: ignore[arg-type]
    by_name, place = {}, 0
    for name in model.trained:
        by_name[name] = gradient[place : place + first[name].size]
        place += first[name].size
    assert place == len(gradient)
    return Outcome({name: final[name] - first[name] for name in layout.names}, by_name, sums)
