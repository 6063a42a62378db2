"""Local training of one device as a pure function, which is traced once and compiled.

Shapes do not depend on the job, so every job runs the same machine code. Rows missing from the last batch of an epoch
are computed and masked. Where jobs run one after another, a job is one call with a loop as long as it needs. Where they
run side by side, it is divided into chunks of equally many steps, with one call per chunk: one program then serves jobs
of any length, and steps beyond the end of a job are computed and discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar, final

from async_hfl.learning.engine.backend import Array, jax, jnp, lax
from async_hfl.learning.engine.device_data import DeviceSamples, gather
from async_hfl.learning.engine.optimisers import Coefficients, LocalOptimiser, Named, State, local_optimiser
from async_hfl.learning.engine.recipe import StaticHyperparameters
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model, flatten, unflatten


class Trained(NamedTuple):
    """The result of a job."""

    weights: Array
    """Flat."""
    sums: Array
    """Sums of the loss and the squared loss over the samples of the last epoch."""
    gradient: Array | None
    """Gradient of the trained weights."""


class Progress(NamedTuple):
    """The state of a job between two chunks."""

    parameters: Named
    """Trained weights."""
    statistics: Named
    state: State
    """The state of the optimiser."""
    sums: Array


class _Batch(NamedTuple):
    inputs: Array
    targets: Array
    real: Array
    """Mask of the samples that are not padding."""
    samples: Array
    """Number of samples that are not padding."""


_T = TypeVar("_T")


@final
@dataclass(frozen=True, eq=False)
class LocalTraining:
    """Local training with one model, objective and recipe."""

    model: Model
    objective: Objective
    static: StaticHyperparameters
    window: int = 0
    half: bool = False
    """True if layers compute in bfloat16; weights, sums of gradients, statistics and losses stay in float32."""

    def __call__(
        self, data: DeviceSamples, coefficients: Array, start: Array, orders: Array, samples: Array
    ) -> Trained:
        """Train a whole job. `start` is flat, `orders` are those of one job of `BatchOrders.draw`."""
        epochs, batch_size = self.static.epochs, self.static.batch_size
        rates = Coefficients(*coefficients)
        received, statistics = self.named(start)
        steps_per_epoch = self._steps_per_epoch(samples)

        def rows(turn: Array | int, step: Array) -> Array:
            return lax.dynamic_slice(orders, (turn, step, 0), (1, 1, batch_size)).reshape(batch_size)

        def one_step(index: Array, before: Progress) -> Progress:
            epoch, step = lax.div(index, steps_per_epoch), lax.rem(index, steps_per_epoch)
            return self._step(rates, received, self._batch(data, rows(epoch, step), step, samples), epoch, before)

        def add_batch(step: Array, total: Named) -> Named:
            return self._add(self._batch(data, rows(epochs, step), step, samples), parameters, statistics, total)

        loop: Callable[..., Progress] = lax.fori_loop
        begin = self.begin(rates, received, statistics)
        end = loop(0, epochs * steps_per_epoch, one_step, begin)
        parameters, statistics, _, sums = end
        weights = self.flat(end)
        if not self.static.gradient:
            return Trained(weights, sums, None)
        add: Callable[..., Named] = lax.fori_loop
        total = add(0, steps_per_epoch, add_batch, jax.tree.map(jnp.zeros_like, received))
        return Trained(weights, sums, self._mean(rates, parameters, received, samples, total))

    def begin(self, rates: Coefficients, received: Named, statistics: Named) -> Progress:
        """Return the state of a job before its first step."""
        precise = next(iter(received.values())).dtype
        return Progress(received, statistics, self._optimiser.begin(rates, received), jnp.zeros(2, precise))

    def advance(
        self,
        data: DeviceSamples,
        coefficients: Array,
        received: Named,
        progress: Progress,
        orders: Array,
        samples: Array,
        first: Array,
    ) -> Progress:
        """Train a chunk of as many steps as `orders` has rows, from the job's step `first` on. `received` is the
        trained part of the start weights."""
        rates = Coefficients(*coefficients)
        steps_per_epoch = self._steps_per_epoch(samples)

        def one_step(turn: Array, before: Progress) -> Progress:
            index = first + turn
            epoch, step = lax.div(index, steps_per_epoch), lax.rem(index, steps_per_epoch)
            after = self._step(rates, received, self._batch(data, orders[turn], step, samples), epoch, before)
            return _where(index < self.static.epochs * steps_per_epoch, after, before)

        # A fixed number of iterations: the accelerator need not ask the host whether to continue.
        loop: Callable[..., Progress] = lax.fori_loop
        return loop(0, len(orders), one_step, progress)

    def add_gradient(
        self, data: DeviceSamples, progress: Progress, total: Named, orders: Array, samples: Array, first: Array
    ) -> Named:
        """Return `total` plus the gradient of the summed loss over a chunk of the last pass."""

        def add_batch(turn: Array, before: Named) -> Named:
            step = first + turn
            batch = self._batch(data, orders[turn], step, samples)
            after = self._add(batch, progress.parameters, progress.statistics, before)
            return _where(step < self._steps_per_epoch(samples), after, before)

        loop: Callable[..., Named] = lax.fori_loop
        return loop(0, len(orders), add_batch, total)

    def mean_gradient(
        self, coefficients: Array, received: Named, progress: Progress, total: Named, samples: Array
    ) -> Array:
        """Return the flat gradient of the regularised loss from the sum that `add_gradient` computed."""
        return self._mean(Coefficients(*coefficients), progress.parameters, received, samples, total)

    def named(self, flat: Array) -> tuple[Named, Named]:
        """Split a flat model into trained weights and statistics."""
        whole = unflatten(self.model.layout, flat)
        return {name: whole[name] for name in self.model.trained}, {name: whole[name] for name in self.model.statistics}

    def flat(self, progress: Progress) -> Array:
        return flatten(self.model.layout.names, {**progress.parameters, **progress.statistics})

    @cached_property
    def _optimiser(self) -> LocalOptimiser:
        return local_optimiser(self.static.optimiser)

    def _steps_per_epoch(self, samples: Array) -> Array:
        batch_size = self.static.batch_size
        return lax.div(samples + (batch_size - 1), jnp.asarray(batch_size, samples.dtype))

    def _batch(self, data: DeviceSamples, rows: Array, step: Array, samples: Array) -> _Batch:
        batch_size = self.static.batch_size
        inputs, targets = gather(data, rows, self.window)
        first = step * batch_size
        return _Batch(
            inputs, targets, first + jnp.arange(batch_size) < samples, jnp.minimum(samples - first, batch_size)
        )

    def _batch_gradient(
        self, batch: _Batch, parameters: Named, statistics: Named, *, in_training: bool
    ) -> tuple[Named, Named, Array]:
        """Return the gradient of the summed loss, the statistics and the losses (0 if masked)."""
        model, precise = self.model, next(iter(parameters.values())).dtype

        def total(at: Named) -> tuple[Array, tuple[Array, Named]]:
            after, whole, inputs = statistics, {**at, **statistics}, batch.inputs
            if self.half:
                whole, inputs = _halved(whole, inputs)
            if in_training and model.apply_in_training is not None:
                outputs, changed = model.apply_in_training(whole, inputs, batch.real)
                after = {name: changed[name].astype(precise) for name in model.statistics}
            else:
                outputs = model.apply(whole, inputs)
            losses = jnp.where(batch.real, self.objective.loss(outputs.astype(precise), batch.targets), 0.0)
            return losses.sum(), (losses, after)

        (_, (losses, after)), gradient = jax.value_and_grad(total, has_aux=True)(parameters)
        return gradient, after, losses

    def _step(self, rates: Coefficients, received: Named, batch: _Batch, epoch: Array, before: Progress) -> Progress:
        parameters, statistics, state, sums = before
        gradient, after, losses = self._batch_gradient(batch, parameters, statistics, in_training=True)
        count = batch.samples.astype(losses.dtype)
        mean = jax.tree.map(
            lambda g, w, w_0: self._regularised(rates, g / count, w, w_0), gradient, parameters, received
        )
        moved, state = self._optimiser.step(rates, mean, parameters, state)
        in_last = (epoch == self.static.epochs - 1).astype(losses.dtype)
        sums += in_last * jnp.stack([losses.sum(), (losses * losses).sum()])
        return Progress(moved, after, state, sums)

    def _add(self, batch: _Batch, parameters: Named, statistics: Named, total: Named) -> Named:
        gradient, *_ = self._batch_gradient(batch, parameters, statistics, in_training=False)
        return {name: total[name] + gradient[name] for name in total}

    def _mean(self, rates: Coefficients, parameters: Named, received: Named, samples: Array, total: Named) -> Array:
        regularised = self._regularised
        gradient = jax.tree.map(lambda g, w, w_0: regularised(rates, g / samples, w, w_0), total, parameters, received)
        return flatten(self.model.trained, gradient)

    def _regularised(self, rates: Coefficients, mean_gradient: Array, at: Array, origin: Array) -> Array:
        # The gradients of penalties are added here, not differentiated: cheaper, and `w - w_0` is rounded once.
        if not self._optimiser.decoupled:
            mean_gradient = mean_gradient + rates.weight_decay * at
        return mean_gradient + rates.proximal_weight * (at - origin)


def _where(chosen: Array, after: _T, before: _T) -> _T:
    kept: _T = jax.tree.map(lambda new, old: jnp.where(chosen, new, old), after, before)
    return kept


def _halved(parameters: Named, batch: Array) -> tuple[Named, Array]:
    """Convert floats to bfloat16; integer inputs stay as they are."""
    halved = {name: array.astype(jnp.bfloat16) for name, array in parameters.items()}
    return halved, batch.astype(jnp.bfloat16) if jnp.issubdtype(batch.dtype, jnp.floating) else batch
