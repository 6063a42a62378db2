"""The checker of averages at the cloud: each epoch is the mean of the uploads of all gateways that had to report, and
the momentum of all earlier steps, or the step of Adam with the moments of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.maths.server_adam import ServerAdam
from async_hfl.core.protocol.records import UploadRecord
from async_hfl.core.weights import Weights
from async_hfl.faults.checkers.checker import CloudChecker, check_weight, double, models_agree
from async_hfl.faults.history import History, require
from async_hfl.nodes.cloud.node import CloudNode


class AverageChecker(CloudChecker):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._by_base: dict[int, dict[int, UploadRecord]] = {}
        """Accepted uploads by the epoch that they started from, and by gateway."""
        self._epoch = 0
        self._model: Weights | None = None
        self._step: Floats | None = None
        """m, computed from the averages alone; None before the first."""
        self._square: Floats | float = 0.0
        """v of Adam, likewise."""

    def mixed(self, cloud: CloudNode, record: UploadRecord) -> None:
        require(record.staleness == 1, f"{record}: averaged although it started from an older model")
        self._by_base.setdefault(record.base_epoch, {})[record.upload.gateway] = record

    def check(self, cloud: CloudNode, records: Sequence[UploadRecord]) -> None:
        state = cloud.state
        require(state.epoch == len(self._by_base), f"cloud epoch {state.epoch} after {len(self._by_base)} averages")
        required = _required_gateways(cloud)
        waiting = {gateway for gateway, member in enumerate(state.members) if member.live and member.pending}
        if state.phase == "running" and not cloud.cloud.is_last_epoch():
            require(not waiting or not required <= waiting, "all gateways have reported, and the cloud still waits")
        if self._epoch == state.epoch:
            same = self._model is None or np.array_equal(self._model, state.weights)
            require(same, f"the global model of epoch {state.epoch} has changed")
        else:
            self._check_average(cloud, required)
        self._epoch, self._model = state.epoch, state.weights

    def _check_average(self, cloud: CloudNode, required: set[int]) -> None:
        epoch, members = cloud.state.epoch, cloud.state.members
        group = self._by_base[epoch - 1]
        require(required <= set(group), f"epoch {epoch} is an average without gateways {required - set(group)}")
        require(all(members[gateway].live for gateway in group), f"epoch {epoch} is an average with a lost gateway")
        uploads = {gateway: self.history.uploads[record.upload] for gateway, record in group.items()}
        samples = sum(upload.samples for upload in uploads.values())
        expected = 0.0 * double(cloud.state.weights)
        for gateway, record in group.items():
            share = uploads[gateway].samples / samples if samples else 1 / len(group)
            check_weight(record, 1, share)
            expected += share * double(self.history.uploaded(record.upload))
        how = "with momentum" if cloud.config.adam is None else "with Adam"
        violation = f"the global model of epoch {epoch} is not the average of its uploads, {how}"
        require(models_agree(self._moved(cloud, expected), cloud.state.weights), violation)

    def _moved(self, cloud: CloudNode, averaged: Floats) -> Floats:
        """Return what the average becomes with momentum, and note the step."""
        config, size = cloud.config, cloud.config.gradient_size
        if config.adam is not None:
            return self._with_adam(cloud, averaged, config.adam)
        if config.momentum == 0.0 or self._model is None:
            return averaged
        before = double(self._model)[:size]
        step = averaged[:size] - before
        if self._step is not None:
            step = step + config.momentum * self._step
        self._step = step
        return np.concatenate([before + step, averaged[size:]])

    def _with_adam(self, cloud: CloudNode, averaged: Floats, adam: ServerAdam) -> Floats:
        assert self._model is not None  # an event before the first upload was checked
        size = cloud.config.gradient_size
        before = double(self._model)[:size]
        gradient = averaged[:size] - before
        mean, square = (0.0 * gradient, adam.epsilon**2) if self._step is None else (self._step, self._square)
        self._step = adam.beta1 * mean + (1 - adam.beta1) * gradient
        self._square = adam.beta2 * square + (1 - adam.beta2) * gradient**2
        moved = before + adam.rate * self._step / (adam.epsilon + np.sqrt(self._square))
        return np.concatenate([moved, averaged[size:]])


def _required_gateways(cloud: CloudNode) -> set[int]:
    """Return the live gateways that have started and have an associated device within reach."""
    association, links = cloud.state.association, cloud.links
    found = set()
    for link, usable in enumerate(association.usable):
        gateway = int(links.link_gateway[link])
        member = cloud.state.members[gateway]
        if usable and member.live and member.begun and association.gateway_of[links.link_device[link]] == gateway:
            found.add(gateway)
    return found
