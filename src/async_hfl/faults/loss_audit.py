"""An audit of acknowledged updates, counted from outside and compared with the records of cloud and gateways.

An update is acknowledged once its device has committed the receipt to its disk. It is decided once an upload that names
it was mixed or dropped. An update that is acknowledged and never decided, because an incarnation of a gateway is gone,
is lost: the cloud must have listed it, or its device must still be about to report it. Nothing else may be listed,
unless it was withdrawn. If the cloud waits for absent gateways (`gateway_patience`), only a lost disk loses updates:
those that a gateway with its disk has at the end, undecided, are listed by it as late.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol.messages import Upload
from async_hfl.core.protocol.records import FoundRecord, LateRecord, LostRecord, Record, UploadRecord
from async_hfl.faults.history import require
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.device import DeviceNode


class LossAudit:
    def __init__(self) -> None:
        self.acknowledged: dict[JobId, int] = {}
        """The device of each job whose update was acknowledged."""
        self.listed: dict[JobId, int] = {}
        self.late: dict[JobId, int] = {}
        self.found = 0

    def acknowledge(self, job: JobId, device: int) -> None:
        self.acknowledged[job] = device

    def forget(self, device: int) -> None:
        """Drop the acknowledgements of a device whose disk was lost: it cannot report them any more."""
        self.acknowledged = {job: owner for job, owner in self.acknowledged.items() if owner != device}

    def written(self, record: Record) -> None:
        if isinstance(record, LostRecord):
            require(record.job not in self.listed, f"the loss of job {record.job} is listed twice")
            self.listed[record.job] = record.device
        elif isinstance(record, FoundRecord):
            require(self.listed.pop(record.job, -1) == record.device, f"job {record.job} is found but was not lost")
            self.found += 1
        elif isinstance(record, LateRecord):
            require(record.job not in self.late, f"job {record.job} is listed as late twice")
            self.late[record.job] = record.device

    def at_end(
        self,
        uploads: Mapping[UploadId, Upload],
        ends: Mapping[UploadId, UploadRecord],
        cloud: CloudNode,
        devices: Mapping[int, DeviceNode],
        lost_disks: Container[tuple[int, int]],
    ) -> int:
        """Check the lists and return the number of lost updates. `lost_disks`: incarnations whose disk was lost."""
        decided = _decided_jobs(uploads, ends)
        gone = {owner for owner, ledger in cloud.state.ledgers.items() if ledger.lost}
        if cloud.config.membership.gateway_patience > 0.0:
            for owner in gone:
                require(owner in lost_disks, f"gateway {owner} still has its disk, but its updates count as lost")
        for job in self.late:
            require(job not in decided, f"job {job} is listed as late, but it is in the global model")
        lost = 0
        for job, device in self.acknowledged.items():
            if job in decided:
                continue
            if job[:2] not in gone:
                require(job in self.late, f"the update of job {job} was acknowledged, and its fate is not recorded")
                continue
            lost += 1
            known = job in self.listed or job in devices[device].state.unsettled
            require(known, f"the update of job {job} was acknowledged and is lost, but not listed")
        for job in self.listed:
            require(job not in decided, f"job {job} is listed as lost, but it is in the global model")
            require(job[:2] in gone, f"job {job} is listed as lost, but its gateway is not")
        return lost


def _decided_jobs(uploads: Mapping[UploadId, Upload], ends: Mapping[UploadId, UploadRecord]) -> set[JobId]:
    """Return the jobs named by uploads that the cloud has decided on. A job may be named by one upload only."""
    named: dict[JobId, UploadId] = {}
    decided = set()
    for upload, message in uploads.items():
        for number in message.jobs:
            job = JobId(upload.gateway, upload.incarnation, number)
            before = named.setdefault(job, upload)
            require(before == upload, f"job {job} is in the uploads {before} and {upload}")
            if upload in ends and ends[upload].reason in ("mixed", "dropped"):
                decided.add(job)
    return decided
