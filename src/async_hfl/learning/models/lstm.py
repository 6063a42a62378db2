"""Recurrent networks whose output follows the last step: the next character of a text, the next reading of a series."""

from __future__ import annotations

import numpy as np

from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.engine.backend import Array, jax
from async_hfl.learning.models.model import Drawn, Model, Parameters, uniform_weights
from async_hfl.learning.models.recurrence import recurrence


def character_lstm(
    symbols: int = 80, embedding: int = 8, hidden: int = 100, layers: int = 1, *, unroll: int = 1
) -> Model:
    """Build the model from symbol numbers (batch, time) to the next symbol's logits; 52,720 parameters with one layer,
    133,520 with two. `unroll` affects speed alone (see `recurrence`)."""
    stack = _Stack(embedding, hidden, layers, symbols, unroll)
    layout = Layout(("embedding.weight", *stack.names), ((symbols, embedding), *stack.shapes))

    def init(random: np.random.Generator) -> Weights:
        first: dict[str, Drawn] = {"embedding.weight": random.standard_normal((symbols, embedding))}
        return layout.flatten(first | stack.draw(random))

    def apply(parameters: Parameters, batch: Array) -> Array:
        # A product with one-hot rows: the derivative of a lookup is a slow scatter.
        table = parameters["embedding.weight"]
        chosen = jax.nn.one_hot(batch.T.reshape(-1), symbols, dtype=table.dtype)
        return stack.apply(parameters, (chosen @ table).reshape(*batch.T.shape, embedding))

    return Model(layout, init, apply)


def series_lstm(values: int = 12, hidden: int = 128, *, unroll: int = 1) -> Model:
    """Build the model from readings (batch, time, values) to the next reading; 74,252 parameters."""
    stack = _Stack(values, hidden, 1, values, unroll)
    layout = Layout(stack.names, stack.shapes)

    def init(random: np.random.Generator) -> Weights:
        return layout.flatten(stack.draw(random))

    def apply(parameters: Parameters, batch: Array) -> Array:
        return stack.apply(parameters, batch.transpose(1, 0, 2))

    return Model(layout, init, apply)


class _Stack:
    """Stacked LSTM layers and a linear map of the last step, with two biases per layer, as in PyTorch."""

    def __init__(self, inputs: int, hidden: int, layers: int, outputs: int, unroll: int) -> None:
        self._hidden = hidden
        self._layers = layers
        self._unroll = unroll
        self.names: tuple[str, ...] = ()
        self.shapes: tuple[tuple[int, ...], ...] = ()
        for layer in range(1, layers + 1):
            width = inputs if layer == 1 else hidden
            parts = ("input_weight", "hidden_weight", "input_bias", "hidden_bias")
            self.names += tuple(f"layer{layer}.{part}" for part in parts)
            self.shapes += ((width, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,), (4 * hidden,))
        self.names += ("output.weight", "output.bias")
        self.shapes += ((hidden, outputs), (outputs,))

    def draw(self, random: np.random.Generator) -> dict[str, Drawn]:
        shapes = zip(self.names, self.shapes, strict=True)
        return {name: uniform_weights(random, shape, self._hidden) for name, shape in shapes}

    def apply(self, parameters: Parameters, steps: Array) -> Array:
        """Map (time, batch, inputs) to (batch, outputs)."""
        for layer in range(1, self._layers + 1):
            parts = (parameters[f"layer{layer}.{part}"] for part in ("input_weight", "hidden_weight"))
            bias = parameters[f"layer{layer}.input_bias"] + parameters[f"layer{layer}.hidden_bias"]
            steps = recurrence(steps, *parts, bias, layer < self._layers, self._unroll)
        return steps @ parameters["output.weight"] + parameters["output.bias"]
