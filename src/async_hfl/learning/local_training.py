"""One job as a pure function: the device's whole local training, traced once and compiled.

Loops have dynamic bounds, so padded batches are never computed; only the rows missing from the last batch of an epoch
are, and a mask takes them out. Shapes do not depend on the job: every job runs the very same machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from async_hfl.learning.backend import Array, jax, jnp, lax
from async_hfl.learning.models.model import Model, flatten, unflatten
from async_hfl.learning.objectives import Objective
from async_hfl.learning.recipe import Recipe


class Coefficients(NamedTuple):
    """Numbers of the recipe that are arguments of the program, so that a sweep over them compiles nothing anew."""

    learning_rate: Array
    momentum: Array
    weight_decay: Array
    proximal_weight: Array


class Trained(NamedTuple):
    weights: Array
    """Flat."""
    sums: Array
    """Of loss and squared loss over the samples of the last epoch."""
    gradient: Array | None


LocalTraining: TypeAlias = Callable[[Array, Array, Array, Array, Array, Array], Trained]
"""(coefficients, inputs, targets, start, orders, samples): `start` flat, `orders` as `BatchPlanner` gives them."""


def local_training(model: Model, objective: Objective, recipe: Recipe) -> LocalTraining:
    epochs, batch_size = recipe.epochs, recipe.batch_size
    layout = model.layout

    def train(
        coefficients: Array, inputs: Array, targets: Array, start: Array, orders: Array, samples: Array
    ) -> Trained:
        rates = Coefficients(*coefficients)
        received = unflatten(layout, start)
        steps_per_epoch = lax.div(samples + (batch_size - 1), jnp.asarray(batch_size, samples.dtype))

        def batch_gradient(
            parameters: dict[str, Array], turn: Array | int, step: Array
        ) -> tuple[dict[str, Array], Array, Array]:
            """Gradient of the summed loss, the losses (0 where masked) and how many samples there are."""
            rows = lax.dynamic_slice(orders, (turn, step, 0), (1, 1, batch_size)).reshape(batch_size)
            batch = inputs.at[rows].get(mode="promise_in_bounds")
            wanted = targets.at[rows].get(mode="promise_in_bounds")
            first = step * batch_size
            real = first + jnp.arange(batch_size) < samples

            def total(at: dict[str, Array]) -> tuple[Array, Array]:
                losses = jnp.where(real, objective.loss(model.apply(at, batch), wanted), 0.0)
                return losses.sum(), losses

            (_, losses), gradient = jax.value_and_grad(total, has_aux=True)(parameters)
            return gradient, losses, jnp.minimum(samples - first, batch_size).astype(losses.dtype)

        def regularised(mean_gradient: Array, at: Array, origin: Array) -> Array:
            # The penalties' gradients are added here, not differentiated: cheaper, and `w - w_0` is rounded once.
            return mean_gradient + rates.weight_decay * at + rates.proximal_weight * (at - origin)

        def one_step(
            index: Array, state: tuple[dict[str, Array], dict[str, Array], Array]
        ) -> tuple[dict[str, Array], dict[str, Array], Array]:
            parameters, velocity, sums = state
            epoch, step = lax.div(index, steps_per_epoch), lax.rem(index, steps_per_epoch)
            gradient, losses, count = batch_gradient(parameters, epoch, step)
            velocity = jax.tree.map(
                lambda v, g, w, w_0: rates.momentum * v + regularised(g / count, w, w_0),
                velocity,
                gradient,
                parameters,
                received,
            )
            parameters = jax.tree.map(lambda w, v: w - rates.learning_rate * v, parameters, velocity)
            in_last = (epoch == epochs - 1).astype(losses.dtype)
            return parameters, velocity, sums + in_last * jnp.stack([losses.sum(), (losses * losses).sum()])

        at_rest = jax.tree.map(jnp.zeros_like, received)
        parameters, _, sums = lax.fori_loop(
            0, epochs * steps_per_epoch, one_step, (received, at_rest, jnp.zeros(2, start.dtype))
        )
        if not recipe.gradient:
            return Trained(flatten(layout.names, parameters), sums, None)

        def add_batch(step: Array, total: dict[str, Array]) -> dict[str, Array]:
            gradient, _, _ = batch_gradient(parameters, epochs, step)
            return {name: total[name] + gradient[name] for name in total}

        total = lax.fori_loop(0, steps_per_epoch, add_batch, at_rest)
        gradient = jax.tree.map(lambda g, w, w_0: regularised(g / samples, w, w_0), total, parameters, received)
        return Trained(flatten(layout.names, parameters), sums, flatten(layout.names, gradient))

    return train
