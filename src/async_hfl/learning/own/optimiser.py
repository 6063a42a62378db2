"""The optimiser of a user's task: any transformation of optax, which is the user's own installation.

A function of the learning rate gets `device.learning_rate`; it is traced with the program, so that `central` can lower
it from epoch to epoch. A transformation itself has a learning rate of its own. Both get the user's own tree of
parameters, so that masks and labels fit.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

from async_hfl.core.randomness import stream
from async_hfl.learning.engine.backend import Array, jax
from async_hfl.learning.engine.compilation import like
from async_hfl.learning.engine.optimisers import Coefficients, Named, State, local_optimiser
from async_hfl.learning.engine.recipe import Transformation
from async_hfl.learning.models.model import Model
from async_hfl.learning.own.task import OwnTask
from async_hfl.learning.own.task_errors import TaskErrors

_WANTED = "give an optax.GradientTransformation, or a function (learning rate) that returns one"


def own_optimiser(own: OwnTask, model: Model, errors: TaskErrors) -> Transformation | None:
    """Return the optimiser of a task, tried on the shapes of its model; None if the task has none."""
    if own.optimiser is None:
        return None
    if find_spec("optax") is None:
        raise errors.invalid("optimiser", "needs optax; install it with `pip install optax`, or set device.optimiser")
    takes_rate = callable(own.optimiser)
    chosen = Transformation(_Maker(own, model, errors), takes_rate)
    _try(chosen, model, errors)
    return chosen


class _Named(NamedTuple):
    """A transformation of arrays by name, as the engine has them."""

    init: Any
    update: Any


class _Maker:
    def __init__(self, own: OwnTask, model: Model, errors: TaskErrors) -> None:
        self._given, self._errors = own.optimiser, errors
        self._names = model.layout.names
        self._tree: Any = jax.tree.structure(own.init(stream(0, "initial")))

    def __call__(self, rate: Array) -> _Named:
        import optax

        made = self._given
        if callable(made):
            with self._errors.during("optimiser"):
                made = made(rate)
        if not isinstance(made, optax.GradientTransformation):
            raise self._errors.invalid("optimiser", f"is a {type(made).__name__}; {_WANTED}")

        def update(gradient: Named, state: State, weights: Named) -> tuple[Named, State]:
            updates, after = made.update(self._to_tree(gradient), state, self._to_tree(weights))
            return dict(zip(self._names, jax.tree.leaves(updates), strict=True)), after

        return _Named(lambda weights: made.init(self._to_tree(weights)), update)

    def _to_tree(self, named: Named) -> Any:
        return self._tree.unflatten([named[name] for name in self._names])


def _try(chosen: Transformation, model: Model, errors: TaskErrors) -> None:
    """Trace a step, which computes nothing."""

    def one_step(rates: Array, weights: Named) -> tuple[State, State]:
        coefficients, optimiser = Coefficients(*rates), local_optimiser(chosen)
        before = optimiser.begin(coefficients, weights)
        return before, optimiser.step(coefficients, weights, weights, before)[1]

    layout = model.layout
    weights = {name: like(*shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}
    with errors.during("optimiser"):
        states = jax.eval_shape(one_step, like(4), weights)
    before, after = ([(part.shape, part.dtype) for part in jax.tree.leaves(state)] for state in states)
    trees: list[Any] = [jax.tree.structure(state) for state in states]
    if trees[0] != trees[1] or before != after:
        raise errors.invalid("optimiser", "changes the shapes or types of its state in a step; they must stay the same")
