"""The cloud's ledger of acknowledged updates: if a gateway loses its disk, every lost update is known.

Each upload names the jobs whose updates it contains, or that were dropped since the last upload. A device remembers the
updates that were acknowledged and that, as far as it knows, the cloud has not decided on. It reports them when it works
for another gateway or another incarnation. An update that a lost incarnation acknowledged and that is in no decided
upload is recorded as lost, once. If that incarnation returns with its disk, the record is withdrawn.

The cloud cannot know which jobs a device was given. So it takes only claims on jobs of an incarnation that it knows,
on which no other device has a claim, and not many from one device.
"""

from __future__ import annotations

from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.records import FoundRecord, LostRecord
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.cloud.state import UpdateLedger

MOST_CLAIMS = 4096
"""Updates of one device that may be claimed at a time."""


def note_decided(cloud: Cloud, upload: m.Upload) -> None:
    """Note that the cloud has decided on the updates in an upload."""
    if not upload.jobs:
        return
    ledger = _ledger(cloud, upload.upload.gateway, upload.upload.incarnation)
    for number in upload.jobs:
        ledger.decided.add(number)
        ledger.claims.pop(number, None)


def note_unsettled(cloud: Cloud, gateway: int, unsettled: m.Unsettled, at: float) -> None:
    """Note the updates that other gateways acknowledged to a device, and confirm that to the device."""
    device = unsettled.device
    if device is None:
        return  # cannot happen: the gateway fills in the device
    room = MOST_CLAIMS - _claims(cloud, device)
    taken = []
    for job in unsettled.jobs:
        if not _is_known(cloud, job.gateway, job.incarnation):
            continue
        ledger = _ledger(cloud, job.gateway, job.incarnation)
        if job.number not in ledger.decided and job.number not in ledger.listed:
            if job.number not in ledger.claims:
                if room <= 0:
                    continue
                room -= 1
            ledger.claims.setdefault(job.number, device)
        taken.append(job)
        if ledger.lost:
            _record_lost(cloud, job.gateway, job.incarnation, ledger, at)
    if taken:
        cloud.send(gateway, m.SettledAck(device, tuple(taken)))


def _is_known(cloud: Cloud, gateway: int, incarnation: int) -> bool:
    """True if this incarnation of a gateway has joined at some time."""
    members = cloud.state.members
    if gateway >= len(members):
        return False
    return incarnation == members[gateway].incarnation or incarnation in members[gateway].fenced


def _claims(cloud: Cloud, device: int) -> int:
    """Return the number of undecided and of lost updates that a device has claimed."""
    ledgers = cloud.state.ledgers.values()
    return sum(
        owner == device for ledger in ledgers for jobs in (ledger.claims, ledger.listed) for owner in jobs.values()
    )


def declare_lost(cloud: Cloud, gateway: int, incarnation: int, at: float) -> None:
    """Record every undecided update of an incarnation as lost."""
    ledger = _ledger(cloud, gateway, incarnation)
    ledger.lost = True
    _record_lost(cloud, gateway, incarnation, ledger, at)


def withdraw_loss(cloud: Cloud, gateway: int, incarnation: int, at: float) -> None:
    """Withdraw the recorded losses of an incarnation that is back with its disk."""
    ledger = _ledger(cloud, gateway, incarnation)
    ledger.lost = False
    for number, device in sorted(ledger.listed.items()):
        cloud.emit(Write(FoundRecord(at, JobId(gateway, incarnation, number), device)))
    ledger.claims.update(ledger.listed)
    ledger.listed.clear()


def _record_lost(cloud: Cloud, gateway: int, incarnation: int, ledger: UpdateLedger, at: float) -> None:
    for number, device in sorted(ledger.claims.items()):
        cloud.emit(Write(LostRecord(at, JobId(gateway, incarnation, number), device)))
    ledger.listed.update(ledger.claims)
    ledger.claims.clear()


def _ledger(cloud: Cloud, gateway: int, incarnation: int) -> UpdateLedger:
    return cloud.state.ledgers.setdefault((gateway, incarnation), UpdateLedger())
