"""The history of a fault simulation: every message sent and every record written, indexed for the checks.

Invariants, checkers and the loss audit compute from this history, not from what nodes say about themselves. Properties
of single entries are checked as they are added: every job and upload ends once, an upload that is sent again has not
changed, and an epoch has one global model.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.compression.model_codec import PLAIN_MODELS, Model, ModelCodec, plain_vector
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.maths.latency_tiers import Tiers
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.records import JobRecord, Record, UploadRecord
from async_hfl.core.weights import Weights

Owner = tuple[int, int]
"""A gateway's number and its incarnation."""


def require(holds: bool, violation: str) -> None:
    """Raise InvariantViolation, described by `violation`, unless the condition holds."""
    if not holds:
        raise InvariantViolation(violation)


class History:
    def __init__(self, codec: ModelCodec = PLAIN_MODELS) -> None:
        self.codec = codec
        self.trains: dict[JobId, m.Train] = {}
        self.updates: dict[JobId, m.Update] = {}
        self.uploads: dict[UploadId, m.Upload] = {}
        """Messages are kept as they were sent; `sent_to_device`, `trained` and `uploaded` return their models."""
        self.global_models: dict[int, Weights] = {}
        """Global models by cloud epoch, as their receivers have them."""
        self._sent_models: dict[int, Model] = {}
        self._sent_tiers: dict[int, Tiers | None] = {}
        """The tiers of devices told with each global model."""
        self.job_ends: dict[JobId, JobRecord] = {}
        self.upload_ends: dict[UploadId, UploadRecord] = {}
        self.ended: dict[Owner, int] = {}
        """Jobs that have ended."""
        self.aggregated: dict[Owner, int] = {}
        """Jobs that ended as aggregated, relayed ones included."""
        self.mixed_uploads = 0
        self.mixed_updates = 0
        """Device updates in the uploads that were mixed."""
        self.lost_disks: set[Owner] = set()
        """Incarnations whose disk was lost, and with it the ends of their open jobs."""
        self._new_aggregated: dict[int, list[JobRecord]] = {}
        self._new_mixed: list[UploadRecord] = []

    def disk_lost(self, gateway: int, incarnation: int) -> None:
        self.lost_disks.add((gateway, incarnation))
        # An earlier incarnation may have been closed by an event that was not yet committed.
        self.lost_disks.update(job[:2] for job in self.trains if job.gateway == gateway and job not in self.job_ends)

    def sent(self, message: m.Message) -> None:
        if isinstance(message, m.Train):
            self.trains[message.job] = message
        elif isinstance(message, m.Update):
            self.updates[message.job] = message
        elif isinstance(message, m.Upload):
            before = self.uploads.setdefault(message.upload, message)
            same = before.base_epoch == message.base_epoch and _same(before.weights, message.weights)
            require(same, f"upload {message.upload} was sent again with another content")
        elif isinstance(message, (m.GlobalModel, m.Answer)):
            known = self._sent_models.setdefault(message.epoch, message.weights)
            require(_same(known, message.weights), f"epoch {message.epoch} has two global models")
            tiers = self._sent_tiers.setdefault(message.epoch, message.tiers)
            require(tiers == message.tiers, f"gateways are told different tiers for epoch {message.epoch}")
            if message.epoch not in self.global_models:
                self.global_models[message.epoch] = self.codec.decode_model(message.weights)

    def sent_to_device(self, job: JobId) -> Weights:
        """Return the model that a job was trained from."""
        return self.codec.decode_model(self.trains[job].weights)

    def trained(self, job: JobId) -> Weights:
        """Return the model of a device's update, as its gateway has it."""
        model = self.updates[job].weights
        if not self.codec.encodes_up:
            return plain_vector(model)
        return self.codec.decode_change(model, self.sent_to_device(job))

    def uploaded(self, upload: UploadId) -> Weights:
        """Return the model of an upload, as the cloud has it."""
        message = self.uploads[upload]
        if not self.codec.encodes_up:
            return plain_vector(message.weights)
        return self.codec.decode_change(message.weights, self.global_models[message.base_epoch])

    def written(self, record: Record) -> None:
        if isinstance(record, JobRecord):
            self._job_ended(record)
        elif isinstance(record, UploadRecord):
            self._upload_ended(record)

    def take_aggregated(self, gateway: int) -> list[JobRecord]:
        """Return the jobs of a gateway that were aggregated since the last call."""
        return self._new_aggregated.pop(gateway, [])

    def take_mixed(self) -> list[UploadRecord]:
        """Return the uploads that the cloud mixed since the last call."""
        taken, self._new_mixed = self._new_mixed, []
        return taken

    def _job_ended(self, record: JobRecord) -> None:
        job, before = record.job, self.job_ends.get(record.job)
        require(before is None, f"job {job} ended twice: {before and before.reason}, then {record.reason}")
        self.job_ends[job] = record
        owner = (job.gateway, job.incarnation)
        self.ended[owner] = self.ended.get(owner, 0) + 1
        if record.reason == "aggregated":
            require(job in self.trains, f"job {job} was aggregated and never sent")
            self.aggregated[owner] = self.aggregated.get(owner, 0) + 1
            self._new_aggregated.setdefault(job.gateway, []).append(record)

    def _upload_ended(self, record: UploadRecord) -> None:
        upload, before = record.upload, self.upload_ends.get(record.upload)
        require(before is None, f"upload {upload} ended twice: {before and before.reason}, then {record.reason}")
        self.upload_ends[upload] = record
        if record.reason == "mixed":
            base = self.uploads[upload].base_epoch
            require(record.base_epoch == base, f"upload {upload} is recorded with another base epoch than it was sent")
            self.mixed_uploads += 1
            self.mixed_updates += record.updates
            self._new_mixed.append(record)


def _same(one: Model, other: Model) -> bool:
    return one is other or np.array_equal(np.asarray(one), np.asarray(other))
