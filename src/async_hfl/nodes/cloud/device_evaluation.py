"""Evaluation by devices, for a cloud without a test set: some devices evaluate the model on their own samples.

Up to `evaluating_devices` are drawn at random from those that can be reached. An evaluation closes when 80 % have
answered, or at its deadline. The metric is the unweighted mean of the answers.
"""

from __future__ import annotations

from math import isnan, nan

import numpy as np

from async_hfl.core.learner import Evaluation
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import SetTimer
from async_hfl.core.randomness import stream
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.cloud.state import DeviceEvaluation

TIMER = "device_evaluation"
ENOUGH = 0.8


def begin(cloud: Cloud, at: float) -> None:
    state, config, links = cloud.state, cloud.config, cloud.links
    usable = cloud.usable_links()
    reached = np.unique(links.link_device[usable])
    random = stream(config.seed, "assessment", state.epoch)  # renaming the stream would change results
    drawn = random.permutation(reached)[: config.evaluating_devices].tolist()
    state.device_evaluations[state.epoch] = DeviceEvaluation(set(drawn), at + config.device_evaluation_timeout)
    by_gateway: dict[int, list[int]] = {}
    for device in sorted(drawn):
        row = links.of(device)
        gateways = links.link_gateway[row][usable[row]].tolist()
        own = int(state.association.gateway_of[device])
        by_gateway.setdefault(own if own in gateways else int(gateways[0]), []).append(device)
    for gateway, devices in sorted(by_gateway.items()):
        cloud.send(gateway, m.EvaluateRequest(state.epoch, cloud.encoded_model(), tuple(devices)))
    arm(cloud)


def note_answer(cloud: Cloud, answer: m.EvaluateResult) -> Evaluation | None:
    """Note a device's answer; return the evaluation if it closes with this answer."""
    found = cloud.state.device_evaluations.get(answer.epoch)
    if found is None or answer.device not in found.asked:
        return None
    found.answers[answer.device] = (answer.metric, answer.loss)
    return _close(cloud, answer.epoch) if len(found.answers) >= ENOUGH * len(found.asked) else None


def close_due(cloud: Cloud, at: float) -> list[tuple[int, Evaluation]]:
    """Close the evaluations whose deadline has passed; return them by epoch."""
    due = sorted(epoch for epoch, found in cloud.state.device_evaluations.items() if found.due <= at)
    return [(epoch, _close(cloud, epoch)) for epoch in due]


def arm(cloud: Cloud) -> None:
    left = cloud.state.device_evaluations.values()
    if left:
        cloud.emit(SetTimer(TIMER, min(found.due for found in left)))


def _close(cloud: Cloud, epoch: int) -> Evaluation:
    found = cloud.state.device_evaluations.pop(epoch)
    answers = [(metric, loss) for metric, loss in found.answers.values() if not isnan(metric)]
    count = len(answers)
    metric = sum(one for one, _ in answers) / count if count else nan
    loss = sum(one for _, one in answers) / count if count else nan
    return Evaluation(metric, loss, {"asked": float(len(found.asked)), "answered": float(count)})
