"""The optimisers of `learning.engine.optimisers` on one flat vector in PyTorch. They begin anew with each job."""

from __future__ import annotations

from typing import Any, Protocol

from async_hfl.learning.engine.recipe import Adam, Recipe


class FlatOptimiser(Protocol):
    def step(self, flat: Any, gradient: Any, origin: Any) -> None:
        """Change the weights `flat` in place. `gradient`, of the mean loss, may change too."""
        ...


def flat_optimiser(torch: Any, recipe: Recipe, rate: float, flat: Any) -> FlatOptimiser:
    """Return the optimiser of one job that begins with the weights `flat`."""
    if isinstance(recipe.optimiser, Adam):
        return _Adam(torch, recipe, recipe.optimiser, rate, flat)
    return _Sgd(torch, recipe, rate, flat)


def penalise(recipe: Recipe, gradient: Any, flat: Any, origin: Any) -> None:
    """Add the gradients of the penalties in place."""
    decoupled = isinstance(recipe.optimiser, Adam) and recipe.optimiser.decoupled
    if recipe.weight_decay and not decoupled:
        gradient.add_(flat, alpha=recipe.weight_decay)
    if recipe.proximal_weight:
        gradient.add_(flat - origin, alpha=recipe.proximal_weight)


class _Sgd:
    def __init__(self, torch: Any, recipe: Recipe, rate: float, flat: Any) -> None:
        self._recipe, self._rate, self._velocity = recipe, rate, torch.zeros_like(flat)

    def step(self, flat: Any, gradient: Any, origin: Any) -> None:
        self._velocity.mul_(self._recipe.momentum).add_(gradient)
        penalise(self._recipe, self._velocity, flat, origin)
        flat.add_(self._velocity, alpha=-self._rate)


class _Adam:
    def __init__(self, torch: Any, recipe: Recipe, adam: Adam, rate: float, flat: Any) -> None:
        self._recipe, self._adam, self._rate, self._steps = recipe, adam, rate, 0
        self._mean, self._square = torch.zeros_like(flat), torch.zeros_like(flat)

    def step(self, flat: Any, gradient: Any, origin: Any) -> None:
        recipe, adam, rate = self._recipe, self._adam, self._rate
        self._steps += 1
        penalise(recipe, gradient, flat, origin)
        self._mean.mul_(adam.beta1).add_(gradient, alpha=1 - adam.beta1)
        self._square.mul_(adam.beta2).addcmul_(gradient, gradient, value=1 - adam.beta2)
        root = (self._square / (1 - adam.beta2**self._steps)).sqrt_()
        if adam.decoupled:
            flat.mul_(1 - rate * recipe.weight_decay)
        flat.addcdiv_(self._mean, root.add_(adam.epsilon), value=-rate / (1 - adam.beta1**self._steps))
