"""One job as a pure function: the device's whole local training, traced once and compiled.

Shapes do not depend on the job: every job runs the very same machine code. Rows missing from the last batch of an
epoch are computed and masked. Steps beyond a job's own are not computed where jobs run one after another; where they
run side by side (`most_steps`) they are computed and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from async_hfl.learning.backend import Array, jax, jnp, lax
from async_hfl.learning.models.model import Model, flatten, unflatten
from async_hfl.learning.objectives import Objective
from async_hfl.learning.recipe import Shape
from async_hfl.learning.resident import Resident, gather


class Coefficients(NamedTuple):
    """Numbers of the recipe that are arguments of the program, so that jobs of several recipes share it."""

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
    """Of the trained part."""


LocalTraining: TypeAlias = Callable[[Resident, Array, Array, Array, Array], Trained]
"""(data, coefficients, start, orders, samples): `start` flat, `orders` as `batch_orders` gives them."""

_State: TypeAlias = tuple[dict[str, Array], dict[str, Array], dict[str, Array], Array]
"""Trained parameters, statistics, velocity, loss sums."""


def local_training(
    model: Model,
    objective: Objective,
    shape: Shape,
    window: int = 0,
    most_steps: int | None = None,
    half: bool = False,
) -> LocalTraining:
    """`half`: layers compute in bfloat16; weights, their gradients' sums, statistics and losses stay as they are."""
    epochs, batch_size = shape.epochs, shape.batch_size
    names = model.layout.names

    def train(data: Resident, coefficients: Array, start: Array, orders: Array, samples: Array) -> Trained:
        rates = Coefficients(*coefficients)
        whole = unflatten(model.layout, start)
        received = {name: whole[name] for name in model.trained}
        steps_per_epoch = lax.div(samples + (batch_size - 1), jnp.asarray(batch_size, samples.dtype))
        steps = epochs * steps_per_epoch

        def batch_gradient(
            parameters: dict[str, Array], statistics: dict[str, Array], turn: Array | int, step: Array, finished: bool
        ) -> tuple[dict[str, Array], dict[str, Array], Array, Array]:
            """Gradient of the summed loss, statistics, the losses (0 where masked) and how many samples there are."""
            rows = lax.dynamic_slice(orders, (turn, step, 0), (1, 1, batch_size)).reshape(batch_size)
            batch, wanted = gather(data, rows, window)
            first = step * batch_size
            real = first + jnp.arange(batch_size) < samples

            def total(at: dict[str, Array]) -> tuple[Array, tuple[Array, dict[str, Array]]]:
                after = statistics
                parameters, given = _halved({**at, **statistics}, batch) if half else ({**at, **statistics}, batch)
                if finished or model.apply_in_training is None:
                    outputs = model.apply(parameters, given)
                else:
                    outputs, changed = model.apply_in_training(parameters, given, real)
                    after = {name: changed[name].astype(start.dtype) for name in model.statistics}
                outputs = outputs.astype(start.dtype)
                losses = jnp.where(real, objective.loss(outputs, wanted), 0.0)
                return losses.sum(), (losses, after)

            (_, (losses, after)), gradient = jax.value_and_grad(total, has_aux=True)(parameters)
            return gradient, after, losses, jnp.minimum(samples - first, batch_size).astype(losses.dtype)

        def regularised(mean_gradient: Array, at: Array, origin: Array) -> Array:
            # The penalties' gradients are added here, not differentiated: cheaper, and `w - w_0` is rounded once.
            return mean_gradient + rates.weight_decay * at + rates.proximal_weight * (at - origin)

        def one_step(index: Array, state: _State) -> _State:
            parameters, statistics, velocity, sums = state
            epoch, step = lax.div(index, steps_per_epoch), lax.rem(index, steps_per_epoch)
            gradient, after, losses, count = batch_gradient(parameters, statistics, epoch, step, finished=False)
            velocity = jax.tree.map(
                lambda v, g, w, w_0: rates.momentum * v + regularised(g / count, w, w_0),
                velocity,
                gradient,
                parameters,
                received,
            )
            moved = jax.tree.map(lambda w, v: w - rates.learning_rate * v, parameters, velocity)
            in_last = (epoch == epochs - 1).astype(losses.dtype)
            return moved, after, velocity, sums + in_last * jnp.stack([losses.sum(), (losses * losses).sum()])

        def repeat(count: Array, most: int | None, step: Callable[[Array, _State], _State], state: _State) -> _State:
            loop: Callable[..., _State] = lax.fori_loop
            if most is None:
                return loop(0, count, step, state)

            def gated(index: Array, before: _State) -> _State:
                after = step(jnp.minimum(index, count - 1), before)
                kept: _State = jax.tree.map(lambda new, old: jnp.where(index < count, new, old), after, before)
                return kept

            # A fixed number of turns: the accelerator runs ahead without asking the host whether to go on.
            return loop(0, most, gated, state)

        at_rest = jax.tree.map(jnp.zeros_like, received)
        statistics = {name: whole[name] for name in model.statistics}
        none = jnp.zeros(2, start.dtype)
        parameters, statistics, _, sums = repeat(
            steps, most_steps and epochs * most_steps, one_step, (received, statistics, at_rest, none)
        )
        weights = flatten(names, {**parameters, **statistics})
        if not shape.gradient:
            return Trained(weights, sums, None)

        def add_batch(step: Array, state: _State) -> _State:
            total, *rest = state
            gradient, *_ = batch_gradient(parameters, statistics, epochs, step, finished=True)
            return ({name: total[name] + gradient[name] for name in total}, *rest)  # type: ignore[return-value]

        total, *_ = repeat(steps_per_epoch, most_steps, add_batch, (at_rest, {}, {}, none))
        gradient = jax.tree.map(lambda g, w, w_0: regularised(g / samples, w, w_0), total, parameters, received)
        return Trained(weights, sums, flatten(model.trained, gradient))

    return train


def _halved(parameters: dict[str, Array], batch: Array) -> tuple[dict[str, Array], Array]:
    """Floats as bfloat16; symbols stay whole numbers."""
    less = jnp.bfloat16
    return (
        {name: array.astype(less) for name, array in parameters.items()},
        batch.astype(less) if jnp.issubdtype(batch.dtype, jnp.floating) else batch,
    )
