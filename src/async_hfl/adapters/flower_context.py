"""The context that Flower passes to client code: which partition, which configuration, and the state of the device."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from async_hfl.adapters.clients import Call
from async_hfl.core.errors import TaskError


@dataclass(slots=True)
class PlainContext:
    """The context for a client without Flower."""

    node_id: int
    node_config: dict[str, Any]
    run_config: dict[str, Any]
    run_id: int = 1

    @property
    def state(self) -> Any:
        raise TaskError("context.state consists of Flower's records; it needs `pip install flwr`")


def new_context(call: Call, run_config: Mapping[str, Any]) -> Any:
    """Return Flower's own context if the user's code has imported Flower."""
    node = {"partition-id": call.device, "num-partitions": call.devices}
    if "flwr" not in sys.modules:
        return PlainContext(call.device, node, dict(run_config))
    from flwr.app import Context, RecordDict

    state = _decoded(call.state) if call.state else RecordDict()
    return Context(run_id=1, node_id=call.device, node_config=node, state=state, run_config=dict(run_config))


def state_of(context: Any) -> bytes:
    """Return the state as Flower encodes it; empty if the client keeps none."""
    if isinstance(context, PlainContext) or not context.state:
        return b""
    from flwr.common.serde import recorddict_to_proto

    encoded: bytes = recorddict_to_proto(context.state).SerializeToString(deterministic=True)
    return encoded


def _decoded(state: bytes) -> Any:
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict as Encoded

    return recorddict_from_proto(Encoded.FromString(state))
