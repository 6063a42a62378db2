"""The cloud's ledger of acknowledged updates: if a gateway loses its disk, every lost update is known.

Each upload names the jobs whose updates it contains, or that were dropped since the last upload. A device remembers the
updates that were acknowledged and that, as far as it knows, the cloud has not decided on. It reports them when it works
for another gateway or another incarnation. An update that a lost incarnation acknowledged and that is in no decided
upload is recorded as lost, once. If that incarnation returns with its disk, the record is withdrawn.
"""

from __future__ import annotations

from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.records import FoundRecord, LostRecord
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.cloud.state import UpdateLedger


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
    for job in unsettled.jobs:
        ledger = _ledger(cloud, job.gateway, job.incarnation)
        if job.number not in ledger.decided and job.number not in ledger.listed:
            ledger.claims[job.number] = device
        if ledger.lost:
            _record_lost(cloud, job.gateway, job.incarnation, ledger, at)
    cloud.send(gateway, m.SettledAck(device, unsettled.jobs))


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
