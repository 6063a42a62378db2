"""`torch_function(train, ...)`: a function that trains a PyTorch module on a device's data, as a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from async_hfl.adapters.arrays import Array
from async_hfl.adapters.client_task import ClientTask
from async_hfl.adapters.clients import Call, Evaluated, Fitted, Model
from async_hfl.adapters.generators import seed_generators
from async_hfl.adapters.initial_model import model_of
from async_hfl.core.errors import TaskError
from async_hfl.core.maths.targets import Direction


def torch_function(
    train: Callable[[Any, Any], Any],
    *,
    model: Callable[[], Any],
    data: Callable[[int, int], Any],
    test: Callable[[Any], Any],
    target: float,
    metric: str = "accuracy",
    direction: Direction | None = None,
    ladder: Sequence[float] = (),
) -> ClientTask:
    """Make a task of a loop of your own.

    train: `train(model, data)` trains the module in place; it returns the loss, or a dict of metrics with it.
    model: makes the module.
    data: `data(device, devices)` returns what `train` gets, usually a DataLoader; its length is that of its data set.
    test: `test(model)` returns (loss, accuracy), or a dict with "loss" and the metric. It is called where the model is.
    """
    clients = TorchFunctionClients(train, model, data)
    return ClientTask(clients=clients, evaluate=test, metric=metric, target=target, direction=direction, ladder=ladder)


@final
@dataclass(frozen=True, slots=True)
class TorchFunctionClients:
    train: Callable[[Any, Any], Any]
    make: Callable[[], Any]
    data: Callable[[int, int], Any]

    def model(self, call: Call) -> Model:
        return model_of(self.make())

    def fit(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Fitted:
        seed_generators(call.data_seed)
        data, module = self.data(call.device, call.devices), self._loaded(names, arrays)
        seed_generators(call.seed)
        module.train()
        found = self.train(module, data)
        return Fitted(model_of(module).arrays, _samples(data), _metrics(found, "train"))

    def evaluate(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Evaluated | None:
        return None

    def at_server(self, function: Callable[..., Any], names: Sequence[str], arrays: Sequence[Array]) -> Evaluated:
        module = self._loaded(names, arrays)
        module.train(False)
        found = function(module)
        if isinstance(found, tuple) and len(found) == 2:
            found = {"loss": float(found[0]), "accuracy": float(found[1])}
        return Evaluated(1, _metrics(found, "test"))

    def _loaded(self, names: Sequence[str], arrays: Sequence[Array]) -> Any:
        import torch

        module = self.make()
        module.load_state_dict({name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)})
        return module


def _samples(data: Any) -> int:
    """Return the number of samples of a data set, or of a loader's data set."""
    try:
        return len(getattr(data, "dataset", data))
    except TypeError as error:
        raise TaskError(
            f"data returned a {type(data).__name__} without a length; return a Dataset or DataLoader"
        ) from (error)


def _metrics(found: Any, function: str) -> Mapping[str, Any]:
    if isinstance(found, Mapping):
        return found
    try:
        return {"loss": float(found)}
    except (TypeError, ValueError) as error:
        kind = "None" if found is None else f"a {type(found).__name__}"
        raise TaskError(f"{function} returned {kind}; return the loss, or a dict with 'loss'") from error
