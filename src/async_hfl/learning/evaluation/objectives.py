"""Objectives: the loss that a task minimises, and the metric of a model on its test set.

A test set may be larger than one batch. `count` therefore returns sums that are added up over batches, and `summarise`
turns the total into an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import Evaluation
from async_hfl.learning.engine.backend import Array, jax, jnp, lax


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss, and the functions that compute a metric."""

    metric: str
    loss: Callable[[Array, Array], Array]
    """(outputs, targets) -> the loss of each sample."""
    count: Callable[[Array, Array, Array], Array]
    """(outputs, targets, mask of the real samples) -> a vector of sums."""
    summarise: Callable[[npt.NDArray[np.float64]], Evaluation]


def classification(classes: int) -> Objective:
    """Return the cross-entropy loss, with accuracy, in total and by class, as metric."""

    def loss(outputs: Array, targets: Array) -> Array:
        # The largest output is subtracted so that exp cannot overflow. A one-hot product avoids a gather, whose
        # derivative is a slow scatter.
        shifted = outputs - lax.stop_gradient(outputs.max(axis=-1, keepdims=True))
        chosen = (shifted * jax.nn.one_hot(targets, classes, dtype=outputs.dtype)).sum(axis=-1)
        return jnp.log(jnp.exp(shifted).sum(axis=-1)) - chosen

    def count(outputs: Array, targets: Array, mask: Array) -> Array:
        members = jax.nn.one_hot(targets, classes) * mask[:, None]
        right = (outputs.argmax(axis=-1) == targets)[:, None] * members
        losses = jnp.where(mask > 0, loss(outputs, targets), 0.0)
        return jnp.concatenate([losses.sum()[None], members.sum(axis=0), right.sum(axis=0)])

    def summarise(sums: npt.NDArray[np.float64]) -> Evaluation:
        members, right = sums[1 : classes + 1], sums[classes + 1 :]
        samples = float(members.sum())
        return Evaluation(
            metric=float(right.sum()) / samples,
            loss=float(sums[0]) / samples,
            details={
                f"class_{label}": float(right[label] / members[label]) for label in range(classes) if members[label]
            },
        )

    return Objective("accuracy", loss, count, summarise)


def regression(values: int) -> Objective:
    """Return the mean squared error, in total and by value, as loss and metric; lower is better."""

    def squares(outputs: Array, targets: Array) -> Array:
        return jnp.square(outputs - targets)

    def loss(outputs: Array, targets: Array) -> Array:
        return squares(outputs, targets).mean(axis=-1)

    def count(outputs: Array, targets: Array, mask: Array) -> Array:
        real = mask[:, None] > 0
        by_value = jnp.where(real, squares(outputs, targets), 0.0).sum(axis=0)
        return jnp.concatenate([(mask > 0).sum(dtype=outputs.dtype)[None], by_value])

    def summarise(sums: npt.NDArray[np.float64]) -> Evaluation:
        by_value = sums[1 : values + 1] / sums[0]
        error = float(by_value.mean())
        return Evaluation(
            metric=error, loss=error, details={f"value_{value}": float(by_value[value]) for value in range(values)}
        )

    return Objective("mse", loss, count, summarise)
