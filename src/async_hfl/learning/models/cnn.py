"""The small convolutional network of the MNIST tasks: 20 and 50 filters of 5 x 5, then 500 rectified units."""

from __future__ import annotations

import numpy as np

from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.backend import Array, jax
from async_hfl.learning.models.banded import banded_convolution
from async_hfl.learning.models.banded import biased_max_pool as max_pool_by_row
from async_hfl.learning.models.convolution import batch_last, biased_max_pool, convolution
from async_hfl.learning.models.initial import uniform
from async_hfl.learning.models.model import Model, Parameters

_FILTER = 5
_FEW, _MANY, _HIDDEN = 20, 50, 500
_FEATURES = _MANY * 4 * 4
"""28 x 28 becomes 24 x 24, pooled 12 x 12, then 8 x 8, pooled 4 x 4."""


def cnn(classes: int = 10, *, banded: bool = False) -> Model:
    """For images of 28 x 28 with one channel, (batch, 28, 28, 1); 431,080 parameters with 10 classes.

    `banded`: the same function by larger matrix products, for accelerators.
    """
    layout = Layout(
        (
            *("first.weight", "first.bias", "second.weight", "second.bias"),
            *("hidden.weight", "hidden.bias", "output.weight", "output.bias"),
        ),
        (
            *((_FILTER, _FILTER, 1, _FEW), (_FEW,), (_FILTER, _FILTER, _FEW, _MANY), (_MANY,)),
            *((_FEATURES, _HIDDEN), (_HIDDEN,), (_HIDDEN, classes), (classes,)),
        ),
    )
    fan_in = {"first": _FILTER**2, "second": _FILTER**2 * _FEW, "hidden": _FEATURES, "output": _HIDDEN}

    def init(random: np.random.Generator) -> Weights:
        return layout.flatten(
            {
                name: uniform(random, shape, fan_in[name.partition(".")[0]])
                for name, shape in zip(layout.names, layout.shapes, strict=True)
            }
        )

    def dense(parameters: Parameters, features: Array) -> Array:
        hidden = jax.nn.relu(features @ parameters["hidden.weight"] + parameters["hidden.bias"])
        return hidden @ parameters["output.weight"] + parameters["output.bias"]

    def apply(parameters: Parameters, batch: Array) -> Array:
        images = batch_last(batch)
        for name in ("first", "second"):
            summed = convolution(images, parameters[f"{name}.weight"])
            images = biased_max_pool(summed, parameters[f"{name}.bias"])
        return dense(parameters, images.reshape(_FEATURES, -1).T)

    def apply_banded(parameters: Parameters, batch: Array) -> Array:
        images = batch
        for name in ("first", "second"):
            summed = banded_convolution(images, parameters[f"{name}.weight"])
            images = max_pool_by_row(summed, parameters[f"{name}.bias"])
        features = images.transpose(0, 3, 1, 2).reshape(-1, _FEATURES)
        return dense(parameters, features)

    return Model(layout, init, apply_banded if banded else apply)
