"""The recipe of local training: mini-batch steps of an optimiser on the regularised local loss.

With l the mean loss over the device's data and w_0 the model it received, the optimiser minimises

    l(w) + weight_decay/2 |w|^2 + proximal_weight/2 |w - w_0|^2

AdamW leaves the weight decay out of this loss and shrinks the weights in each step instead. Importing this module does
not import JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import SettingsError

SingleSample: TypeAlias = Literal["auto", "merge", "drop", "keep"]


@dataclass(frozen=True, slots=True)
class Sgd:
    """Stochastic gradient descent, with `Recipe.momentum`."""


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma & Ba, ICLR 2015), or AdamW (Loshchilov & Hutter, ICLR 2019) if `decoupled`."""

    beta1: float = 0.9
    """beta_1: share of the mean gradient that each step keeps."""
    beta2: float = 0.999
    """beta_2: share of the mean squared gradient that each step keeps."""
    epsilon: float = 1e-8
    """Added to the root of the mean squared gradient."""
    decoupled: bool = False
    """True if the weight decay is no part of the loss: each step multiplies the weights by 1 - gamma weight_decay."""


@dataclass(frozen=True, slots=True, eq=False)
class Transformation:
    """The optimiser of a user's task."""

    make: Callable[[Any], Any]
    """(learning rate) -> an optax.GradientTransformation. The rate is an argument of the compiled program."""
    takes_rate: bool
    """False if the transformation has a learning rate of its own, whatever the recipe says."""


Optimiser: TypeAlias = Sgd | Adam | Transformation


@dataclass(frozen=True, slots=True)
class StaticHyperparameters:
    """The part of a recipe that is compiled into the program; the rest are arguments of the program."""

    epochs: int
    batch_size: int
    gradient: bool
    optimiser: Optimiser = Sgd()

    @property
    def passes(self) -> int:
        """Number of passes over the data: the final gradient takes one more."""
        return self.epochs + self.gradient

    def steps_per_epoch(self, samples: int) -> int:
        """Return the number of batches, of which the last may be smaller than the others."""
        return -(-samples // self.batch_size)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The hyperparameters of local training."""

    epochs: int
    """E: passes over the local data."""
    batch_size: int
    learning_rate: float
    """gamma."""
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal_weight: float = 0.0
    """rho."""
    gradient: bool = False
    """Also compute the gradient of the regularised loss at the final weights, over all local data."""
    single_sample: SingleSample = "auto"
    """See the setting `device.single_sample`."""
    optimiser: Optimiser = Sgd()

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise SettingsError(f"device.{name} = {getattr(self, name)} must be at least 1")
        if not (isfinite(self.learning_rate) and self.learning_rate > 0):
            raise SettingsError(f"device.learning_rate = {self.learning_rate} must be above 0")
        if not 0 <= self.momentum < 1:
            raise SettingsError(f"device.momentum = {self.momentum} must be in [0, 1)")
        for name in ("weight_decay", "proximal_weight"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise SettingsError(f"device.{name} = {getattr(self, name)} must be at least 0")
        if isinstance(self.optimiser, Adam):
            _check_adam(self.optimiser)

    @property
    def static(self) -> StaticHyperparameters:
        return StaticHyperparameters(self.epochs, self.batch_size, self.gradient, self.optimiser)

    @property
    def coefficients(self) -> npt.NDArray[np.float32]:
        return np.array([self.learning_rate, self.momentum, self.weight_decay, self.proximal_weight], dtype=np.float32)


def _check_adam(adam: Adam) -> None:
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(adam, name) < 1:
            raise SettingsError(f"device.adam_{name} = {getattr(adam, name)} must be in [0, 1)")
    if not (isfinite(adam.epsilon) and adam.epsilon > 0):
        raise SettingsError(f"device.adam_epsilon = {adam.epsilon} must be above 0")
