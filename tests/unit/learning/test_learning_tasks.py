from __future__ import annotations

from math import inf

import numpy as np
import pytest
from learning_cases import RECIPE, make_job, uneven_task, with_noise

from async_hfl.core.errors import DataError, SettingsError
from async_hfl.core.learner import Learner
from async_hfl.core.maths.targets import Target
from async_hfl.core.weights import frozen
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.evaluation.metric_bounds import metric_bounds
from async_hfl.learning.tasks.catalogue import TaskOptions, build_task
from async_hfl.learning.tasks.task_learner import TaskLearner


def digits(devices: int = 60, seed: int = 1, gradient: bool = False) -> TaskLearner:
    task = build_task("digits", devices, seed, TaskOptions(0.9, "by_class"))
    return TaskLearner(task, Recipe(5, 32, 0.05, 0.9, 0.0, 0.1, gradient))


def test_the_interface_of_a_learner() -> None:
    learner: Learner = digits()
    assert learner.layout.size == 64 * 64 + 64 + 64 * 10 + 10
    assert learner.model_bytes == 4 * learner.layout.size
    assert learner.target == Target("accuracy", 0.9, "at_least")
    assert learner.learning_rate == 0.05
    assert learner.samples.shape == (60,)
    assert learner.samples.sum() == 1437
    assert not learner.samples.flags.writeable


def test_initial_weights() -> None:
    learner = digits()
    one, again, other = (learner.initial_weights(seed) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    assert one.dtype == np.float32
    assert not one.flags.writeable


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_federated_averaging_learns(seed: int) -> None:
    learner = digits(seed=seed)
    learner.compile()
    weights = learner.initial_weights(seed)
    assert learner.evaluate(weights).metric < 0.3
    for round_ in range(25):
        jobs = [make_job(device, device, weights, round_ * 60 + device) for device in range(60)]
        results = learner.train_many(jobs)
        mean = np.average([result.weights for result in results], axis=0, weights=[r.samples for r in results])
        weights = frozen(mean.astype(np.float32))
    assert learner.evaluate(weights).metric > 0.9


def test_evaluation_agrees_with_numpy() -> None:
    """700 test samples, so that the last pass is padded."""
    task = uneven_task()
    learner = TaskLearner(task, RECIPE)
    weights = with_noise(learner.initial_weights(1), seed=1)
    parts = {name: array.astype(np.float64) for name, array in learner.layout.unflatten(weights).items()}
    features = np.maximum(task.test.inputs @ parts["hidden.weight"] + parts["hidden.bias"], 0)
    outputs = features @ parts["output.weight"] + parts["output.bias"]
    logs = outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True))
    right = outputs.argmax(axis=1) == task.test.targets
    evaluation = learner.evaluate(weights)
    assert evaluation.metric == right.mean()
    assert evaluation.loss == pytest.approx(-logs[np.arange(700), task.test.targets].mean(), rel=1e-5)
    assert evaluation.details == pytest.approx(
        {f"class_{label}": right[task.test.targets == label].mean() for label in range(10)}
    )


def test_evaluation_is_reproducible_to_the_bit() -> None:
    weights = digits().initial_weights(3)
    assert len({digits().evaluate(weights).loss for _ in range(3)}) == 1


def test_a_diverged_model_can_be_evaluated() -> None:
    learner = digits()
    evaluation = learner.evaluate(frozen(np.full(learner.layout.size, np.nan, dtype=np.float32)))
    assert np.isnan(evaluation.loss)
    assert 0 <= evaluation.metric <= 1


def test_too_many_devices() -> None:
    with pytest.raises(DataError, match="use fewer devices"):
        digits(devices=5000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"momentum": 1.0},
        {"weight_decay": -0.1},
        {"proximal_weight": float("inf")},
    ],
)
def test_invalid_recipes(wrong: dict[str, float]) -> None:
    [name] = wrong
    with pytest.raises(SettingsError, match=name):
        Recipe(**{"epochs": 1, "batch_size": 1, "learning_rate": 0.1, **wrong})  # type: ignore[arg-type]


def test_bounds_of_built_in_metrics() -> None:
    assert metric_bounds("accuracy") == (0.0, 1.0)
    assert metric_bounds("mse") == metric_bounds("squared-error") == metric_bounds("absolute-error") == (0.0, inf)
    assert metric_bounds("loss") == (-inf, inf)
