"""Centralised training of a task by the engine that trains its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from async_hfl.core.randomness import stream
from async_hfl.core.weights import Weights
from async_hfl.learning.engine.engine import Engine
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.evaluator import Evaluator
from async_hfl.learning.tasks.central_epochs import CentralEpoch, central_epochs, central_recipe
from async_hfl.learning.tasks.task_learner import Task


def train_centrally(
    task: Task,
    recipe: Recipe,
    epochs: int,
    seed: int,
    options: EngineOptions = EngineOptions(),  # noqa: B008
) -> Iterator[CentralEpoch]:
    """Yield one item per epoch. The recipe's epochs and proximal weight are ignored."""
    recipe = task.recipe(central_recipe(recipe))
    engine = Engine(task.model, task.objective, task.train, recipe.static, options)
    evaluator = Evaluator(task.model, task.objective, task.test, options.precision)
    rows = np.arange(len(task.train), dtype=np.int32)

    def train(weights: Weights, job_seed: int, rate: float) -> tuple[Weights, float]:
        coefficients = replace(recipe, learning_rate=rate).coefficients
        [result] = engine.begin([Request(weights, rows, job_seed, coefficients, len(rows))])()
        assert isinstance(result.weights, np.ndarray)
        return result.weights, result.loss

    first = task.model.init(stream(seed, "initial"))
    return central_epochs(train, lambda weights: evaluator.begin(weights)(), first, recipe.learning_rate, epochs, seed)
