"""The cloud's ledger of acknowledged updates: a lost disk costs updates, but never the knowledge of which ones.

Gateways name in each upload the jobs whose updates it contains or ended. Devices keep the ids of updates that were
acknowledged and are not known to have been decided on, and report them when they work for another gateway or another
incarnation. What a lost incarnation acknowledged and no decided upload contained is recorded as lost, once, by name. If
that incarnation comes back with its disk, the record is withdrawn by name.
"""

from __future__ import annotations

from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.records import FoundRecord, LostRecord
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.cloud.state import UpdateLedger


def note_decided(cloud: Cloud, upload: m.Upload) -> None:
    """Note that the jobs of an upload are settled: it was mixed or dropped."""
    if not upload.jobs:
        return
    ledger = _ledger(cloud, upload.upload.gateway, upload.upload.incarnation)
    for number in upload.jobs:
        ledger.decided.add(number)
        ledger.claims.pop(number, None)


def note_unsettled(cloud: Cloud, gateway: int, unsettled: m.Unsettled, at: float) -> None:
    """Note the updates that a device had acknowledged elsewhere, and confirm that they are noted."""
    device = unsettled.device
    if device is None:
        return  # a gateway always adds the device
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
