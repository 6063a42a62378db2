"""How many bytes a message is, by kind. Every message counts when it is sent, both directions, both tiers.

A model weighs M (`model_bytes`); gradients and the basis they are projected with weigh their numbers; everything else
is control: a header with id, acknowledgement and check sum, plus a few words per device named. A hundred bytes beside a
model of kilobytes to megabytes: exact enough, and the same for every method.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from async_hfl.core.protocol import messages as m

HEADER_BYTES = 96
PER_DEVICE_BYTES = 48
KINDS = ("model", "gradient", "basis", "control")


class Traffic(NamedTuple):
    model: int
    gradient: int
    basis: int
    control: int

    @property
    def total(self) -> int:
        return self.model + self.gradient + self.basis + self.control


def _knowledge(known: tuple[m.DeviceKnowledge, ...]) -> tuple[int, int]:
    gradient = sum(k.gradient.nbytes for k in known if k.gradient is not None)
    return gradient, PER_DEVICE_BYTES * len(known)


_CONTROL = Traffic(0, 0, 0, HEADER_BYTES)


def _control(_: Any, model_bytes: int) -> Traffic:
    return _CONTROL


@cache
def _one_model(model_bytes: int) -> Traffic:
    return Traffic(model_bytes, 0, 0, HEADER_BYTES)


def _model(_: Any, model_bytes: int) -> Traffic:
    return _one_model(model_bytes)


def _model_with_basis(message: m.GlobalModel | m.Train, model_bytes: int) -> Traffic:
    if message.basis is None:
        return _one_model(model_bytes)
    return Traffic(model_bytes, 0, message.basis.nbytes, HEADER_BYTES)


def _warm_up(message: m.WarmUp, model_bytes: int) -> Traffic:
    gradient, control = _knowledge(message.knowledge)
    return Traffic(model_bytes, gradient, 0, HEADER_BYTES + control)


def _assignment(message: m.Assignment, model_bytes: int) -> Traffic:
    gradient, control = _knowledge(message.knowledge)
    return Traffic(0, gradient, 0, HEADER_BYTES + control + 4 * len(message.devices))


def _one_device(message: m.LeaseGranted | m.LeaseReleased, model_bytes: int) -> Traffic:
    gradient, control = _knowledge((message.knowledge,))
    return Traffic(0, gradient, 0, HEADER_BYTES + control)


def _upload(message: m.Upload, model_bytes: int) -> Traffic:
    gradient, control = _knowledge(message.knowledge)
    return Traffic(model_bytes, gradient, 0, HEADER_BYTES + control + 8 * len(message.jobs))


def _account(message: m.Unsettled | m.SettledAck, model_bytes: int) -> Traffic:
    return Traffic(0, 0, 0, HEADER_BYTES + 24 * len(message.jobs))


def _report(message: m.Report, model_bytes: int) -> Traffic:
    gradient, control = _knowledge(message.answered_warmup)
    return Traffic(0, gradient, 0, HEADER_BYTES + control + 4 * (len(message.lost) + len(message.heard)))


def _update(message: m.Update, model_bytes: int) -> Traffic:
    if message.gradient is None:
        return _one_model(model_bytes)
    return Traffic(model_bytes, message.gradient.nbytes, 0, HEADER_BYTES)


def _revoked(message: m.LeasesRevoked, model_bytes: int) -> Traffic:
    return Traffic(0, 0, 0, HEADER_BYTES + 12 * len(message.leases))


def _assess(message: m.EvaluateRequest, model_bytes: int) -> Traffic:
    return Traffic(model_bytes, 0, 0, HEADER_BYTES + 4 * len(message.devices))


_SIZES: dict[type, Callable[[Any, int], Traffic]] = {
    m.WarmUp: _warm_up,
    m.GlobalModel: _model_with_basis,
    m.Answer: _model,
    m.UploadHeld: _control,
    m.Assignment: _assignment,
    m.LeaseGranted: _one_device,
    m.Finish: _control,
    m.Fenced: _control,
    m.LeasesRevoked: _revoked,
    m.Refused: _control,
    m.SettledAck: _account,
    m.EvaluateRequest: _assess,
    m.EvaluateResult: _control,
    m.Hello: _control,
    m.Upload: _upload,
    m.LeaseReleased: _one_device,
    m.Report: _report,
    m.Train: _model_with_basis,
    m.Probe: _control,
    m.Update: _update,
    m.JobDropped: _control,
    m.Alive: _control,
    m.Unsettled: _account,
}


def traffic(message: m.Message, model_bytes: int, share: float = 1.0) -> Traffic:
    """Bytes of one message by kind, a model weighing `model_bytes` on the wire. `share`: what gradients and the basis
    weigh there, of their four bytes a number."""
    size = _SIZES[type(message)](message, model_bytes)
    if share == 1.0:
        return size
    return size._replace(gradient=round(share * size.gradient), basis=round(share * size.basis))
