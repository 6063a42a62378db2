"""Validation of incoming messages, before they reach the log.

A message that its sender must not send, or that no correct node could have sent, is refused. The log is handled again
after every restart, so a logged message that made a node fail would make it fail at every restart. Diverged training is
legitimate: NaN and infinity pass where training may produce them, and the node ends the job as `refused`.

Numbers have limits that leave room for their sums: a device has at most 1e9 samples, so that those of four billion
updates can be added up in 64 bits. Every list has one, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import numpy as np

from async_hfl.core.compression.encodings import EncodingKind, check
from async_hfl.core.compression.model_codec import Direction, ModelCodec
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
"""Also infinite; the node decides what to make of it."""
_MAY_BE_INFINITE = {"bandwidth", "limits"}
_MAY_BE_NEGATIVE = {"loss", "metric"}
_MOST_SECONDS = 1e9
"""Thirty years."""
_LARGEST = 1e18
_MOST_ITEMS = 2**17
"""The most entries of a list. Lists of devices have no device twice, so they are shorter in a smaller run."""
_SECONDS = {"download_s", "training_s", "round_latency", "reference_latency"}
_DEVICE_FIELDS = {"device", "devices", "lost", "heard"}
_MOST_TEXT = 4096
_WITH_MODEL = (m.WarmUp, m.GlobalModel, m.Answer, m.Upload, m.Train, m.Update, m.EvaluateRequest)


def validator(
    receiver: Address,
    codec: ModelCodec,
    is_device: Callable[[int], bool] = lambda number: number >= 0,
    projected_sizes: frozenset[int] = frozenset(),
) -> Callable[[Address, Content], None]:
    """Return the check of one node.

    `codec` encodes the models of the run. `is_device` returns True for a device's number. `projected_sizes`: possible
    lengths of a projected gradient; empty if gradients are not projected."""

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
        _check_lists(message)
        for name, value in _leaves("", message):
            if name in _DEVICE_FIELDS and isinstance(value, int) and not is_device(value):
                raise PeerError(f"{name} {value}: there is no such device")
            _check(name, value)
        up = sender.tier > receiver.tier
        if isinstance(message, _WITH_MODEL):
            _check_model(message.weights, codec, codec.up if up else codec.down)
        if isinstance(message, (m.Train, m.GlobalModel)) and message.basis is not None:
            basis = message.basis
            if basis.ndim != 2 or basis.shape[1] != codec.trained:
                raise PeerError(f"a basis of shape {basis.shape} for gradients of {codec.trained} numbers")
        for holder in _with_gradients(message):
            if holder.samples > m.MOST_SAMPLES:
                raise PeerError(f"{holder.samples} samples; a device has at most {m.MOST_SAMPLES}")
            _check_gradient(holder, codec, "up" if up else "down", projected_sizes)

    return validate


def _check_lists(message: m.Message) -> None:
    """Raise PeerError for a list that is too long, or that has a device twice."""
    if isinstance(message, m.Unsettled) and len(message.jobs) > m.MOST_UNSETTLED:
        raise PeerError(f"a list of {len(message.jobs)} jobs; at most {m.MOST_UNSETTLED} are sent at once")
    for field in fields(message):
        items = getattr(message, field.name)
        if not isinstance(items, tuple) or hasattr(items, "_fields"):
            continue
        if len(items) > _MOST_ITEMS:
            raise PeerError(f"{field.name} has {len(items)} items; at most {_MOST_ITEMS} are accepted")
        devices = [item.device for item in items if isinstance(item, (m.Lease, m.DeviceKnowledge))]
        if field.name in _DEVICE_FIELDS:
            devices = list(items)
        if len(set(devices)) < len(devices):
            raise PeerError(f"{field.name} names a device twice")


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


def _check(name: str, value: Any) -> None:
    """Raise PeerError for a value that no correct node would send in a field of this name."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        if not 0 <= value < 2**63:
            raise PeerError(f"{name} {value} is out of range")
    elif isinstance(value, float):
        if not math.isfinite(value):
            if name not in _MAY_BE_NAN and not (name in _MAY_BE_INFINITE and value > 0):
                raise PeerError(f"{name} {value} is not a finite number")
            return
        most = math.inf if name in _MAY_BE_NAN else _MOST_SECONDS if name in _SECONDS else _LARGEST
        if not (0 if name not in _MAY_BE_NEGATIVE else -math.inf) <= value <= most:
            raise PeerError(f"{name} {value} is out of range")
    elif isinstance(value, str) and len(value) > _MOST_TEXT:
        raise PeerError(f"{name} has {len(value)} characters")


def _check_model(model: Any, codec: ModelCodec, kind: EncodingKind) -> None:
    """Raise PeerError unless a model, or a change of one, has the encoding and the length of this run's models."""
    if kind != "float32":
        check(model, kind, codec.size, codec.trained)
    elif model.dtype != np.float32 or model.shape != (codec.size,):
        raise PeerError(
            f"a model of shape {model.shape} and {model.dtype}; models of this task have {codec.size} float32 numbers"
        )


def _with_gradients(message: m.Message) -> Iterator[m.Update | m.DeviceKnowledge]:
    """Yield the message or the parts of it that contain a gradient."""
    if isinstance(message, m.Update):
        yield message
    elif isinstance(message, (m.LeaseGranted, m.LeaseReleased)):
        yield message.knowledge
    elif isinstance(message, (m.Upload, m.WarmUp, m.Assignment)):
        yield from message.knowledge
    elif isinstance(message, m.Report):
        yield from message.answered_warmup


def _check_gradient(
    holder: m.Update | m.DeviceKnowledge, codec: ModelCodec, direction: Direction, projected: frozenset[int]
) -> None:
    gradient: Any = holder.gradient
    if gradient is None:
        return
    if holder.compressed and not projected:
        raise PeerError("a projected gradient; this run's gradients are not projected")
    if codec.encodes_gradient(direction) and not holder.compressed:
        check(gradient, codec.up if direction == "up" else codec.down, codec.trained, codec.trained)
        return
    sizes = projected if holder.compressed else {codec.trained}
    if gradient.dtype != np.float32 or gradient.ndim != 1 or gradient.size not in sizes:
        raise PeerError(f"a gradient of shape {gradient.shape} and {gradient.dtype}; expected {sorted(sizes)} numbers")
