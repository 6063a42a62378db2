"""A perceptron with one hidden layer of rectified units."""

from __future__ import annotations

from math import sqrt

import numpy as np

from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.engine.backend import Array, jax
from async_hfl.learning.models.model import Model, Parameters


def mlp(inputs: int, hidden: int, outputs: int) -> Model:
    """Build the model."""
    layout = Layout(
        ("hidden.weight", "hidden.bias", "output.weight", "output.bias"),
        ((inputs, hidden), (hidden,), (hidden, outputs), (outputs,)),
    )

    def init(random: np.random.Generator) -> Weights:
        # He et al. 2015: variance 2/fan-in preserves the scale of the signal through rectified units; 1/fan-in at the
        # output.
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
