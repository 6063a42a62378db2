"""One job as a pure function: the device's whole local training, traced once and compiled.

Shapes do not depend on the job: every job runs the very same machine code. Rows missing from the last batch of an
epoch are computed and masked. Where jobs run one after another, a job is one call, its loop as long as it needs. Where
they run side by side, it is cut into pieces of so many steps, each a call: one program then serves jobs of any length;
steps beyond a job's own are computed and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar, final

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


class Progress(NamedTuple):
    """Where a job is between two pieces."""

    weights: Array
    """Flat, and ..."""
    velocity: Array
    """... of the trained part."""
    sums: Array


_T = TypeVar("_T")
_Named: TypeAlias = dict[str, Array]
_State: TypeAlias = tuple[_Named, _Named, _Named, Array]
"""Trained parameters, statistics, velocity, loss sums."""


@final
@dataclass(frozen=True, eq=False)
class LocalTraining:
    model: Model
    objective: Objective
    shape: Shape
    window: int = 0
    half: bool = False
    """Layers compute in bfloat16; weights, their gradients' sums, statistics and losses stay as they are."""

    def __call__(self, data: Resident, coefficients: Array, start: Array, orders: Array, samples: Array) -> Trained:
        """The whole job; `start` flat, `orders` a job's of `BatchOrders.whole`."""
        epochs, batch_size = self.shape.epochs, self.shape.batch_size
        rates = Coefficients(*coefficients)
        received, statistics = self._named(start)
        steps_per_epoch = self._steps_per_epoch(samples)

        def rows(turn: Array | int, step: Array) -> Array:
            return lax.dynamic_slice(orders, (turn, step, 0), (1, 1, batch_size)).reshape(batch_size)

        def one_step(index: Array, state: _State) -> _State:
            epoch, step = lax.div(index, steps_per_epoch), lax.rem(index, steps_per_epoch)
            return self._step(data, rates, received, samples, rows(epoch, step), epoch, step, state)

        def add_batch(step: Array, total: _Named) -> _Named:
            return self._add(data, parameters, statistics, samples, rows(epochs, step), step, total)

        loop: Callable[..., _State] = lax.fori_loop
        at_rest = jax.tree.map(jnp.zeros_like, received)
        none = jnp.zeros(2, start.dtype)
        parameters, statistics, _, sums = loop(
            0, epochs * steps_per_epoch, one_step, (received, statistics, at_rest, none)
        )
        weights = flatten(self.model.layout.names, {**parameters, **statistics})
        if not self.shape.gradient:
            return Trained(weights, sums, None)
        add: Callable[..., _Named] = lax.fori_loop
        total = add(0, steps_per_epoch, add_batch, at_rest)
        return Trained(weights, sums, self._mean(rates, parameters, received, samples, total))

    def advance(
        self,
        data: Resident,
        coefficients: Array,
        start: Array,
        progress: Progress,
        orders: Array,
        samples: Array,
        first: Array,
    ) -> Progress:
        """A piece: as many steps as `orders` has rows, from the job's step `first` on."""
        rates = Coefficients(*coefficients)
        received, _ = self._named(start)
        steps_per_epoch = self._steps_per_epoch(samples)

        def one_step(turn: Array, state: _State) -> _State:
            index = first + turn
            epoch, step = lax.div(index, steps_per_epoch), lax.rem(index, steps_per_epoch)
            after = self._step(data, rates, received, samples, orders[turn], epoch, step, state)
            return _where(index < self.shape.epochs * steps_per_epoch, after, state)

        # A fixed number of turns: the accelerator runs ahead without asking the host whether to go on.
        loop: Callable[..., _State] = lax.fori_loop
        before = (*self._named(progress.weights), self._trained(progress.velocity), progress.sums)
        parameters, statistics, velocity, sums = loop(0, len(orders), one_step, before)
        return Progress(
            flatten(self.model.layout.names, {**parameters, **statistics}),
            flatten(self.model.trained, velocity),
            sums,
        )

    def add_gradient(
        self, data: Resident, weights: Array, total: Array, orders: Array, samples: Array, first: Array
    ) -> Array:
        """A piece of the last pass: `total` and the summed loss's gradient over these batches."""
        parameters, statistics = self._named(weights)

        def add_batch(turn: Array, before: _Named) -> _Named:
            step = first + turn
            after = self._add(data, parameters, statistics, samples, orders[turn], step, before)
            return _where(step < self._steps_per_epoch(samples), after, before)

        loop: Callable[..., _Named] = lax.fori_loop
        return flatten(self.model.trained, loop(0, len(orders), add_batch, self._trained(total)))

    def mean_gradient(self, coefficients: Array, start: Array, weights: Array, total: Array, samples: Array) -> Array:
        """Of the regularised loss, from what `add_gradient` has summed."""
        (parameters, _), (received, _) = self._named(weights), self._named(start)
        return self._mean(Coefficients(*coefficients), parameters, received, samples, self._trained(total))

    def _named(self, flat: Array) -> tuple[_Named, _Named]:
        """Trained parameters and statistics."""
        whole = unflatten(self.model.layout, flat)
        return {name: whole[name] for name in self.model.trained}, {name: whole[name] for name in self.model.statistics}

    def _trained(self, flat: Array) -> _Named:
        """Of a vector as long as the trained part."""
        missing = self.model.layout.size - self.model.trained_size
        named, _ = self._named(jnp.concatenate([flat, jnp.zeros(missing, flat.dtype)]) if missing else flat)
        return named

    def _steps_per_epoch(self, samples: Array) -> Array:
        batch_size = self.shape.batch_size
        return lax.div(samples + (batch_size - 1), jnp.asarray(batch_size, samples.dtype))

    def _batch_gradient(
        self,
        data: Resident,
        parameters: _Named,
        statistics: _Named,
        samples: Array,
        rows: Array,
        step: Array,
        finished: bool,
    ) -> tuple[_Named, _Named, Array, Array]:
        """Gradient of the summed loss, statistics, the losses (0 where masked) and how many samples there are."""
        model, batch_size = self.model, self.shape.batch_size
        batch, wanted = gather(data, rows, self.window)
        first = step * batch_size
        real = first + jnp.arange(batch_size) < samples
        precise = next(iter(parameters.values())).dtype

        def total(at: _Named) -> tuple[Array, tuple[Array, _Named]]:
            after = statistics
            parameters, given = _halved({**at, **statistics}, batch) if self.half else ({**at, **statistics}, batch)
            if finished or model.apply_in_training is None:
                outputs = model.apply(parameters, given)
            else:
                outputs, changed = model.apply_in_training(parameters, given, real)
                after = {name: changed[name].astype(precise) for name in model.statistics}
            outputs = outputs.astype(precise)
            losses = jnp.where(real, self.objective.loss(outputs, wanted), 0.0)
            return losses.sum(), (losses, after)

        (_, (losses, after)), gradient = jax.value_and_grad(total, has_aux=True)(parameters)
        return gradient, after, losses, jnp.minimum(samples - first, batch_size).astype(losses.dtype)

    def _step(
        self,
        data: Resident,
        rates: Coefficients,
        received: _Named,
        samples: Array,
        rows: Array,
        epoch: Array,
        step: Array,
        state: _State,
    ) -> _State:
        parameters, statistics, velocity, sums = state
        gradient, after, losses, count = self._batch_gradient(
            data, parameters, statistics, samples, rows, step, finished=False
        )
        velocity = jax.tree.map(
            lambda v, g, w, w_0: rates.momentum * v + _regularised(rates, g / count, w, w_0),
            velocity,
            gradient,
            parameters,
            received,
        )
        moved = jax.tree.map(lambda w, v: w - rates.learning_rate * v, parameters, velocity)
        in_last = (epoch == self.shape.epochs - 1).astype(losses.dtype)
        return moved, after, velocity, sums + in_last * jnp.stack([losses.sum(), (losses * losses).sum()])

    def _add(
        self,
        data: Resident,
        parameters: _Named,
        statistics: _Named,
        samples: Array,
        rows: Array,
        step: Array,
        total: _Named,
    ) -> _Named:
        gradient, *_ = self._batch_gradient(data, parameters, statistics, samples, rows, step, finished=True)
        return {name: total[name] + gradient[name] for name in total}

    def _mean(self, rates: Coefficients, parameters: _Named, received: _Named, samples: Array, total: _Named) -> Array:
        gradient = jax.tree.map(lambda g, w, w_0: _regularised(rates, g / samples, w, w_0), total, parameters, received)
        return flatten(self.model.trained, gradient)


def _regularised(rates: Coefficients, mean_gradient: Array, at: Array, origin: Array) -> Array:
    # The penalties' gradients are added here, not differentiated: cheaper, and `w - w_0` is rounded once.
    return mean_gradient + rates.weight_decay * at + rates.proximal_weight * (at - origin)


def _where(chosen: Array, after: _T, before: _T) -> _T:
    kept: _T = jax.tree.map(lambda new, old: jnp.where(chosen, new, old), after, before)
    return kept


def _halved(parameters: _Named, batch: Array) -> tuple[_Named, Array]:
    """Floats as bfloat16; symbols stay whole numbers."""
    less = jnp.bfloat16
    return (
        {name: array.astype(less) for name, array in parameters.items()},
        batch.astype(less) if jnp.issubdtype(batch.dtype, jnp.floating) else batch,
    )
