"""Messages that a gateway passes on between the cloud and its devices."""

from __future__ import annotations

from dataclasses import replace
from math import nan

from async_hfl.core.identifiers import CLOUD, DEVICE_TIER, Address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send
from async_hfl.core.protocol.events import Received
from async_hfl.nodes.gateway import conduct
from async_hfl.nodes.gateway.context import Gateway

_LISTS_AT_FIRST, _LISTS_A_JOB, _MOST_LISTS = 8, 4, 64
"""Lists of unsettled updates that a device may send: before its first job here, more for each job, and at most."""
_LARGEST = 1e30
"""Metric or loss; larger ones could overflow a mean."""
_MOST_ASKED = 16
"""Evaluations of a device that are open at a time; a result for an older one is dropped."""


def unsettled(gateway: Gateway, event: Received, message: m.Unsettled) -> None:
    """Forward a device's list of unsettled updates, with the number of the device."""
    device = event.sender.number
    left = gateway.state.lists_left.get(device, _LISTS_AT_FIRST)
    gateway.state.lists_left[device] = max(left - 1, 0)
    if left == 0:
        conduct.refuse(gateway, device, "more lists of unsettled updates than a correct device has", event.at)
        return
    own = [job for job in message.jobs if job.gateway == gateway.config.number]
    if all(conduct.owns(gateway, device, job, event.at) for job in own):
        gateway.emit(Send(CLOUD, replace(message, device=device)))


def evaluate_result(gateway: Gateway, event: Received, message: m.EvaluateResult) -> None:
    """Forward a device's evaluation, once and if it was asked for; others would only keep the cloud busy."""
    device = event.sender.number
    asked = gateway.state.evaluations_asked.get(device, [])
    if message.epoch not in asked:
        return
    asked.remove(message.epoch)
    if not all(abs(value) <= _LARGEST for value in (message.metric, message.loss)):  # the training has diverged
        message = replace(message, metric=nan, loss=nan)
    gateway.emit(Send(CLOUD, replace(message, device=device)))


def allow_lists(gateway: Gateway, device: int) -> None:
    """Allow a device to which a job is sent to list its unsettled updates. It may receive several jobs at once, after
    an outage, and answers each with its lists."""
    left = gateway.state.lists_left
    left[device] = min(left.get(device, _LISTS_AT_FIRST) + _LISTS_A_JOB, _MOST_LISTS)


def settled(gateway: Gateway, ack: m.SettledAck) -> None:
    gateway.emit(Send(Address(DEVICE_TIER, ack.device), ack))


def evaluate_request(gateway: Gateway, request: m.EvaluateRequest) -> None:
    """Forward the request to the devices that are connected; the cloud has a timeout for the others."""
    for device in request.devices:
        if device in gateway.state.connected:
            asked = gateway.state.evaluations_asked.setdefault(device, [])
            asked.append(request.epoch)
            del asked[:-_MOST_ASKED]
            gateway.emit(Send(Address(DEVICE_TIER, device), m.EvaluateRequest(request.epoch, request.weights)))
