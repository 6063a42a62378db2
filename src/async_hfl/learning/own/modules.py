"""Flax and Equinox modules as `init` and `apply` of a task: `OwnTask(**from_flax(module, x[:1]), ...)`.

This package requires none of these libraries; each is imported on use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from async_hfl.core.errors import TaskError


def from_flax(module: Any, example: Any) -> dict[str, Callable[..., Any]]:
    """Wrap a `flax.linen` module that is called with a batch. Only the shape of the batch `example` matters."""

    def init(random: np.random.Generator) -> Any:
        variables = dict(module.init(_key(random), example))
        parameters = variables.pop("params", {})
        if variables:
            raise TaskError(
                f"the module keeps {', '.join(variables)} beside its parameters, which a task of your own cannot: "
                "use GroupNorm or LayerNorm instead of BatchNorm"
            )
        return parameters

    def apply(parameters: Any, batch: Any) -> Any:
        return module.apply({"params": parameters}, batch)

    return {"init": init, "apply": apply}


def from_nnx(make: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """Wrap the `flax.nnx` module that `make(rngs)` returns; it is called with a batch."""
    from flax import nnx

    graph, first, others = nnx.split(make(nnx.Rngs(0)), nnx.Param, ...)
    kept = sorted({type(part).__name__ for part in nnx.to_flat_state(others).leaves})
    if kept:
        raise TaskError(
            f"the module keeps {', '.join(kept)} beside its parameters, which a task of your own cannot: "
            "leave dropout out, use GroupNorm or LayerNorm instead of BatchNorm"
        )

    def init(random: np.random.Generator) -> Any:
        return nnx.to_pure_dict(nnx.state(make(nnx.Rngs(_number(random))), nnx.Param))

    def apply(parameters: Any, batch: Any) -> Any:
        state = nnx.clone(first)
        nnx.replace_by_pure_dict(state, parameters)
        return nnx.merge(graph, state)(batch)

    return {"init": init, "apply": apply}


def from_equinox(make: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """Wrap the Equinox module that `make(key)` returns; it is called with one sample."""
    import equinox

    from async_hfl.learning.engine.backend import jax

    # Parts that are not arrays (activations, sizes) do not depend on the key.
    _, rest = equinox.partition(make(jax.random.key(0)), equinox.is_inexact_array)

    def init(random: np.random.Generator) -> Any:
        parameters, _ = equinox.partition(make(_key(random)), equinox.is_inexact_array)
        return parameters

    def apply(parameters: Any, batch: Any) -> Any:
        return jax.vmap(equinox.combine(parameters, rest))(batch)

    return {"init": init, "apply": apply}


def _number(random: np.random.Generator) -> int:
    return int(random.integers(2**31))


def _key(random: np.random.Generator) -> Any:
    from async_hfl.learning.engine.backend import jax

    return jax.random.key(_number(random))
