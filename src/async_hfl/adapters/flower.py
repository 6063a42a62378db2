"""`flower(client)`: clients written for Flower as a task, unedited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from async_hfl.adapters.client_app import AppClients, is_client_app
from async_hfl.adapters.client_task import ClientTask
from async_hfl.adapters.clients import Clients, Config
from async_hfl.adapters.numpy_client import NumPyClients, check_client_function
from async_hfl.core.errors import TaskError
from async_hfl.core.maths.targets import Direction


def flower(
    client: Any,
    *,
    target: float,
    metric: str = "accuracy",
    direction: Direction | None = None,
    ladder: Sequence[float] = (),
    model: Callable[[], Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    evaluate_on: int | None = None,
    loss: str | None = None,
    config: Config | None = None,
    run_config: Mapping[str, Any] | None = None,
) -> ClientTask:
    """Make a task of a ClientApp, or of a `client_fn` that returns a NumPyClient.

    metric, target: the metric, by the name under which `evaluate` reports it ("loss" for the loss itself), and the
        value at which a run ends; a metric other than "accuracy" and "loss" needs a `direction`.
    model: makes the initial model, usually the class of the module; None: `get_parameters` of the first client. A
        ClientApp with functions for messages needs it, since its ServerApp makes the first model.
    evaluate: a strategy's `evaluate_fn`, called where the model is; None: the clients' own `evaluate`, weighted by
        their examples. `evaluate_on` limits the number of clients that evaluate.
    loss: the metric of `fit` that is the loss; None: "loss", "train_loss" and the like, else the loss of `evaluate`.
    config, run_config: what the strategy and pyproject.toml would give: the config of `fit` and `evaluate`
        (a dict, or a function of the round), and `context.run_config`.
    """
    for name, given, wanted in (("model", model, "a function that makes it"), ("evaluate", evaluate, "a function")):
        if given is not None and not callable(given):
            raise TaskError(f"flower(...): {name}= is a {type(given).__name__}; give {wanted}")
    if not (config is None or callable(config) or isinstance(config, Mapping)):
        raise TaskError(f"flower(...): config= is a {type(config).__name__}; give a dict, or a function of the round")
    if not (run_config is None or isinstance(run_config, Mapping)):
        raise TaskError(f"flower(...): run_config= is a {type(run_config).__name__}; give a dict")
    clients: Clients = _clients(client, model, config or {}, run_config or {})
    return ClientTask(
        clients=clients,
        target=target,
        metric=metric,
        direction=direction,
        ladder=ladder,
        evaluate=evaluate,
        evaluate_on=evaluate_on,
        loss=loss,
    )


def _clients(client: Any, model: Callable[[], Any] | None, config: Config, run_config: Mapping[str, Any]) -> Clients:
    if is_client_app(client):
        return AppClients(client, model, config, run_config)
    check_client_function(client)
    return NumPyClients(client, model, config, run_config)
