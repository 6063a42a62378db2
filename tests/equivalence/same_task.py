"""One task in four libraries: the same perceptron from the same weights, the same data, the same partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from async_hfl import OwnTask, TorchTask, from_equinox, from_flax

INPUTS, HIDDEN, CLASSES = 16, 24, 4


def weights() -> list[np.ndarray[Any, Any]]:
    """Matrices as (inputs, outputs), and the bias of each layer."""
    random = np.random.default_rng(7)
    first, second = random.standard_normal((INPUTS, HIDDEN)) / 4, random.standard_normal((HIDDEN, CLASSES)) / 5
    return [part.astype(np.float32) for part in (first, np.full(HIDDEN, 0.01), second, np.zeros(CLASSES))]


def sounds(seed: int, count: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    kind = random.integers(0, CLASSES, count)
    return random.standard_normal((count, INPUTS)) + 1.2 * (np.arange(INPUTS) // 4 == kind[:, None]), kind


def common(devices: int) -> dict[str, Any]:
    arguments = {"alpha": 0.8, "min_partition_size": 5}
    data = {"train": sounds(1, 40 * devices), "test": sounds(2, 500)}
    return {"target": 1.0, **data, "partition": "dirichlet", "arguments": arguments}


def plain(devices: int, seed: int) -> OwnTask:
    import jax

    def apply(parameters: Any, batch: Any) -> Any:
        hidden = jax.nn.relu(batch @ parameters["a"] + parameters["b"])
        return hidden @ parameters["c"] + parameters["d"]

    return OwnTask(init=lambda random: dict(zip("abcd", weights(), strict=True)), apply=apply, **common(devices))


def flax(devices: int, seed: int) -> OwnTask:
    from flax import linen

    module = linen.Sequential([linen.Dense(HIDDEN), linen.relu, linen.Dense(CLASSES)])
    functions = from_flax(module, np.zeros((1, INPUTS), np.float32))

    def init(random: np.random.Generator) -> Any:
        first, bias, second, last = weights()
        tree = {"layers_0": {"kernel": first, "bias": bias}, "layers_2": {"kernel": second, "bias": last}}
        assert {name: set(part) for name, part in functions["init"](random).items()} == {
            name: set(part) for name, part in tree.items()
        }
        return tree

    return OwnTask(init=init, apply=functions["apply"], **common(devices))


def equinox(devices: int, seed: int) -> OwnTask:
    import equinox as library
    import jax

    def make(key: Any) -> Any:
        return library.nn.MLP(INPUTS, CLASSES, HIDDEN, depth=1, activation=jax.nn.relu, key=key)

    functions = from_equinox(make)

    def init(random: np.random.Generator) -> Any:
        first, bias, second, last = weights()
        places = lambda tree: [part for layer in tree.layers for part in (layer.weight, layer.bias)]  # noqa: E731
        return library.tree_at(places, functions["init"](random), [first.T, bias, second.T, last])

    return OwnTask(init=init, apply=functions["apply"], **common(devices))


def torch(devices: int, seed: int) -> TorchTask:
    import torch as library

    def model() -> Any:
        layers = library.nn.Sequential(
            library.nn.Linear(INPUTS, HIDDEN), library.nn.ReLU(), library.nn.Linear(HIDDEN, CLASSES)
        )
        for parameter, given in zip(layers.parameters(), weights(), strict=True):
            parameter.data = library.from_numpy(np.ascontiguousarray(given.T))
        return layers

    return TorchTask(model=model, **common(devices))
