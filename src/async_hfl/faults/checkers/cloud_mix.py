"""The checker of mix on arrival at the cloud: one epoch for each accepted upload, weighted by its staleness."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.core.protocol.records import UploadRecord
from async_hfl.core.weights import Weights
from async_hfl.faults.checkers.checker import CloudChecker, check_weight, discount, double, models_agree
from async_hfl.faults.history import History, require
from async_hfl.nodes.cloud.node import CloudNode


class CloudMixChecker(CloudChecker):
    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._model: Weights | None = None

    def mixed(self, cloud: CloudNode, record: UploadRecord) -> None:
        config = cloud.config
        staleness = self.history.mixed_uploads - record.base_epoch  # the history has counted this upload already
        require(staleness >= 1, f"{record}: its staleness is {staleness}, less than 1")
        check_weight(record, staleness, config.mixing_weight * discount(config.staleness, staleness))

    def check(self, cloud: CloudNode, records: Sequence[UploadRecord]) -> None:
        epoch, mixed = cloud.state.epoch, self.history.mixed_uploads
        require(epoch == mixed, f"the cloud epoch is {epoch} after {mixed} accepted uploads")
        if self._model is not None and (records or self._model is not cloud.state.weights):
            expected = double(self._model)
            for record in records:
                expected += record.weight * (double(self.history.uploaded(record.upload)) - expected)
            violation = f"the global model of epoch {epoch} is not what its uploads make it"
            require(models_agree(expected, cloud.state.weights), violation)
        self._model = cloud.state.weights
