"""What became of every update that was acknowledged, counted from the outside, and compared with what the cloud wrote.

An update is acknowledged when its device has the receipt on its disk. It is decided when an upload that names it was
mixed or dropped. Where neither happens because a gateway's incarnation is lost, the update is lost: then the cloud must
have listed it, or its device must still have it among the things to report. Nothing else may be listed.
"""

from __future__ import annotations

from collections.abc import Mapping

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.messages import Upload
from async_hfl.core.records import LostRecord, UploadRecord
from async_hfl.nodes.cloud import CloudNode
from async_hfl.nodes.device import DeviceNode


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantViolation(what)


class LossAccounts:
    def __init__(self) -> None:
        self.acknowledged: dict[JobId, int] = {}
        self.listed: dict[JobId, int] = {}

    def acknowledge(self, job: JobId, device: int) -> None:
        self.acknowledged[job] = device

    def forget(self, device: int) -> None:
        """Its disk is gone: whatever it was told, it cannot say."""
        self.acknowledged = {job: owner for job, owner in self.acknowledged.items() if owner != device}

    def list_lost(self, record: LostRecord) -> None:
        _demand(record.job not in self.listed, f"the loss of job {record.job} is listed twice")
        self.listed[record.job] = record.device

    def at_end(
        self,
        uploads: Mapping[UploadId, Upload],
        ends: Mapping[UploadId, UploadRecord],
        cloud: CloudNode,
        devices: Mapping[int, DeviceNode],
    ) -> int:
        """How many acknowledged updates are lost."""
        named: dict[JobId, UploadId] = {}
        decided = set()
        for upload, message in uploads.items():
            for number in message.jobs:
                job = JobId(upload.gateway, upload.incarnation, number)
                before = named.setdefault(job, upload)
                _demand(before == upload, f"job {job} is in the uploads {before} and {upload}")
                if upload in ends and ends[upload].reason in ("mixed", "dropped"):
                    decided.add(job)
        gone = {owner for owner, account in cloud.state.accounts.items() if account.lost}
        lost = 0
        for job, device in self.acknowledged.items():
            if job in decided or job[:2] not in gone:
                continue
            lost += 1
            known = job in self.listed or job in devices[device].state.unsettled
            _demand(known, f"the update of job {job} was acknowledged and is gone, and nobody says so")
        for job in self.listed:
            _demand(job not in decided, f"job {job} is listed as lost, and it is in the global model")
            _demand(job[:2] in gone, f"job {job} is listed as lost, and its gateway was never")
        return lost
