"""What training takes of a device's memory, told from shapes alone before anything is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.learning.engine.backend import jax, jnp
from async_hfl.learning.engine.compilation import like
from async_hfl.learning.engine.device_data import Resident, gather
from async_hfl.learning.engine.recipe import Shape
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model, unflatten

_COPIES = 8
"""Of the weights beside each other: what the group was given, received ones, current ones and velocity, the latter two
also as they were before a piece; the gradient and its sum."""


@dataclass(frozen=True, slots=True)
class TrainingBytes:
    weights: int
    """One model."""
    activations: int
    """What the backward pass needs of the forward one, and twice the largest array there is."""

    @property
    def stacked(self) -> int:
        """A job among others side by side."""
        return _COPIES * self.weights + self.activations


def training_bytes(model: Model, objective: Objective, shape: Shape, data: Resident, window: int) -> TrainingBytes:
    def batch_loss(weights: Any, rows: Any) -> Any:
        batch, wanted = gather(data, rows, window)
        parameters = unflatten(model.layout, weights)
        if model.apply_in_training is None:
            outputs = model.apply(parameters, batch)
        else:
            outputs, _ = model.apply_in_training(parameters, batch, jnp.ones(shape.batch_size))
        return objective.loss(outputs, wanted).sum()

    weights, rows = like(model.layout.size), like(shape.batch_size, dtype=np.int32)

    def kept(weights: Any, rows: Any) -> Any:
        return jax.vjp(lambda at: batch_loss(at, rows), weights)[1]

    saved = sum(_bytes(leaf) for leaf in jax.tree.leaves(jax.eval_shape(kept, weights, rows)))
    make: Any = jax.make_jaxpr(jax.value_and_grad(batch_loss))
    largest = _largest(make(weights, rows).jaxpr)
    return TrainingBytes(4 * model.layout.size, saved + 2 * largest)


def answering_bytes(model: Model, data: Resident, window: int, rows: int) -> int:
    """The largest array there is while a model answers so many samples."""

    def answers(weights: Any, rows: Any) -> Any:
        return model.apply(unflatten(model.layout, weights), gather(data, rows, window)[0])

    make: Any = jax.make_jaxpr(answers)
    return _largest(make(like(model.layout.size), like(rows, dtype=np.int32)).jaxpr)


def _bytes(array: Any) -> int:
    return int(np.prod(array.shape, dtype=np.int64)) * int(array.dtype.itemsize)


def _largest(jaxpr: Any) -> int:
    """Bytes of the largest array that a program makes."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [_largest(part) for value in equation.params.values() for part in _programs(value)]
        sizes += [_bytes(variable.aval) for variable in equation.outvars]
    return max(sizes)


def _programs(value: Any) -> list[Any]:
    if hasattr(value, "jaxpr"):
        return [value.jaxpr]
    if hasattr(value, "eqns"):
        return [value]
    if isinstance(value, tuple | list):
        return [part for each in value for part in _programs(each)]
    return []
