"""Evaluation where the cloud has no test set: some devices are asked, each judges by samples of its own.

Up to so many are drawn at random among those within reach. It closes when four in five have answered, or when the
patience is over; the metric is the plain mean over the answers, and says how many there were.
"""

from __future__ import annotations

from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core.learner import Evaluation
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import SetTimer
from async_hfl.core.randomness import stream
from async_hfl.nodes.cloud.state import Assessment

if TYPE_CHECKING:
    from async_hfl.nodes.cloud.node import CloudNode

TIMER = "assessment"
ENOUGH = 0.8


def is_due(node: CloudNode) -> bool:
    """The cloud by itself evaluates every time; devices now and then, and at the end."""
    config = node.config
    return not config.assessors or node.state.epoch % config.assessment_period == 0 or node.enough()


def begin(node: CloudNode, at: float) -> None:
    state, links = node.state, node.registry.links
    usable = node.registry.usable(state.directory, state.members)
    reached = np.unique(links.link_device[usable])
    random = stream(node.config.seed, "assessment", state.epoch)
    drawn = random.permutation(reached)[: node.config.assessors].tolist()
    due = at + node.config.assessment_patience
    state.assessments[state.epoch] = Assessment(set(drawn), due)
    by_gateway: dict[int, list[int]] = {}
    for device in sorted(drawn):
        by_gateway.setdefault(_through(node, device), []).append(device)
    for gateway, devices in sorted(by_gateway.items()):
        node.send(gateway, m.EvaluateRequest(state.epoch, state.weights, tuple(devices)))
    node.emit(SetTimer(TIMER, min(one.due for one in state.assessments.values())))


def _through(node: CloudNode, device: int) -> int:
    """The gateway that it works for, else any that reaches it."""
    state, links = node.state, node.registry.links
    row = links.of(device)
    usable = node.registry.usable(state.directory, state.members)[row]
    gateways = links.link_gateway[row][usable].tolist()
    own = int(state.directory.gateway_of[device])
    return own if own in gateways else int(gateways[0])


def answered(node: CloudNode, answer: m.EvaluateResult, at: float) -> None:
    open_one = node.state.assessments.get(answer.epoch)
    if open_one is None or answer.device not in open_one.asked:
        return
    open_one.answers[answer.device] = (answer.metric, answer.loss)
    if len(open_one.answers) >= ENOUGH * len(open_one.asked):
        _close(node, answer.epoch, at)


def close_due(node: CloudNode, at: float) -> None:
    for epoch, open_one in sorted(node.state.assessments.items()):
        if open_one.due <= at:
            _close(node, epoch, at)
    left = node.state.assessments.values()
    if left:
        node.emit(SetTimer(TIMER, min(one.due for one in left)))


def _close(node: CloudNode, epoch: int, at: float) -> None:
    found = node.state.assessments.pop(epoch)
    judged = [(metric, loss) for metric, loss in found.answers.values() if not isnan(metric)]
    count = len(judged)
    metric = sum(one for one, _ in judged) / count if count else nan
    loss = sum(one for _, one in judged) / count if count else nan
    details = {"asked": float(len(found.asked)), "answered": float(count)}
    node.evaluated(epoch, Evaluation(metric, loss, details), at)
