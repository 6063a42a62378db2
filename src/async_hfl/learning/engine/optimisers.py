"""The optimisers of local training: pure functions of gradient, weights and state, traced with the rest of a job.

Each of them starts anew with every job: what a device remembered would be about a model that it no longer has.

SGD with momentum mu:       v <- mu v + g,                        w <- w - gamma v
Adam (Kingma & Ba, 2015):   m <- beta_1 m + (1 - beta_1) g,       s <- beta_2 s + (1 - beta_2) g^2,
                            w <- w - gamma (m / (1 - beta_1^t)) / (sqrt(s / (1 - beta_2^t)) + epsilon)
AdamW (Loshchilov & Hutter, 2019): the same, less gamma weight_decay w

g is the gradient of the regularised loss at w, which for AdamW has no weight decay in it.
"""

from __future__ import annotations

from math import inf, log
from typing import Any, NamedTuple, Protocol, TypeAlias

from async_hfl.learning.engine.backend import Array, jax, jnp
from async_hfl.learning.engine.recipe import Adam, Optimiser, Sgd, Transformation

Named: TypeAlias = dict[str, Array]
"""Arrays of a model by name: those that are trained, or its statistics."""
State: TypeAlias = Any
"""A tree of arrays."""


class Coefficients(NamedTuple):
    """Hyperparameters that are arguments of the program, so that jobs with different values share it."""

    learning_rate: Array
    momentum: Array
    weight_decay: Array
    proximal_weight: Array


class LocalOptimiser(Protocol):
    decoupled: bool
    """True if `step` applies the weight decay itself; otherwise it is in the gradient."""

    def begin(self, rates: Coefficients, weights: Named) -> State:
        """Return the state before the first step."""
        ...

    def step(self, rates: Coefficients, gradient: Named, weights: Named, state: State) -> tuple[Named, State]:
        """Return the weights and the state after a step."""
        ...


def local_optimiser(chosen: Optimiser) -> LocalOptimiser:
    if isinstance(chosen, Adam):
        return _Adam(chosen)
    return _Own(chosen) if isinstance(chosen, Transformation) else _Sgd(chosen)


def optimiser_state(chosen: Optimiser, coefficients: Any, weights: Any) -> State:
    """Return the shapes of the states of jobs that run side by side, from those of their coefficients and weights."""

    def begin(rates: Array, weights: Named) -> State:
        return local_optimiser(chosen).begin(Coefficients(*rates), weights)

    return jax.eval_shape(jax.vmap(begin), coefficients, weights)


class _Sgd:
    decoupled = False

    def __init__(self, chosen: Sgd) -> None:
        self._chosen = chosen

    def begin(self, rates: Coefficients, weights: Named) -> Named:
        at_rest: Named = jax.tree.map(jnp.zeros_like, weights)
        return at_rest

    def step(self, rates: Coefficients, gradient: Named, weights: Named, state: Named) -> tuple[Named, Named]:
        velocity = jax.tree.map(lambda v, g: rates.momentum * v + g, state, gradient)
        return jax.tree.map(lambda w, v: w - rates.learning_rate * v, weights, velocity), velocity


class _Moments(NamedTuple):
    steps: Array
    mean: Named
    square: Named


class _Adam:
    def __init__(self, chosen: Adam) -> None:
        self._chosen = chosen
        self.decoupled = chosen.decoupled

    def begin(self, rates: Coefficients, weights: Named) -> _Moments:
        at_rest = jax.tree.map(jnp.zeros_like, weights)
        return _Moments(jnp.zeros((), jnp.float32), at_rest, at_rest)

    def step(self, rates: Coefficients, gradient: Named, weights: Named, state: _Moments) -> tuple[Named, _Moments]:
        beta1, beta2, epsilon = self._chosen.beta1, self._chosen.beta2, self._chosen.epsilon
        steps = state.steps + 1
        mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mean, gradient)
        square = jax.tree.map(lambda s, g: beta2 * s + (1 - beta2) * (g * g), state.square, gradient)
        # Two numbers for each step, rather than two divisions for each weight.
        rate, scale = rates.learning_rate / _debias(beta1, steps), 1 / _debias(beta2, steps)
        shrinkage = rates.learning_rate * rates.weight_decay

        def moved(w: Array, m: Array, s: Array) -> Array:
            step = rate * m / (jnp.sqrt(scale * s) + epsilon)
            return w - (step + shrinkage * w if self.decoupled else step)

        return jax.tree.map(moved, weights, mean, square), _Moments(steps, mean, square)


def _debias(beta: float, steps: Array) -> Array:
    """Return 1 - beta^steps, which single precision would lose most digits of if it were computed as written."""
    return -jnp.expm1(steps * (log(beta) if beta else -inf))


class _Own:
    """The user's transformation, made anew in each trace from the traced learning rate."""

    decoupled = False

    def __init__(self, chosen: Transformation) -> None:
        self._make = chosen.make

    def begin(self, rates: Coefficients, weights: Named) -> State:
        return jax.tree.map(jnp.asarray, self._make(rates.learning_rate).init(weights))

    def step(self, rates: Coefficients, gradient: Named, weights: Named, state: State) -> tuple[Named, State]:
        updates, after = self._make(rates.learning_rate).update(gradient, state, weights)
        return jax.tree.map(lambda w, u: w + u.astype(w.dtype), weights, updates), after
