"""The interface between a learner and the user's client code: calls in, results out.

One class per kind of client implements it: `numpy_client` (Flower's NumPyClient, by its methods alone), `client_app`
(Flower's ClientApp) and `torch_function` (a function that trains a module).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from async_hfl.adapters.arrays import Array

Config: TypeAlias = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
"""The configuration that a call passes to the client; a function gets the number of the device's job, from 1."""


class Model(NamedTuple):
    """Named arrays in the client's order."""

    names: Sequence[str]
    arrays: Sequence[Array]
    trained: Sequence[bool]
    """False for statistics and fixed parameters."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client."""

    device: int
    """The partition that the client reads, numbered from 0."""
    devices: int
    number: int
    """The number of the device's job, from 1: what a client knows as the round."""
    data_seed: int
    """Seeds the generators before the client is made: the same in every call, so that a random split stays."""
    seed: int
    """Seeds the generators before the client trains."""
    state: bytes = b""
    """The contents of `context.state` as the client's last call left them, in Flower's own format."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of training, as a client returned it."""

    arrays: Sequence[Any]
    samples: int
    metrics: Mapping[str, Any] = field(default_factory=dict)
    state: bytes = b""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The result of an evaluation, as a client returned it."""

    samples: int
    metrics: Mapping[str, Any]
    """Among them "loss", if the client gives it apart."""


class Clients(Protocol):
    """The clients of all devices. Errors of the user's code are raised as they are; the worker explains them."""

    def model(self, call: Call) -> Model:
        """Make the initial model, with generators seeded by `call.seed`."""
        ...

    def fit(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Fitted: ...

    def evaluate(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Evaluated | None:
        """Return None if the client does not evaluate."""
        ...

    def at_server(self, function: Callable[..., Any], names: Sequence[str], arrays: Sequence[Array]) -> Evaluated:
        """Evaluate a model by the user's own function."""
        ...


def config_of(config: Config, number: int) -> dict[str, Any]:
    """Return the configuration of one call; it always has the number of the round, as Flower's strategies give it."""
    found = dict(config(number) if callable(config) else config)
    return {"server_round": number, **found}
