"""Models as pure functions: `init` draws the first weights, `apply` maps parameters and inputs to outputs.

Outside the engine a model is one flat vector (`core.weights`); inside, its named arrays. The engine knows no more of a
model than this, so a new one is a new function here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias, cast

import numpy as np

from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.backend import Array, jax, jnp

Parameters: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Model:
    layout: Layout
    init: Callable[[np.random.Generator], Weights]
    apply: Callable[[Parameters, Array], Array]
    """Parameters and a batch of inputs to a batch of outputs."""

    @property
    def bytes(self) -> int:
        """M: float32 on the link."""
        return 4 * self.layout.size


def unflatten(layout: Layout, flat: Array) -> dict[str, Array]:
    """`Layout.unflatten` for traced arrays, which slice and reshape as numpy's do."""
    return cast(dict[str, Array], cast(Any, layout).unflatten(flat))


def flatten(layout: Layout, parameters: Parameters) -> Array:
    return jnp.concatenate([parameters[name].reshape(-1) for name in layout.names])


def mlp(inputs: int, hidden: int, outputs: int) -> Model:
    """One hidden layer of rectified units."""
    layout = Layout(
        ("hidden.weight", "hidden.bias", "output.weight", "output.bias"),
        ((inputs, hidden), (hidden,), (hidden, outputs), (outputs,)),
    )

    def init(random: np.random.Generator) -> Weights:
        # He et al. 2015: variance 2/fan-in keeps the signal's size through rectified units; 1/fan-in at the linear end.
        return layout.flatten(
            {
                "hidden.weight": random.standard_normal((inputs, hidden)) * sqrt(2 / inputs),
                "hidden.bias": np.zeros(hidden),
                "output.weight": random.standard_normal((hidden, outputs)) * sqrt(1 / hidden),
                "output.bias": np.zeros(outputs),
            }
        )

    def apply(parameters: Parameters, batch: Array) -> Array:
        features = jax.nn.relu(batch @ parameters["hidden.weight"] + parameters["hidden.bias"])
        return features @ parameters["output.weight"] + parameters["output.bias"]

    return Model(layout, init, apply)
