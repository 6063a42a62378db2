"""Compiled training by every optimiser compared with numpy, in double precision and without padding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from learning_cases import make_job, uneven_task, with_noise

from async_hfl.core.randomness import scramble
from async_hfl.core.weights import Weights
from async_hfl.learning.engine.recipe import Adam, Recipe
from async_hfl.learning.tasks.task_learner import Task, TaskLearner

Floats = npt.NDArray[np.float64]
SEED = 0xDEADBEEF12345678
FULL = Recipe(3, 8, 0.05, momentum=0.9, weight_decay=0.02, proximal_weight=0.3, gradient=True)


@dataclass
class ByHand:
    weights: Floats
    steps: int
    loss: float
    squared_loss: float
    gradient: Floats


def loss_and_gradient(
    flat: Floats, inputs: Floats, targets: npt.NDArray[np.int32], task: Task
) -> tuple[Floats, Floats]:
    """Return the losses of the samples and the gradient of their mean."""
    parts = []
    start = 0
    for shape in task.model.layout.shapes:
        size = int(np.prod(shape))
        parts.append(flat[start : start + size].reshape(shape))
        start += size
    w1, b1, w2, b2 = parts
    before = inputs @ w1 + b1
    features = np.maximum(before, 0)
    outputs = features @ w2 + b2
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(targets))
    losses = -np.log(shares[rows, targets])
    d_outputs = shares.copy()
    d_outputs[rows, targets] -= 1
    d_outputs /= len(targets)
    d_before = (d_outputs @ w2.T) * (before > 0)
    gradients = (inputs.T @ d_before, d_before.sum(axis=0), features.T @ d_outputs, d_outputs.sum(axis=0))
    return losses, np.concatenate([gradient.reshape(-1) for gradient in gradients])


def epoch_order(seed: int, epoch: int, samples: int) -> list[int]:
    """Return positions by ascending hash; the 24 low bits of the key are the position."""
    return sorted(range(samples), key=lambda p: (scramble(scramble(seed) ^ (epoch << 32 | p)) >> 24, p))


def train_by_hand(task: Task, recipe: Recipe, device: int, start: Weights, seed: int) -> ByHand:
    rows = task.owned[device]
    inputs, targets = task.train.inputs[rows].astype(np.float64), task.train.targets[rows]
    origin = start.astype(np.float64)
    weights, velocity, square = origin.copy(), np.zeros_like(origin), np.zeros_like(origin)
    adam = recipe.optimiser if isinstance(recipe.optimiser, Adam) else None
    apart = adam is not None and adam.decoupled
    in_loss = 0.0 if apart else recipe.weight_decay
    steps = 0
    seen: list[float] = []
    for epoch in range(recipe.epochs):
        order = epoch_order(seed, epoch, len(rows))
        seen = []
        for first in range(0, len(rows), recipe.batch_size):
            batch = order[first : first + recipe.batch_size]
            losses, gradient = loss_and_gradient(weights, inputs[batch], targets[batch], task)
            gradient = gradient + in_loss * weights + recipe.proximal_weight * (weights - origin)
            steps += 1
            if adam is None:
                velocity = recipe.momentum * velocity + gradient
                weights = weights - recipe.learning_rate * velocity
            else:
                velocity = adam.beta1 * velocity + (1 - adam.beta1) * gradient
                square = adam.beta2 * square + (1 - adam.beta2) * gradient**2
                unbiased, root = velocity / (1 - adam.beta1**steps), np.sqrt(square / (1 - adam.beta2**steps))
                decay = recipe.weight_decay * weights if apart else 0.0
                weights = weights - recipe.learning_rate * (unbiased / (root + adam.epsilon) + decay)
            seen += losses.tolist()
    _, gradient = loss_and_gradient(weights, inputs, targets, task)
    gradient = gradient + in_loss * weights + recipe.proximal_weight * (weights - origin)
    return ByHand(weights, steps, float(np.mean(seen)), float(np.mean(np.square(seen))), gradient)


RECIPES = {
    "everything": FULL,
    "plain": Recipe(2, 8, 0.1, gradient=True),
    "momentum": Recipe(2, 8, 0.05, momentum=0.9, gradient=True),
    "weight decay": Recipe(2, 8, 0.1, weight_decay=0.5, gradient=True),
    "proximal": Recipe(2, 8, 0.1, proximal_weight=2.0, gradient=True),
    "one batch": Recipe(4, 64, 0.05, momentum=0.5, proximal_weight=0.1, gradient=True),
    "adam": replace(FULL, learning_rate=0.01, optimiser=Adam(0.8, 0.99)),
    "adamw": replace(FULL, learning_rate=0.01, weight_decay=0.3, optimiser=Adam(0.8, 0.99, 1e-6, decoupled=True)),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_it_agrees_with_numpy(recipe: Recipe) -> None:
    task = uneven_task(sizes=(20, 1, 8, 9, 7), inputs=12, hidden=6)
    learner = TaskLearner(task, recipe)
    start = with_noise(learner.initial_weights(1), seed=1)
    results = learner.train_many([make_job(device, device, start, SEED + device) for device in range(5)])
    for device, result in enumerate(results):
        expected = train_by_hand(task, recipe, device, start, SEED + device)
        moved = np.abs(expected.weights - start).max()
        # Adam divides a gradient by its own size, so that the rounding of a small one weighs more.
        factor = 50 if isinstance(recipe.optimiser, Adam) else 1
        np.testing.assert_allclose(result.weights, expected.weights, rtol=0, atol=factor * 1e-5 * moved + 1e-7)
        assert result.gradient is not None
        np.testing.assert_allclose(result.gradient, expected.gradient, rtol=0, atol=factor * 2e-6)
        assert result.loss == pytest.approx(expected.loss, rel=1e-5)
        assert result.squared_loss == pytest.approx(expected.squared_loss, rel=1e-5)
        assert (result.samples, result.steps) == (len(task.owned[device]), expected.steps)


def test_one_step_by_hand() -> None:
    """With all weights 0, every class has probability 1/10, features are 0, and only the output bias changes."""
    task = uneven_task(sizes=(1,), inputs=3, hidden=2)
    learner = TaskLearner(task, Recipe(1, 4, 0.5))
    zeros = np.zeros(learner.layout.size, dtype=np.float32)
    [result] = learner.train_many([make_job(0, 0, zeros, 7)])
    label = int(task.train.targets[0])
    expected = np.full(10, -0.5 * 0.1)
    expected[label] += 0.5
    parts = learner.layout.unflatten(result.weights)
    np.testing.assert_allclose(parts["output.bias"], expected, rtol=1e-6)
    assert not parts["hidden.weight"].any()
    assert result.loss == pytest.approx(np.log(10), rel=1e-6)
    assert result.squared_loss == pytest.approx(np.log(10) ** 2, rel=1e-6)


def test_final_gradient_against_finite_differences() -> None:
    """Differences of the regularised loss, with penalties; no derivative is written by hand."""
    task = uneven_task(sizes=(20,), inputs=6, hidden=4)
    learner = TaskLearner(task, FULL)
    start = with_noise(learner.initial_weights(1), seed=2)
    [result] = learner.train_many([make_job(0, 0, start, 7)])
    final, origin = result.weights.astype(np.float64), start.astype(np.float64)
    rows = task.owned[0]
    inputs, targets = task.train.inputs[rows].astype(np.float64), task.train.targets[rows]

    def regularised(weights: Floats) -> float:
        losses, _ = loss_and_gradient(weights, inputs, targets, task)
        decay = FULL.weight_decay / 2 * float(weights @ weights)
        return float(losses.mean()) + decay + FULL.proximal_weight / 2 * float((weights - origin) @ (weights - origin))

    assert result.gradient is not None
    for index in range(len(final)):
        nudge = np.zeros_like(final)
        nudge[index] = 1e-6
        slope = (regularised(final + nudge) - regularised(final - nudge)) / 2e-6
        assert result.gradient[index] == pytest.approx(slope, abs=2e-6)


def test_a_gradient_is_computed_on_request_and_does_not_change_training() -> None:
    task = uneven_task()
    start = with_noise(TaskLearner(task, FULL).initial_weights(1), seed=3)
    jobs = [make_job(device, device, start, device) for device in range(4)]
    with_gradient = TaskLearner(task, FULL).train_many(jobs)
    without = TaskLearner(task, replace(FULL, gradient=False)).train_many(jobs)
    for one, other in zip(with_gradient, without, strict=True):
        assert one.gradient is not None
        assert other.gradient is None
        np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=1e-6)


def test_results_are_read_only() -> None:
    task = uneven_task()
    learner = TaskLearner(task, FULL)
    [result] = learner.train_many([make_job(0, 0, learner.initial_weights(1), 7)])
    assert result.weights.dtype == np.float32
    assert result.gradient is not None
    assert not result.weights.flags.writeable
    assert not result.gradient.flags.writeable
