"""Bytes of a message, by kind. Every message on every link is counted when it is sent.

Models, gradients, and the basis on which gradients are projected count the bytes of their arrays as they travel, so an
encoded model counts its encoded bytes. Everything else is control traffic: a header, and a few words for each device or
job in the message. It is estimated, at about a hundred bytes a message, in the same way for every method.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol import messages as m

HEADER_BYTES = 96
PER_DEVICE_BYTES = 48
KINDS = ("model", "gradient", "basis", "control")
_HEADER_ALONE = frozenset(
    {m.UploadHeld, m.Finish, m.Fenced, m.Refused, m.EvaluateResult, m.Hello, m.Probe, m.JobDropped, m.Alive}
)


class Traffic(NamedTuple):
    model: int
    gradient: int
    basis: int
    control: int

    @property
    def total(self) -> int:
        return self.model + self.gradient + self.basis + self.control


@cache
def _header_and_model(model_bytes: int) -> Traffic:
    return Traffic(model_bytes, 0, 0, HEADER_BYTES)


def traffic(message: Any) -> Traffic:
    """Return the bytes of one message by kind."""
    kind = type(message)
    model = gradient = basis = named = 0
    knowledge: tuple[m.DeviceKnowledge, ...] = ()
    # Nearly all messages of a run are among the first three cases. Types are compared because that is the fastest.
    if kind is m.Train or kind is m.GlobalModel:
        model = message.weights.nbytes
        if message.basis is None:
            return _header_and_model(model)
        basis = message.basis.nbytes
    elif kind is m.Update:
        model = message.weights.nbytes
        if message.gradient is None:
            return _header_and_model(model)
        gradient = message.gradient.nbytes
    elif kind in _HEADER_ALONE:
        return _header_and_model(0)
    elif kind is m.Answer:
        return _header_and_model(message.weights.nbytes)
    elif kind is m.Upload:
        model, knowledge = message.weights.nbytes, message.knowledge
        named = 8 * (len(message.jobs) + len(message.bases))
    elif kind is m.WarmUp:
        model, knowledge = message.weights.nbytes, message.knowledge
    elif kind is m.Assignment:
        knowledge, named = message.knowledge, 4 * len(message.devices)
    elif kind is m.LeaseGranted or kind is m.LeaseReleased:
        knowledge = (message.knowledge,)
    elif kind is m.Report:
        knowledge = message.answered_warmup
        named = 4 * (len(message.lost) + len(message.heard))
    elif kind is m.LeasesRevoked:
        named = 12 * len(message.leases)
    elif kind is m.EvaluateRequest:
        model, named = message.weights.nbytes, 4 * len(message.devices)
    elif kind is m.Unsettled or kind is m.SettledAck:
        named = 24 * len(message.jobs)
    else:
        raise TypeError(f"{kind.__name__} is not a message of known size")
    if knowledge:
        gradient = sum(known.gradient.nbytes for known in knowledge if known.gradient is not None)
        named += PER_DEVICE_BYTES * len(knowledge)
    return Traffic(model, gradient, basis, HEADER_BYTES + named)


def subject(message: Any) -> JobId | UploadId | None:
    """Return the job or upload that a message with a model belongs to; None if it has none."""
    kind = type(message)
    if kind is m.Train or kind is m.Update:
        job: JobId = message.job
        return job
    if kind is m.Upload or kind is m.Answer:
        upload: UploadId = message.upload
        return upload
    return None
