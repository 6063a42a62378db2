"""The small convolutional network of the MNIST tasks: 20 and 50 filters of 5 x 5, then 500 rectified units."""

from __future__ import annotations

import numpy as np

from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.engine.backend import Array, jax
from async_hfl.learning.models.blocks import block_convolution, pooled_images
from async_hfl.learning.models.convolution import batch_last, biased_max_pool, convolution
from async_hfl.learning.models.model import Model, Parameters, uniform_weights

_FILTER = 5
_FIRST, _SECOND, _HIDDEN = 20, 50, 500
"""Filters of the two convolutions, and hidden units."""
_FEATURES = _SECOND * 4 * 4
"""28 x 28 becomes 24 x 24, pooled 12 x 12, then 8 x 8, pooled 4 x 4."""
_SIDES = {"first": 4, "second": 2}
"""Side of the blocks of outputs, by layer."""


def cnn(classes: int = 10, *, in_blocks: bool = False) -> Model:
    """Build the model for images of shape (batch, 28, 28, 1); 431,080 parameters with 10 classes.

    `in_blocks`: the same function by other matrix products, for accelerators.
    """
    layout = Layout(
        (
            *("first.weight", "first.bias", "second.weight", "second.bias"),
            *("hidden.weight", "hidden.bias", "output.weight", "output.bias"),
        ),
        (
            *((_FILTER, _FILTER, 1, _FIRST), (_FIRST,), (_FILTER, _FILTER, _FIRST, _SECOND), (_SECOND,)),
            *((_FEATURES, _HIDDEN), (_HIDDEN,), (_HIDDEN, classes), (classes,)),
        ),
    )
    fan_in = {"first": _FILTER**2, "second": _FILTER**2 * _FIRST, "hidden": _FEATURES, "output": _HIDDEN}

    def init(random: np.random.Generator) -> Weights:
        return layout.flatten(
            {
                name: uniform_weights(random, shape, fan_in[name.partition(".")[0]])
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

    def apply_in_blocks(parameters: Parameters, batch: Array) -> Array:
        images = batch
        for name, side in _SIDES.items():
            blocks = block_convolution(images, parameters[f"{name}.weight"], side)
            images = pooled_images(blocks, parameters[f"{name}.bias"])
        features = images.transpose(0, 3, 1, 2).reshape(-1, _FEATURES)
        return dense(parameters, features)

    return Model(layout, init, apply_in_blocks if in_blocks else apply)
