"""No rule makes a variance negative: runs that train models with batch normalisation, with devices that differ in
contrast and speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from star_world import Star, run_star

from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.maths.targets import Target
from async_hfl.core.protocol.records import JobRecord
from async_hfl.core.vectors import to_host
from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import Array, jax
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.evaluation.objectives import classification
from async_hfl.learning.models.convolution import batch_last, convolution
from async_hfl.learning.models.model import Model, Parameters, uniform_weights
from async_hfl.learning.models.normalisation import Statistics, batch_norm, running_norm, scaled
from async_hfl.learning.models.resnet import resnet18
from async_hfl.learning.tasks.task_learner import Task, TaskLearner
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.relay import Relay
from async_hfl.nodes.gateway.aggregation.rounds import Rounds
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation

DEVICES, SAMPLES, SIDE, UPDATES = 8, 4, 8, 50
RULES: dict[str, tuple[Callable[[], GatewayAggregation], dict[str, Any], int]] = {
    "mix, drag 0": (MixOnArrival, {"epochs": 10, "drag": 0.0}, 5),
    "mix, drag 0.5": (MixOnArrival, {"epochs": 10, "drag": 0.5}, 5),
    "mix, drag 1": (MixOnArrival, {"epochs": 10, "drag": 1.0}, 5),
    "periods": (Periods, {"epochs": 10, "period": 5.0}, 2),
    "rounds": (Rounds, {"epochs": 2}, 4),
    "relay": (Relay, {}, UPDATES),
}
"""Rule, settings of the gateway, cloud epochs: at least 50 updates are aggregated."""


def small_network() -> Model:
    """Build one convolution with batch normalisation, and a linear layer."""
    shapes = {"first.weight": (3, 3, 3, 4), "first.scale": (4,), "first.shift": (4,), "output.weight": (4, 10)}
    statistics = {"first.mean": (4,), "first.variance": (4,)}
    layout = Layout((*shapes, *statistics), (*shapes.values(), *statistics.values()))

    def init(random: np.random.Generator) -> Weights:
        drawn = {name: uniform_weights(random, shape, 27) for name, shape in shapes.items() if "weight" in name}
        ones, zeros = np.ones(4), np.zeros(4)
        rest = {"first.scale": ones, "first.shift": zeros, "first.mean": zeros, "first.variance": ones}
        return layout.flatten({**drawn, **rest})

    def rest(parameters: Parameters, normalised: Array) -> Array:
        images = jax.nn.relu(scaled(normalised, parameters["first.scale"], parameters["first.shift"]))
        return images.mean(axis=(1, 2)).T @ parameters["output.weight"]

    def convolved(parameters: Parameters, batch: Array) -> tuple[Array, Statistics]:
        running = Statistics(parameters["first.mean"], parameters["first.variance"])
        return convolution(batch_last(batch), parameters["first.weight"], 1, padding=1), running

    def in_inference(parameters: Parameters, batch: Array) -> Array:
        return rest(parameters, running_norm(*convolved(parameters, batch)))

    def in_training(parameters: Parameters, batch: Array, mask: Array) -> tuple[Array, Parameters]:
        images, running = convolved(parameters, batch)
        normalised, after = batch_norm(images, mask, running)
        return rest(parameters, normalised), {"first.mean": after.mean, "first.variance": after.variance}

    return Model(layout, init, in_inference, in_training, tuple(statistics))


def images(random: np.random.Generator) -> Samples:
    """Return the samples of all devices; half of the devices have images without contrast."""
    contrast = np.repeat(np.linspace(-2, 2, DEVICES).clip(0), SAMPLES)[:, None, None, None]
    pixels = contrast * random.uniform(-1, 1, (len(contrast), SIDE, SIDE, 3))
    return Samples(pixels.astype(np.float32), random.integers(0, 10, len(contrast)).astype(np.int32))


class Trained:
    """A learner that trains, and keeps the variances of every model that devices start from or the cloud evaluates."""

    def __init__(self, model: Model) -> None:
        train = images(np.random.default_rng(3))
        owned = tuple(np.arange(SAMPLES * device, SAMPLES * (device + 1)) for device in range(DEVICES))
        task = Task("images", model, classification(10), train, train, owned, Target("accuracy", 2.0))
        self._learner = TaskLearner(task, Recipe(5, 2, 0.01))
        self.gradient_size, self.model_bytes = model.trained_size, model.bytes
        self.samples, self.target = self._learner.samples, task.target
        self.initial_weights = self._learner.initial_weights
        self._layout = model.layout
        self.variances: list[float] = []
        """The least of each model."""

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        for job in jobs:
            self._see(job.weights)
        return self._learner.train_many(jobs)

    def evaluate(self, weights: Weights) -> Evaluation:
        self._see(weights)
        return Evaluation(0.0, 1.0)

    def _see(self, weights: Weights) -> None:
        arrays = self._layout.unflatten(to_host(weights))
        self.variances.append(min(float(array.min()) for name, array in arrays.items() if name.endswith("variance")))


@pytest.fixture(scope="module", params=[small_network, pytest.param(resnet18, marks=pytest.mark.long)])
def learner(request: pytest.FixtureRequest) -> Trained:
    return Trained(request.param())


@pytest.mark.parametrize("rule", RULES)
def test_no_variance_is_negative_after_fifty_updates(learner: Trained, rule: str) -> None:
    learner.variances.clear()
    aggregation, settings, epochs = RULES[rule]
    # The devices without contrast are the fastest. They decrease the variances one after another, from the same model.
    star = Star(np.full(DEVICES, 0.1), np.linspace(4, 30, DEVICES), np.full(DEVICES, 0.1), 1.0)
    constant = {"staleness": StalenessDiscount("constant")}
    _, records = run_star(
        star, learner, 1, aggregation, epochs=epochs, gateway_rules={**settings, **constant}, cloud_rules=constant
    )
    aggregated = [one for one in records if isinstance(one, JobRecord) and one.reason == "aggregated"]
    assert len(aggregated) >= UPDATES
    assert len(learner.variances) > UPDATES
    assert min(learner.variances) >= 0
