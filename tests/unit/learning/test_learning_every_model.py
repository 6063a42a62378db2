"""Every model in the engine: jobs together equal jobs alone, on the host to the bit, with vmap up to rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from learning_cases import fingerprint, make_job

from async_hfl.core.maths.targets import Target
from async_hfl.learning.datasets.samples import Samples, Scaling
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions
from async_hfl.learning.evaluation.objectives import classification, regression
from async_hfl.learning.models.cnn import cnn
from async_hfl.learning.models.lstm import character_lstm, series_lstm
from async_hfl.learning.models.mlp import mlp
from async_hfl.learning.models.model import Model
from async_hfl.learning.models.resnet import resnet18
from async_hfl.learning.tasks.task_learner import Task, TaskLearner

SIZES = (9, 1, 5, 12)
"""Full batches, a short last batch, a single sample."""
RECIPE = Recipe(2, 4, 0.05, momentum=0.9, weight_decay=0.001, proximal_weight=0.1)


def images(random: np.random.Generator, count: int, side: int, channels: int) -> Samples:
    pixels = random.integers(0, 256, (count, side, side, channels)).astype(np.uint8)
    scaling = Scaling(np.full(channels, 128, np.float32), np.full(channels, 1 / 64, np.float32))
    return Samples(pixels, random.integers(0, 10, count).astype(np.int32), scaling=scaling)


def text(random: np.random.Generator, count: int) -> Samples:
    starts = random.integers(0, 200, count).astype(np.int32)
    return Samples(
        random.integers(0, 80, 240).astype(np.uint8), random.integers(0, 80, count).astype(np.int32), starts, 16
    )


def series(random: np.random.Generator, count: int) -> Samples:
    starts = random.integers(0, 200, count).astype(np.int32)
    return Samples(
        random.standard_normal((240, 12)).astype(np.float32),
        random.standard_normal((count, 12)).astype(np.float32),
        starts,
        12,
    )


def flat(random: np.random.Generator, count: int) -> Samples:
    return Samples(
        random.standard_normal((count, 561)).astype(np.float32), random.integers(0, 6, count).astype(np.int32)
    )


Made = tuple[Callable[[], Model], Callable[[np.random.Generator, int], Samples], int]
"""Model, data, classes (0 for regression)."""
MODELS: dict[str, Made] = {
    "mlp": (lambda: mlp(561, 128, 6), flat, 6),
    "cnn": (cnn, lambda random, count: images(random, count, 28, 1), 10),
    "cnn, in blocks": (lambda: cnn(in_blocks=True), lambda random, count: images(random, count, 28, 1), 10),
    "character lstm": (character_lstm, text, 80),
    "character lstm, two layers": (lambda: character_lstm(layers=2), text, 80),
    "series lstm": (series_lstm, series, 0),
    "resnet, batch norm": (resnet18, lambda random, count: images(random, count, 32, 3), 10),
    "resnet, group norm": (lambda: resnet18(norm="group"), lambda random, count: images(random, count, 32, 3), 10),
}
DEEP = {"resnet, batch norm", "resnet, group norm"}
SLOW = {*DEEP, "cnn, in blocks", "character lstm", "character lstm, two layers"}
"""To compile; the engine sees nothing in them that it does not see in the others."""


def task_of(name: str) -> Task:
    make, data, classes = MODELS[name]
    random = np.random.default_rng(3)
    stops = np.cumsum(SIZES)
    rows = random.permutation(int(stops[-1]))
    return Task(
        name=name,
        model=make(),
        objective=classification(classes) if classes else regression(12),
        train=data(random, len(rows)),
        test=data(random, 7),
        owned=tuple(np.sort(rows[stop - size : stop]) for size, stop in zip(SIZES, stops, strict=True)),
        target=Target("any", 0.9),
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in MODELS]
)
def test_jobs_together_equal_jobs_alone(name: str) -> None:
    task = task_of(name)
    learner = TaskLearner(task, RECIPE)
    starts = [learner.initial_weights(1), learner.initial_weights(2)]
    jobs = [make_job(number, number % 4, starts[number % 2], number * 7919) for number in range(7)]
    together = learner.train_many(jobs)
    alone = [learner.train_many([job])[0] for job in jobs]
    backwards = learner.train_many(jobs[::-1])[::-1]
    assert [fingerprint(result) for result in together] == [fingerprint(result) for result in alone]
    assert [fingerprint(result) for result in together] == [fingerprint(result) for result in backwards]
    assert all(np.isfinite(result.weights).all() for result in together)

    side_by_side = TaskLearner(task, RECIPE, EngineOptions(plan="vmap")).train_many(jobs)
    # A rectifier or pool near a tie may switch and change all later steps, so the median of the jobs is compared.
    distances = [
        np.linalg.norm(one.weights - other.weights) / np.linalg.norm(one.weights - job.weights)
        for job, one, other in zip(jobs, together, side_by_side, strict=True)
    ]
    assert np.median(distances) < (1e-2 if name in DEEP else 1e-4)
