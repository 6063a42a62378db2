"""Models as the engine sees them: the initial weights, and the function from parameters and inputs to outputs.

Outside the engine a model is one flat vector (`core.weights`); inside, it is a set of named arrays. A new architecture
is a new file in this package; the engine needs nothing else.

Statistics (the running means of batch normalisation) are sent and averaged like weights, but have no gradient. They are
last in the layout, so that the trained part of a flat model comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import InternalError
from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.engine.backend import Array, jnp

Parameters: TypeAlias = Mapping[str, Array]
Drawn: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Model:
    layout: Layout
    init: Callable[[np.random.Generator], Weights]
    apply: Callable[[Parameters, Array], Array]
    """(parameters, batch of inputs) -> batch of outputs, in inference."""
    apply_in_training: Callable[[Parameters, Array, Array], tuple[Array, Parameters]] | None = None
    """(parameters, batch, mask of the real samples) -> outputs and the statistics after this batch.

    None if a model behaves in training as in inference. Masked samples must not affect the statistics.
    """
    statistics: tuple[str, ...] = ()
    """The last names in the layout, which training replaces instead of optimising."""

    def __post_init__(self) -> None:
        if self.layout.names[len(self.layout.names) - len(self.statistics) :] != self.statistics:
            raise InternalError("a model's statistics must stand last in its layout")
        if bool(self.statistics) != (self.apply_in_training is not None):
            raise InternalError("a model with statistics says how training changes them, and only such a model")

    @property
    def bytes(self) -> int:
        """M: size in float32 on the link."""
        return 4 * self.layout.size

    @property
    def trained(self) -> tuple[str, ...]:
        return self.layout.names[: len(self.layout.names) - len(self.statistics)]

    @property
    def trained_size(self) -> int:
        """Length of a gradient: the flat model without its statistics."""
        return sum(prod(shape) for shape in self.layout.shapes[: len(self.trained)])


def unflatten(layout: Layout, flat: Array) -> dict[str, Array]:
    """Apply `Layout.unflatten` to traced arrays, which slice and reshape as numpy's do."""
    return cast(dict[str, Array], cast(Any, layout).unflatten(flat))


def flatten(names: tuple[str, ...], parameters: Parameters) -> Array:
    return jnp.concatenate([parameters[name].reshape(-1) for name in names])


def uniform_weights(random: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> Drawn:
    """Draw initial weights or biases from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's default initialisation.

    This is He et al. 2015 with a = sqrt(5). `fan_in` is the number of inputs summed into one output; for the weights of
    an LSTM, PyTorch uses the hidden size instead.
    """
    bound = 1 / sqrt(fan_in)
    return random.uniform(-bound, bound, shape)
