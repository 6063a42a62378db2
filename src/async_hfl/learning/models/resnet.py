"""ResNet-18 for images of 32 x 32 (He et al. 2016, section 4.2's stem with the four stages of section 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.engine.backend import Array, jax
from async_hfl.learning.models.convolution import batch_last, convolution
from async_hfl.learning.models.model import Drawn, Model, Parameters, uniform_weights
from async_hfl.learning.models.normalisation import Statistics, batch_norm, group_norm, running_norm, scaled

_CHANNELS = (64, 128, 256, 512)
_GROUPS = 32
"""Groups of a group norm: the number that Wu & He 2018 recommend; the channels of every stage are a multiple of it."""

_Normalise: TypeAlias = Callable[[str, Array], Array]
"""(name of the preceding convolution, images) -> normalised images, not yet scaled."""


class _Convolution(NamedTuple):
    inputs: int
    outputs: int
    size: int
    stride: int


def _convolutions() -> dict[str, _Convolution]:
    """By name, in the order of the layout."""
    found = {"stem": _Convolution(3, _CHANNELS[0], 3, 1)}
    inputs = _CHANNELS[0]
    for stage, outputs in enumerate(_CHANNELS, 1):
        for block in (1, 2):
            stride = 2 if stage > 1 and block == 1 else 1
            name = f"stage{stage}.block{block}"
            found[f"{name}.first"] = _Convolution(inputs, outputs, 3, stride)
            found[f"{name}.second"] = _Convolution(outputs, outputs, 3, 1)
            if stride != 1 or inputs != outputs:
                found[f"{name}.shortcut"] = _Convolution(inputs, outputs, 1, stride)
            inputs = outputs
    return found


def resnet18(norm: Literal["batch", "group"] = "batch", classes: int = 10) -> Model:
    """Build the model for images of shape (batch, 32, 32, 3); 11,173,962 trained parameters, and with batch norm 9,600
    running statistics.

    Batch norm is the published variant. Its statistics follow the data of the devices that trained last, which hurts if
    devices hold few classes; group norm has none.
    """
    convolutions = _convolutions()
    shapes: dict[str, tuple[int, ...]] = {}
    statistics: dict[str, tuple[int, ...]] = {}
    for name, one in convolutions.items():
        shapes[f"{name}.weight"] = (one.size, one.size, one.inputs, one.outputs)
        shapes[f"{name}.scale"] = shapes[f"{name}.shift"] = (one.outputs,)
        if norm == "batch":
            statistics[f"{name}.mean"] = statistics[f"{name}.variance"] = (one.outputs,)
    shapes["output.weight"] = (_CHANNELS[-1], classes)
    shapes["output.bias"] = (classes,)
    layout = Layout((*shapes, *statistics), (*shapes.values(), *statistics.values()))

    def init(random: np.random.Generator) -> Weights:
        drawn: dict[str, Drawn] = {}
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            of, _, kind = name.rpartition(".")
            if of == "output":
                drawn[name] = uniform_weights(random, shape, _CHANNELS[-1])
            elif kind == "weight":
                drawn[name] = uniform_weights(random, shape, convolutions[of].inputs * convolutions[of].size ** 2)
            else:
                drawn[name] = np.ones(shape) if kind in ("scale", "variance") else np.zeros(shape)
        return layout.flatten(drawn)

    def network(parameters: Parameters, batch: Array, normalise: _Normalise) -> Array:
        def layer(name: str, images: Array) -> Array:
            one = convolutions[name]
            summed = convolution(images, parameters[f"{name}.weight"], one.stride, padding=one.size // 2)
            return scaled(normalise(name, summed), parameters[f"{name}.scale"], parameters[f"{name}.shift"])

        images = jax.nn.relu(layer("stem", batch_last(batch)))
        for stage in range(1, len(_CHANNELS) + 1):
            for block in (1, 2):
                name = f"stage{stage}.block{block}"
                around = layer(f"{name}.shortcut", images) if f"{name}.shortcut" in convolutions else images
                inside = layer(f"{name}.second", jax.nn.relu(layer(f"{name}.first", images)))
                images = jax.nn.relu(inside + around)
        features = images.mean(axis=(1, 2)).T
        return features @ parameters["output.weight"] + parameters["output.bias"]

    def running(parameters: Parameters, name: str) -> Statistics:
        return Statistics(parameters[f"{name}.mean"], parameters[f"{name}.variance"])

    def apply_group(parameters: Parameters, batch: Array) -> Array:
        return network(parameters, batch, lambda name, images: group_norm(images, _GROUPS))

    def apply_in_inference(parameters: Parameters, batch: Array) -> Array:
        return network(parameters, batch, lambda name, images: running_norm(images, running(parameters, name)))

    def apply_in_training(parameters: Parameters, batch: Array, mask: Array) -> tuple[Array, Parameters]:
        after: dict[str, Array] = {}

        def normalise(name: str, images: Array) -> Array:
            normalised, (mean, variance) = batch_norm(images, mask, running(parameters, name))
            after[f"{name}.mean"], after[f"{name}.variance"] = mean, variance
            return normalised

        return network(parameters, batch, normalise), after

    if norm == "group":
        return Model(layout, init, apply_group)
    return Model(layout, init, apply_in_inference, apply_in_training, tuple(statistics))
