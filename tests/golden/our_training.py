"""The golden cases trained by the engine's `LocalTraining`, in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from golden_cases import Case, Outcome, data, orders, start

from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.device_data import DeviceSamples
from async_hfl.learning.engine.local_training import LocalTraining, Progress
from async_hfl.learning.engine.plans.step_chunks import step_chunks
from async_hfl.learning.engine.recipe import StaticHyperparameters
from async_hfl.learning.evaluation.objectives import classification, regression
from async_hfl.learning.models.cnn import cnn
from async_hfl.learning.models.lstm import character_lstm, series_lstm
from async_hfl.learning.models.mlp import mlp
from async_hfl.learning.models.model import Model
from async_hfl.learning.models.resnet import resnet18

FORMS: dict[str, dict[str, Callable[[], Model]]] = {
    "mlp": {"": lambda: mlp(561, 128, 6)},
    "cnn": {"": cnn, "in blocks": lambda: cnn(in_blocks=True)},
    "resnet18-batch": {"": lambda: resnet18("batch")},
    "resnet18-group": {"": lambda: resnet18("group")},
    "character-lstm": {"": character_lstm, "unrolled": lambda: character_lstm(unroll=4)},
    "character-lstm-2": {"": lambda: character_lstm(layers=2)},
    "series-lstm": {"": series_lstm, "unrolled": lambda: series_lstm(unroll=4)},
}
"""The models of each case, in every form that computes the same function."""


def train(case: Case, seed: int, form: str = "", chunk: int | None = None) -> Outcome:
    """Train in one call as on a CPU, or in chunks of `chunk` steps as on an accelerator."""
    model = FORMS[case.name][form]()
    layout = model.layout
    first = {name: start(case, seed, name, shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}
    objective = regression(case.outputs) if case.regression else classification(case.outputs)
    inputs, targets = data(case, seed)
    job = LocalTraining(model, objective, StaticHyperparameters(case.epochs, case.batch_size, gradient=True))
    flat = np.concatenate([values.reshape(-1) for values in first.values()])
    with jax.enable_x64(True):
        samples_on_device, coefficients = DeviceSamples(inputs, targets, None, None, None), np.array(case.coefficients)
        # In double precision JAX uses 64-bit integers, too.
        rows, samples = orders(case, seed).astype(np.int64), np.int64(case.samples)
        if chunk is None:
            trained: Sequence[Any] = jax.jit(job)(samples_on_device, coefficients, flat, rows, samples)
        else:
            trained = _in_chunks(job, chunk, samples_on_device, coefficients, flat, rows, samples)
    weights, sums, gradient = (np.asarray(part) for part in trained)
    assert weights.dtype == np.float64
    final = layout.unflatten(weights)  # type: ignore[arg-type]
    by_name, place = {}, 0
    for name in model.trained:
        by_name[name] = gradient[place : place + first[name].size]
        place += first[name].size
    assert place == len(gradient)
    return Outcome({name: final[name] - first[name] for name in layout.names}, by_name, sums)


def _in_chunks(
    job: LocalTraining, chunk: int, data: DeviceSamples, coefficients: Any, start: Any, orders: Any, samples: Any
) -> tuple[Any, ...]:
    static = job.static
    steps = np.array([static.steps_per_epoch(int(samples))])
    advance, add = jax.jit(job.advance), jax.jit(job.add_gradient)
    received, statistics = job.named(start)
    nothing = {name: np.zeros_like(values) for name, values in received.items()}
    progress: Any = Progress(received, statistics, nothing, np.zeros(2))
    for number, (turn, step) in enumerate(step_chunks(steps, range(static.epochs), chunk)):
        rows = orders[turn[0], step[0]]
        progress = advance(data, coefficients, received, progress, rows, samples, np.int64(number * chunk))
    total: Any = nothing
    for number, (turn, step) in enumerate(step_chunks(steps, range(static.epochs, static.passes), chunk)):
        total = add(data, progress, total, orders[turn[0], step[0]], samples, np.int64(number * chunk))
    return job.flat(progress), progress.sums, job.mean_gradient(coefficients, received, progress, total, samples)
