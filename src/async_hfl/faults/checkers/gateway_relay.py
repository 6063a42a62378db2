"""The checker of relay at a gateway: each upload is one device update, unchanged, and shares the fate of its job."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol.messages import Upload
from async_hfl.core.protocol.records import JobRecord
from async_hfl.faults.checkers.checker import GatewayChecker
from async_hfl.faults.history import History, require
from async_hfl.nodes.gateway.node import GatewayNode


class RelayChecker(GatewayChecker):
    scenario_share = 0.15

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._upload_of: dict[JobId, UploadId] = {}
        self._uploads_seen = 0

    def check(self, gateway: GatewayNode, records: Sequence[JobRecord]) -> None:
        state, number = gateway.state, gateway.config.number
        for upload in islice(self.history.uploads.values(), self._uploads_seen, None):
            self._uploads_seen += 1
            if upload.upload.gateway == number:
                self._upload_of[self._relayed_job(upload)] = upload.upload
        for record in records:
            end = self.history.upload_ends[self._upload_of[record.job]]
            same = (end.reason, end.staleness, end.weight) == ("mixed", record.staleness, record.weight)
            require(same, f"{record}: its upload ended otherwise: {end}")
        if state.weights is not None:
            newest = np.array_equal(state.weights, self.history.global_models[state.base_epoch])
            require(newest, f"gateway {number}: its model is not the global model of epoch {state.base_epoch}")

    def _relayed_job(self, upload: Upload) -> JobId:
        """Return the job whose update this upload is."""
        owner = (upload.upload.gateway, upload.upload.incarnation)
        for job, update in self.history.updates.items():
            if (
                job[:2] == owner
                and job not in self._upload_of
                and update.samples == upload.samples
                and self.history.trains[job].base_epoch == upload.base_epoch
                and np.array_equal(np.asarray(update.weights), np.asarray(upload.weights))
            ):
                require(upload.updates == 1, f"{upload.upload}: a relayed upload counts {upload.updates} updates")
                return job
        raise InvariantViolation(f"upload {upload.upload} is not an update that a device has sent")
