"""What became of every update that was acknowledged, counted from the outside, and compared with what the cloud wrote.

An update is acknowledged when its device has the receipt on its disk. It is decided when an upload that names it was
mixed or dropped. Where neither happens because a gateway's incarnation is lost, the update is lost: then the cloud must
have listed it, or its device must still have it among the things to report. Nothing else may be listed, unless it was
taken back by name. Where the cloud has patience with its gateways, only a lost disk loses anything: what a gateway with
its disk has at the end and the cloud has not decided on, the gateway lists as late.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol.messages import Upload
from async_hfl.core.protocol.records import FoundRecord, LateRecord, LostRecord, UploadRecord
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.device import DeviceNode


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantViolation(what)


class LossAudit:
    def __init__(self) -> None:
        self.acknowledged: dict[JobId, int] = {}
        self.listed: dict[JobId, int] = {}
        self.late: dict[JobId, int] = {}
        self.found = 0

    def acknowledge(self, job: JobId, device: int) -> None:
        self.acknowledged[job] = device

    def forget(self, device: int) -> None:
        """Its disk is gone: whatever it was told, it cannot say."""
        self.acknowledged = {job: owner for job, owner in self.acknowledged.items() if owner != device}

    def list_lost(self, record: LostRecord) -> None:
        _demand(record.job not in self.listed, f"the loss of job {record.job} is listed twice")
        self.listed[record.job] = record.device

    def list_found(self, record: FoundRecord) -> None:
        _demand(self.listed.pop(record.job, -1) == record.device, f"job {record.job} is found and was not lost")
        self.found += 1

    def list_late(self, record: LateRecord) -> None:
        _demand(record.job not in self.late, f"job {record.job} came too late twice")
        self.late[record.job] = record.device

    def at_end(
        self,
        uploads: Mapping[UploadId, Upload],
        ends: Mapping[UploadId, UploadRecord],
        cloud: CloudNode,
        devices: Mapping[int, DeviceNode],
        disks_lost: Container[tuple[int, int]],
    ) -> int:
        """How many acknowledged updates are lost. `disks_lost`: the incarnations that really are."""
        named: dict[JobId, UploadId] = {}
        decided = set()
        for upload, message in uploads.items():
            for number in message.jobs:
                job = JobId(upload.gateway, upload.incarnation, number)
                before = named.setdefault(job, upload)
                _demand(before == upload, f"job {job} is in the uploads {before} and {upload}")
                if upload in ends and ends[upload].reason in ("mixed", "dropped"):
                    decided.add(job)
        gone = {owner for owner, ledger in cloud.state.ledgers.items() if ledger.lost}
        lost = 0
        if cloud.config.membership.gateway_patience > 0.0:
            for owner in gone:
                _demand(owner in disks_lost, f"gateway {owner} has its disk, and is held for lost with all it had")
        for job in self.late:
            _demand(job not in decided, f"job {job} came too late, and it is in the global model")
        for job, device in self.acknowledged.items():
            if job in decided:
                continue
            if job[:2] not in gone:
                _demand(
                    job in self.late, f"the update of job {job} was acknowledged, and nobody says what became of it"
                )
                continue
            lost += 1
            known = job in self.listed or job in devices[device].state.unsettled
            _demand(known, f"the update of job {job} was acknowledged and is gone, and nobody says so")
        for job in self.listed:
            _demand(job not in decided, f"job {job} is listed as lost, and it is in the global model")
            _demand(job[:2] in gone, f"job {job} is listed as lost, and its gateway was never")
        return lost
