"""Flower's ClientApp, called with Flower's own messages: the records of a strategy in, those of the client out."""

from __future__ import annotations

import time
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

_SAMPLES = "num-examples"
"""The metric by which Flower's strategies weight."""


def is_client_app(value: object) -> bool:
    kind = type(value)
    return kind.__name__ == "ClientApp" and kind.__module__.partition(".")[0] == "flwr"


@final
@dataclass(frozen=True, slots=True)
class AppClients:
    app: Any
    initial: Callable[[], Any] | None
    """Makes the initial model, as the ServerApp does; an app with a client_fn can do without."""
    config: Config
    run_config: Mapping[str, Any]

    @property
    def _has_client_function(self) -> bool:
        """True for ClientApp(client_fn), which speaks in the messages of earlier releases."""
        return getattr(self.app, "_call", None) is not None

    def model(self, call: Call) -> Model:
        if self.initial is not None:
            return model_of(self.initial())
        if not self._has_client_function:
            raise TaskError(
                "a ClientApp gets its first model from the ServerApp: give model=FUNCTION to the adapter (it makes the "
                "module, or a dict of arrays)"
            )
        from flwr.compat.common.parameter import parameters_to_ndarrays
        from flwr.compat.common.recorddict_compat import getparametersins_to_recorddict, recorddict_to_getparametersres
        from flwr.compat.common.typing import GetParametersIns

        content = getparametersins_to_recorddict(GetParametersIns({}))
        answer, _ = self._answer("get_parameters", content, call)
        arrays = parameters_to_ndarrays(recorddict_to_getparametersres(answer, keep_input=True).parameters)
        return Model([str(place) for place in range(len(arrays))], arrays, [True] * len(arrays))

    def fit(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Fitted:
        if self._has_client_function:
            return self._fit_by_client_function(call, arrays)
        content, state = self._answer("train", self._records(call, names, arrays), call)
        metrics = _only(content.metric_records, "metrics", "MetricRecord")
        if _SAMPLES not in metrics:
            known = ", ".join(map(repr, metrics)) or "nothing"
            raise TaskError(f"its MetricRecord has no {_SAMPLES!r}, by which strategies weight; it has {known}")
        record = _only(content.array_records, "arrays", "ArrayRecord")
        if set(record) != set(names):
            odd = sorted(set(record) ^ set(names))
            raise TaskError(f"its ArrayRecord has other arrays than it was given: {', '.join(odd[:3])}")
        return Fitted([record[name].numpy() for name in names], metrics[_SAMPLES], dict(metrics), state)

    def evaluate(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Evaluated | None:
        if self._has_client_function:
            return self._evaluate_by_client_function(call, arrays)
        if "evaluate.default" not in getattr(self.app, "_registered_funcs", {"evaluate.default": None}):
            return None
        content, _ = self._answer("evaluate", self._records(call, names, arrays), call)
        metrics = dict(_only(content.metric_records, "metrics", "MetricRecord"))
        return Evaluated(int(metrics.get(_SAMPLES, 1)), metrics)

    def at_server(self, function: Callable[..., Any], names: Sequence[str], arrays: Sequence[Array]) -> Evaluated:
        """Call a strategy's `evaluate_fn(server_round, arrays)`, which returns a MetricRecord."""
        metrics = dict(function(0, _array_record(names, arrays)))
        return Evaluated(1, metrics)

    def _records(self, call: Call, names: Sequence[str], arrays: Sequence[Array]) -> Any:
        from flwr.app import ConfigRecord, RecordDict

        config = config_of(self.config, call.number)
        config.setdefault("server-round", config.pop("server_round"))
        return RecordDict({"arrays": _array_record(names, arrays), "config": ConfigRecord(config)})

    def _answer(self, kind: str, content: Any, call: Call) -> tuple[Any, bytes]:
        """Return the content of the app's reply, and the state that it left."""
        from flwr.app import Message, Metadata

        context = new_context(call, self.run_config)
        metadata = Metadata(
            run_id=context.run_id,
            message_id=f"{call.device}-{call.number}",
            src_node_id=1,
            dst_node_id=context.node_id,
            reply_to_message_id="",
            group_id=str(call.number),
            created_at=time.time(),
            ttl=86400.0,
            message_type=kind,
        )
        seed_generators(call.seed)
        reply = self.app(Message(content=content, metadata=metadata), context)
        if not isinstance(reply, Message):
            raise TaskError(f"returned a {type(reply).__name__}; return Message(content, reply_to=message)")
        if reply.has_error():
            raise TaskError(f"replied with error {reply.error.code}: {reply.error.reason}")
        return reply.content, state_of(context)

    def _fit_by_client_function(self, call: Call, arrays: Sequence[Array]) -> Fitted:
        from flwr.compat.common.parameter import ndarrays_to_parameters, parameters_to_ndarrays
        from flwr.compat.common.recorddict_compat import fitins_to_recorddict, recorddict_to_fitres
        from flwr.compat.common.typing import FitIns

        request = FitIns(ndarrays_to_parameters(list(arrays)), config_of(self.config, call.number))
        content, state = self._answer("train", fitins_to_recorddict(request, keep_input=True), call)
        answer = recorddict_to_fitres(content, keep_input=True)
        _check_status(answer.status)
        return Fitted(parameters_to_ndarrays(answer.parameters), answer.num_examples, answer.metrics, state)

    def _evaluate_by_client_function(self, call: Call, arrays: Sequence[Array]) -> Evaluated:
        from flwr.compat.common.parameter import ndarrays_to_parameters
        from flwr.compat.common.recorddict_compat import evaluateins_to_recorddict, recorddict_to_evaluateres
        from flwr.compat.common.typing import EvaluateIns

        request = EvaluateIns(ndarrays_to_parameters(list(arrays)), config_of(self.config, call.number))
        content, _ = self._answer("evaluate", evaluateins_to_recorddict(request, keep_input=True), call)
        answer = recorddict_to_evaluateres(content)
        _check_status(answer.status)
        return Evaluated(answer.num_examples, {**answer.metrics, "loss": answer.loss})


def _array_record(names: Sequence[str], arrays: Sequence[Array]) -> Any:
    from flwr.app import Array as FlowerArray
    from flwr.app import ArrayRecord

    return ArrayRecord({name: FlowerArray(np.asarray(array)) for name, array in zip(names, arrays, strict=True)})


def _only(records: Mapping[str, Any], usual: str, kind: str) -> Any:
    """Return the record of the usual name, or the only one there is."""
    if usual in records:
        return records[usual]
    if len(records) != 1:
        known = ", ".join(map(repr, records)) or "none"
        raise TaskError(f"its reply has {len(records)} records of the kind {kind} ({known}); return one, {usual!r}")
    return next(iter(records.values()))


def _check_status(status: Any) -> None:
    if getattr(status.code, "name", "OK") != "OK":
        raise TaskError(f"answered {status.code.name}: {status.message}")
