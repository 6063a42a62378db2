"""Centralised training: the same engine trains one device that owns the whole training set.

It is the upper bound for a comparison: no network, no partition, no staleness. Each epoch is one job. Momentum restarts
with each epoch, and the learning rate follows half a cosine (Loshchilov & Hutter, ICLR 2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import cos, pi

import numpy as np

from async_hfl.core.learner import Evaluation
from async_hfl.core.randomness import stream, stream_seed
from async_hfl.core.weights import Weights
from async_hfl.learning.engine.engine import Engine
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.evaluator import Evaluator
from async_hfl.learning.tasks.task_learner import Task


@dataclass(frozen=True, slots=True)
class CentralEpoch:
    """One epoch of centralised training."""

    epoch: int
    learning_rate: float
    loss: float
    """Mean training loss over the samples, each with the weights of its step."""
    evaluation: Evaluation
    weights: Weights


def train_centrally(
    task: Task,
    recipe: Recipe,
    epochs: int,
    seed: int,
    options: EngineOptions = EngineOptions(),  # noqa: B008
) -> Iterator[CentralEpoch]:
    """Yield one item per epoch. The recipe's epochs and proximal weight are ignored: there are no rounds."""
    recipe = replace(recipe, epochs=1, proximal_weight=0.0, gradient=False)
    engine = Engine(task.model, task.objective, task.train, recipe.static, options)
    evaluator = Evaluator(task.model, task.objective, task.test, options.precision)
    weights = task.model.init(stream(seed, "initial"))
    rows = np.arange(len(task.train), dtype=np.int32)
    for epoch in range(epochs):
        rate = recipe.learning_rate * 0.5 * (1 + cos(pi * epoch / epochs))
        coefficients = replace(recipe, learning_rate=rate).coefficients
        request = Request(weights, rows, stream_seed(seed, "central", epoch), coefficients, len(rows))
        [result] = engine.begin([request])()
        weights = result.weights
        yield CentralEpoch(epoch + 1, rate, result.loss, evaluator.begin(weights)(), weights)
