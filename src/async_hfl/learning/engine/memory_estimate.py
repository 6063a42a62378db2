"""Estimates of the memory that training and evaluation take on a device, from shapes alone, before compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.learning.engine.backend import jax, jnp
from async_hfl.learning.engine.compilation import like
from async_hfl.learning.engine.device_data import DeviceSamples, gather
from async_hfl.learning.engine.optimisers import optimiser_state
from async_hfl.learning.engine.recipe import StaticHyperparameters
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model, unflatten

_COPIES = 8
"""Copies of the weights at one time: the group's input; received weights; current weights and velocity, both also as
they were before a chunk; the gradient and its sum. An optimiser's state that is larger than a velocity is added."""


@dataclass(frozen=True, slots=True)
class TrainingBytes:
    """The memory that one job takes."""

    weights: int
    """Bytes of one model."""
    activations: int
    """Bytes that the forward pass stores for the backward pass, and twice those of the largest array."""
    state: int = 0
    """Bytes of the optimiser's state."""

    @property
    def per_job(self) -> int:
        """Bytes of a job that runs side by side with others."""
        return _COPIES * self.weights + 2 * max(0, self.state - self.weights) + self.activations


def training_bytes(
    model: Model, objective: Objective, static: StaticHyperparameters, data: DeviceSamples, window: int
) -> TrainingBytes:
    """Estimate the memory of one training job."""

    def batch_loss(weights: Any, rows: Any) -> Any:
        batch, wanted = gather(data, rows, window)
        parameters = unflatten(model.layout, weights)
        if model.apply_in_training is None:
            outputs = model.apply(parameters, batch)
        else:
            outputs, _ = model.apply_in_training(parameters, batch, jnp.ones(static.batch_size))
        return objective.loss(outputs, wanted).sum()

    weights, rows = like(model.layout.size), like(static.batch_size, dtype=np.int32)

    def kept(weights: Any, rows: Any) -> Any:
        return jax.vjp(lambda at: batch_loss(at, rows), weights)[1]

    saved = sum(_bytes(leaf) for leaf in jax.tree.leaves(jax.eval_shape(kept, weights, rows)))
    make: Any = jax.make_jaxpr(jax.value_and_grad(batch_loss))
    largest = _largest(make(weights, rows).jaxpr)
    layout = model.layout
    shapes = {name: like(1, *shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}
    trained = {name: shapes[name] for name in model.trained}
    state = jax.tree.leaves(optimiser_state(static.optimiser, like(1, 4), trained))
    return TrainingBytes(4 * layout.size, saved + 2 * largest, sum(map(_bytes, state)))


def evaluation_bytes(model: Model, data: DeviceSamples, window: int, rows: int) -> int:
    """Return the bytes of the largest array while a model is applied to this many samples."""

    def outputs(weights: Any, rows: Any) -> Any:
        return model.apply(unflatten(model.layout, weights), gather(data, rows, window)[0])

    make: Any = jax.make_jaxpr(outputs)
    return _largest(make(like(model.layout.size), like(rows, dtype=np.int32)).jaxpr)


def _bytes(array: Any) -> int:
    return int(np.prod(array.shape, dtype=np.int64)) * int(array.dtype.itemsize)


def _largest(jaxpr: Any) -> int:
    """Return the bytes of the largest array that a program creates."""
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
