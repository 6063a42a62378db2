"""Flower's NumPyClient, by its methods alone: `fit`, `evaluate`, `get_parameters`. Any object that has them will do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from async_hfl.adapters.arrays import Array
from async_hfl.adapters.clients import Call, Config, Evaluated, Fitted, Model, config_of
from async_hfl.adapters.flower_context import new_context, state_of
from async_hfl.adapters.generators import seed_generators
from async_hfl.adapters.initial_model import model_of
from async_hfl.core.errors import TaskError


@final
@dataclass(frozen=True, slots=True)
class NumPyClients:
    make: Callable[..., Any]
    """`client_fn(context)`, or `client_fn(cid)` as older releases of Flower call it."""
    initial: Callable[[], Any] | None
    """Makes the initial model; None: `get_parameters` of the first device's client."""
    config: Config
    run_config: Mapping[str, Any]

    def model(self, call: Call) -> Model:
        if self.initial is not None:
            return model_of(self.initial())
        client, _ = self._client(call)
        if not hasattr(client, "get_parameters"):
            raise TaskError(
                "the client has no get_parameters, and no initial model is given: give model=FUNCTION to the adapter "
                "(it makes the module, or a list or dict of arrays)"
            )
        seed_generators(call.seed)
        arrays = _parameters(client)
        return Model([str(number) for number in range(len(arrays))], arrays, [True] * len(arrays))

    def fit(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Fitted:
        client, context = self._client(call)
        seed_generators(call.seed)
        answer = client.fit(list(arrays), config_of(self.config, call.number))
        if not isinstance(answer, tuple | list) or len(answer) != 3:
            raise TaskError(f"returned {_kind(answer)}; return (parameters, number of examples, metrics)")
        parameters, samples, metrics = answer
        if not isinstance(parameters, Sequence):
            raise TaskError(f"returned {_kind(parameters)} as parameters; return a list of arrays")
        return Fitted(parameters, samples, _metrics(metrics), state_of(context))

    def evaluate(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Evaluated | None:
        client, _ = self._client(call)
        if not hasattr(client, "evaluate"):
            return None
        seed_generators(call.seed)
        answer = client.evaluate(list(arrays), config_of(self.config, call.number))
        if not isinstance(answer, tuple | list) or len(answer) != 3:
            raise TaskError(f"returned {_kind(answer)}; return (loss, number of examples, metrics)")
        loss, samples, metrics = answer
        return Evaluated(samples, {**_metrics(metrics), "loss": loss})

    def at_server(self, function: Callable[..., Any], names: Sequence[str], arrays: Sequence[Array]) -> Evaluated:
        """Call a strategy's `evaluate_fn(server_round, parameters, config)`."""
        answer = function(0, list(arrays), {})
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            raise TaskError(f"returned {_kind(answer)}; return (loss, metrics)")
        loss, metrics = answer
        return Evaluated(1, {**_metrics(metrics), "loss": loss})

    def _client(self, call: Call) -> tuple[Any, Any]:
        """Make the client anew, as Flower does for every message, and its context."""
        context = new_context(call, self.run_config)
        seed_generators(call.data_seed)
        first, *_ = inspect.signature(self.make).parameters
        made = self.make(str(call.device) if first == "cid" else context)
        client = getattr(made, "numpy_client", made)  # what to_client() wraps
        if not callable(getattr(client, "fit", None)):
            raise TaskError(f"made {_kind(made)}, which has no fit; return a NumPyClient")
        return client, context


def check_client_function(function: Any) -> None:
    """Raises TaskError if this cannot be a `client_fn`."""
    if not callable(function) or isinstance(function, type):
        advice = "it would be the same client for every device; " if hasattr(function, "fit") else ""
        raise TaskError(f"flower(...): is {_kind(function)}; {advice}give client_fn(context), or a ClientApp")
    if len(inspect.signature(function).parameters) != 1:
        raise TaskError("flower(...): client_fn takes one argument, the context (or cid)")


def _parameters(client: Any) -> list[Array]:
    return [np.asarray(array) for array in client.get_parameters({})]


def _metrics(metrics: Any) -> Mapping[str, Any]:
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TaskError(f"returned {_kind(metrics)} as metrics; return a dict")
    return metrics


def _kind(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"{len(value)} values"
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    return "None" if value is None else f"{'the class' if isinstance(value, type) else 'a'} {name}"
