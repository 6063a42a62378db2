"""Loss and metric of a user's task, by name or as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import Evaluation
from async_hfl.learning.engine.backend import Array, jnp
from async_hfl.learning.evaluation.objectives import Objective, classification
from async_hfl.learning.own.task import LOSSES, METRICS, OwnTask, function_name
from async_hfl.learning.own.task_errors import TaskErrors

PerSample: TypeAlias = Callable[[Array, Array], Array]


def own_objective(task: OwnTask, classes: int, errors: TaskErrors) -> Objective:
    """Build the objective. `classes` is the number of outputs, which accuracy needs."""
    loss = _loss(task, classes, errors)
    name = function_name(task.metric, METRICS, "metric", errors)
    if task.metric == "accuracy":  # not by name: a user's function may have the same one
        return _accuracy(loss, classes)
    value: PerSample = task.metric if callable(task.metric) else _VALUES.get(name, loss)
    return _mean(name, loss, value)


def _loss(task: OwnTask, classes: int, errors: TaskErrors) -> PerSample:
    if callable(task.loss):
        return task.loss
    name = function_name(task.loss, LOSSES, "loss", errors)
    return classification(classes).loss if name == "cross-entropy" else _squared_error


def _accuracy(loss: PerSample, classes: int) -> Objective:
    """Return `classification` with another loss."""
    known = classification(classes)

    def count(outputs: Array, targets: Array, mask: Array) -> Array:
        losses = jnp.where(mask > 0, loss(outputs, targets), 0.0)
        return jnp.concatenate([losses.sum()[None], known.count(outputs, targets, mask)[1:]])

    return Objective("accuracy", loss, count, known.summarise)


def _mean(name: str, loss: PerSample, value: PerSample) -> Objective:
    def count(outputs: Array, targets: Array, mask: Array) -> Array:
        losses, values = (jnp.where(mask > 0, part(outputs, targets), 0.0) for part in (loss, value))
        return jnp.stack([losses.sum(), values.sum().astype(losses.dtype), mask.sum().astype(losses.dtype)])

    def summarise(sums: npt.NDArray[np.float64]) -> Evaluation:
        losses, values, samples = (float(part) for part in sums)
        return Evaluation(metric=values / samples, loss=losses / samples)

    return Objective(name, loss, count, summarise)


def _squared_error(outputs: Array, targets: Array) -> Array:
    """Return the mean over a sample's values."""
    return _per_sample((outputs - targets) ** 2)


def _absolute_error(outputs: Array, targets: Array) -> Array:
    return _per_sample(jnp.abs(outputs - targets))


def _per_sample(errors: Any) -> Array:
    means: Array = errors.reshape(len(errors), -1).mean(axis=1)
    return means


_VALUES: dict[str, PerSample] = {"squared-error": _squared_error, "absolute-error": _absolute_error}
