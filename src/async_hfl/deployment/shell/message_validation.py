"""Validation of incoming messages, before they reach the log.

A message that its sender must not send, or that no correct node could have sent, is refused. The log is handled again
after every restart, so a logged message that made a node fail would make it fail at every restart. Diverged training is
legitimate: NaN and infinity pass where training may produce them, and the node ends the job as `refused`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import numpy as np

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD_TIER, DEVICE_TIER, GATEWAY_TIER, Address
from async_hfl.core.protocol import messages as m
from async_hfl.encoding.packet_codec import Content
from async_hfl.nodes.reliability.delivery import Receipt

ALLOWED: dict[tuple[int, int], frozenset[type]] = {
    (CLOUD_TIER, GATEWAY_TIER): frozenset(get_args(m.CloudToGateway)),
    (GATEWAY_TIER, CLOUD_TIER): frozenset(get_args(m.GatewayToCloud)),
    (GATEWAY_TIER, DEVICE_TIER): frozenset(get_args(m.GatewayToDevice)),
    (DEVICE_TIER, GATEWAY_TIER): frozenset(get_args(m.DeviceToGateway)),
}
"""Tiers of sender and receiver -> the message types allowed."""
_MAY_BE_NAN = {"loss", "squared_loss", "metric"}
_MAY_BE_NEGATIVE = {"loss"}
_DEVICE_FIELDS = {"device", "devices", "lost", "heard"}
_MOST_TEXT = 4096


def validator(
    receiver: Address,
    model_size: int,
    is_device: Callable[[int], bool] = lambda number: number >= 0,
    gradient_sizes: frozenset[int] = frozenset(),
) -> Callable[[Address, Content], None]:
    """Return the check of one node.

    `model_size`: numbers in a model. `is_device` returns True for a device's number. `gradient_sizes`: possible numbers
    in a gradient, whole or projected; empty allows any."""

    def validate(sender: Address, content: Content) -> None:
        if isinstance(content, Receipt):
            return
        message = content.message
        if type(message) not in ALLOWED.get((sender.tier, receiver.tier), frozenset()):
            raise PeerError(f"{sender} must not send {type(message).__name__} to {receiver}")
        issued = (
            message.job if isinstance(message, m.Train) else message.upload if isinstance(message, m.Upload) else None
        )
        if issued is not None and issued.gateway != sender.number:
            raise PeerError(f"{sender} sends {type(message).__name__} {issued}, which another gateway issues")
        for name, value in _leaves("", message):
            if name in _DEVICE_FIELDS and isinstance(value, int) and not is_device(value):
                raise PeerError(f"{name} {value}: there is no such device")
            _check(name, value, model_size, gradient_sizes)

    return validate


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the field name and value of every number, text and array in a message."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _leaves(field.name, getattr(value, field.name))
    elif isinstance(value, tuple):
        names = getattr(value, "_fields", None) or (name,) * len(value)
        for inner, item in zip(names, value, strict=True):
            yield from _leaves(inner, item)
    else:
        yield name, value


def _check(name: str, value: Any, model_size: int, gradient_sizes: frozenset[int]) -> None:
    """Raise PeerError for a value that no correct node would send in a field of this name."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        if not 0 <= value < 2**63:
            raise PeerError(f"{name} {value} is out of range")
    elif isinstance(value, float):
        if math.isnan(value):
            if name not in _MAY_BE_NAN:
                raise PeerError(f"{name} is not a number")
        elif value < 0 and name not in _MAY_BE_NEGATIVE:
            raise PeerError(f"{name} {value} is out of range")
    elif isinstance(value, str):
        if len(value) > _MOST_TEXT:
            raise PeerError(f"{name} has {len(value)} characters")
    elif isinstance(value, np.ndarray):
        if name == "weights" and value.shape != (model_size,):
            raise PeerError(f"a model of shape {value.shape}; a model of this task has {model_size} numbers")
        if name == "gradient" and (value.ndim != 1 or (gradient_sizes and value.size not in gradient_sizes)):
            raise PeerError(f"a gradient of shape {value.shape}; expected {sorted(gradient_sizes)} numbers")
        if name == "basis" and (value.ndim != 2 or value.shape[1] != model_size):
            raise PeerError(f"a basis of shape {value.shape} for models of {model_size} numbers")
