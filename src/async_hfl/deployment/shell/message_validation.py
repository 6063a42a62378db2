"""Who may say what. A message that its sender has no business to send, or that could not have been made by an honest
node, is refused before it reaches the log: what is logged is handled again after every restart, so a message that trips
a node up would trip it up for ever. Training that diverges is honest: its NaN and infinite numbers pass, and the node
ends the job as `refused`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD_TIER, DEVICE_TIER, GATEWAY_TIER, Address
from async_hfl.core.protocol import messages as m
from async_hfl.encoding.packet_codec import Content
from async_hfl.nodes.reliability.delivery import Receipt

_MAY_SAY: dict[tuple[int, int], frozenset[type]] = {
    (CLOUD_TIER, GATEWAY_TIER): frozenset(
        {
            m.WarmUp,
            m.GlobalModel,
            m.Answer,
            m.UploadHeld,
            m.Assignment,
            m.LeaseGranted,
            m.Finish,
            m.Fenced,
            m.LeasesRevoked,
            m.Refused,
            m.SettledAck,
            m.EvaluateRequest,
        }
    ),
    (GATEWAY_TIER, CLOUD_TIER): frozenset(
        {m.Hello, m.Upload, m.LeaseReleased, m.Report, m.Unsettled, m.EvaluateResult}
    ),
    (GATEWAY_TIER, DEVICE_TIER): frozenset({m.Train, m.Probe, m.SettledAck, m.EvaluateRequest}),
    (DEVICE_TIER, GATEWAY_TIER): frozenset({m.Update, m.JobDropped, m.Alive, m.Unsettled, m.EvaluateResult}),
}
_MAY_BE_NAN = {"loss", "squared_loss", "metric"}
_MAY_BE_NEGATIVE = {"loss"}
_DEVICE_FIELDS = {"device", "devices", "lost", "heard"}
_MOST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Facts:
    """What a node knows that others' messages must agree with."""

    model_size: int
    """Numbers in a model."""
    gradient_sizes: frozenset[int] = frozenset()
    """Numbers in a gradient: whole, projected; empty: any."""


def vetting(
    receiver: Address, facts: Facts, is_device: Callable[[int], bool] = lambda number: number >= 0
) -> Callable[[Address, Content], None]:
    """The check of one node. `is_device`: that number was given to a device."""

    def vet(sender: Address, content: Content) -> None:
        if isinstance(content, Receipt):
            return
        message = content.message
        if type(message) not in _MAY_SAY.get((sender.tier, receiver.tier), frozenset()):
            raise PeerError(f"{sender} has no business to send {type(message).__name__} to {receiver}")
        _own_numbers_only(sender, message)
        for name, value in _leaves("", message):
            _plausible(name, value, facts, is_device)

    return vet


def _own_numbers_only(sender: Address, message: Any) -> None:
    """A gateway issues its own jobs and uploads, and no other's."""
    issued = message.job if isinstance(message, m.Train) else message.upload if isinstance(message, m.Upload) else None
    if issued is not None and issued.gateway != sender.number:
        raise PeerError(f"{sender} says {type(message).__name__} {issued}, which is not its own to issue")


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        for field in fields(value):
            yield from _leaves(field.name, getattr(value, field.name))
    elif isinstance(value, tuple):
        names = getattr(value, "_fields", None) or (name,) * len(value)
        for inner, item in zip(names, value, strict=True):
            yield from _leaves(inner, item)
    else:
        yield name, value


def _plausible(name: str, value: Any, facts: Facts, is_device: Callable[[int], bool]) -> None:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        if not 0 <= value < 2**63:
            raise PeerError(f"{name} {value} is out of range")
        if name in _DEVICE_FIELDS and not is_device(value):
            raise PeerError(f"{name} {value}: there is no such device")
    elif isinstance(value, float):
        if math.isnan(value):
            if name not in _MAY_BE_NAN:
                raise PeerError(f"{name} is not a number")
        elif value < 0 and name not in _MAY_BE_NEGATIVE:
            raise PeerError(f"{name} {value} is out of range")
    elif isinstance(value, str):
        if len(value) > _MOST_TEXT:
            raise PeerError(f"{name} has {len(value)} letters")
    elif isinstance(value, np.ndarray):
        _array(name, value, facts)


def _array(name: str, array: Any, facts: Facts) -> None:
    if name == "weights":
        if array.shape != (facts.model_size,):
            raise PeerError(f"a model of shape {array.shape}; this task's has {facts.model_size} numbers")
    elif name == "gradient":
        if array.ndim != 1 or (facts.gradient_sizes and array.size not in facts.gradient_sizes):
            raise PeerError(f"a gradient of shape {array.shape}; it has {sorted(facts.gradient_sizes)} numbers here")
    elif name == "basis" and (array.ndim != 2 or array.shape[1] != facts.model_size):
        raise PeerError(f"a basis of shape {array.shape} for models of {facts.model_size} numbers")
