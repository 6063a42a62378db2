"""Centralised training: one device owns the whole training set.

It is the upper bound for a comparison: no network, no partition, no staleness. Each epoch is one job. Momentum restarts
with each epoch, and the learning rate follows half a cosine (Loshchilov & Hutter, ICLR 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import cos, pi
from typing import TypeAlias

from async_hfl.core.learner import Evaluation
from async_hfl.core.randomness import stream_seed
from async_hfl.core.weights import Weights
from async_hfl.learning.engine.recipe import Recipe

TrainEpoch: TypeAlias = Callable[[Weights, int, float], tuple[Weights, float]]
"""Trains for an epoch from these weights, with this seed and learning rate; returns the weights and the mean loss."""


@dataclass(frozen=True, slots=True)
class CentralEpoch:
    """One epoch of centralised training."""

    epoch: int
    learning_rate: float
    loss: float
    """Mean training loss over the samples, each with the weights of its step."""
    evaluation: Evaluation
    weights: Weights


def central_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe of one epoch: there are no rounds, so that no model is received that could attract."""
    return replace(recipe, epochs=1, proximal_weight=0.0, gradient=False)


def central_epochs(
    train: TrainEpoch,
    evaluate: Callable[[Weights], Evaluation],
    weights: Weights,
    learning_rate: float,
    epochs: int,
    seed: int,
) -> Iterator[CentralEpoch]:
    for epoch in range(epochs):
        rate = learning_rate * 0.5 * (1 + cos(pi * epoch / epochs))
        weights, loss = train(weights, stream_seed(seed, "central", epoch), rate)
        yield CentralEpoch(epoch + 1, rate, loss, evaluate(weights), weights)
