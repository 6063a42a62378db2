"""Every model worked out a second time, from what was sent and written down alone.

A gateway's model is a global model plus the updates that it recorded as aggregated, with the weights that it recorded;
the cloud's is made of the uploads recorded as mixed. Whoever mixes an update twice, one that came too late, or the
right one with another weight than it says, ends up with another model than the one worked out here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.records import JobRecord, UploadRecord
from async_hfl.core.weights import Weights
from async_hfl.nodes.cloud.aggregation.average import AverageUploads
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.aggregation.relay import Relay
from async_hfl.nodes.gateway.node import GatewayNode

_SLACK = 1e-4
"""Models are single precision; what happens here is double."""


class ModelOracle:
    def __init__(self) -> None:
        self.trains: dict[JobId, m.Train] = {}
        self.updates: dict[JobId, m.Update] = {}
        self.uploads: dict[UploadId, m.Upload] = {}
        self.globals: dict[int, Weights] = {}
        """Global models by epoch, as they were sent."""
        self.aggregated: dict[int, list[JobRecord]] = {}
        """By gateway: jobs aggregated since its model was last looked at."""
        self.mixed: list[UploadRecord] = []
        self._gateways: dict[int, tuple[int, int, Weights]] = {}
        self._cloud: Weights | None = None

    def sent(self, message: m.Message) -> None:
        if isinstance(message, m.Train):
            self.trains[message.job] = message
        elif isinstance(message, m.Update):
            self.updates[message.job] = message
        elif isinstance(message, m.Upload):
            before = self.uploads.setdefault(message.upload, message)
            same = before.base_epoch == message.base_epoch and np.array_equal(before.weights, message.weights)
            _demand(same, f"upload {message.upload} changed between two sendings")
        elif isinstance(message, (m.GlobalModel, m.Answer)):
            known = self.globals.setdefault(message.epoch, message.weights)
            _demand(np.array_equal(known, message.weights), f"epoch {message.epoch} has two global models")

    def gateway(self, node: GatewayNode) -> None:
        """After an event: is its model the one that its records make?"""
        state, number = node.state, node.config.number
        jobs = self.aggregated.pop(number, [])
        if state.weights is None or isinstance(node.aggregation, Relay) or state.phase == "over":
            return
        before = self._gateways.get(number)
        if before is None or before[:2] != (state.incarnation, state.base_epoch):
            start: Floats = np.asarray(self.globals[state.base_epoch], np.float64)
        elif not jobs and before[2] is state.weights:
            return
        else:
            start = np.asarray(before[2], np.float64)
        drag = node.config.drag if isinstance(node.aggregation, MixOnArrival) else 0.0
        expected = self._after(start, jobs, drag)
        _demand(_alike(expected, state.weights), f"gateway {number}: its model is not what its updates make it")
        self._gateways[number] = (state.incarnation, state.base_epoch, state.weights)

    def _after(self, model: Floats, jobs: Sequence[JobRecord], drag: float) -> Floats:
        for record in jobs:
            new, old = (
                np.asarray(self.updates[record.job].weights, np.float64),
                np.asarray(self.trains[record.job].weights),
            )
            model = model + record.weight * ((new - old) + drag * (old - model))
        return model

    def cloud(self, node: CloudNode) -> None:
        weights, records = node.state.weights, self.mixed
        if not records and self._cloud is weights:
            return
        if self._cloud is not None:
            expected: Floats = np.asarray(self._cloud, np.float64)
            averages = isinstance(node.aggregation, AverageUploads)
            if averages and records:
                expected = np.zeros(len(weights))
            for record in records:
                upload = np.asarray(self.uploads[record.upload].weights, np.float64)
                expected = expected + record.weight * (upload if averages else upload - expected)
            _demand(
                _alike(expected, weights),
                f"the global model of epoch {node.state.epoch} is not what its uploads make it",
            )
        self._cloud, self.mixed = weights, []


def _alike(expected: Floats, weights: Weights) -> bool:
    return float(np.abs(expected - np.asarray(weights)).max()) <= _SLACK * max(1.0, float(np.abs(expected).max()))


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantViolation(what)
