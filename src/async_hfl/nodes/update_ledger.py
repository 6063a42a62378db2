"""Who has what: so that a lost disk costs updates, but never the knowledge of which.

A gateway says with every upload which jobs' updates are over with it (mixed, or refused with a reason on record), and
with every job which of the device's earlier ones the cloud has decided on meanwhile. A device keeps the ids of updates
that were acknowledged and are not known to be there; when it works for another gateway, or another incarnation of the
same, it reports them. The cloud compares: what it decided on is settled, what a lost incarnation had acknowledged and
no decided upload held is lost, and is written down, once, by name. If that incarnation comes back after all, with its
disk, it brings them: the list is taken back by name, too. At the end of the run each gateway lists what it has
acknowledged and the cloud has not decided on: that is too late, not lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.records import FoundRecord, LostRecord
from async_hfl.core.serialization import plain
from async_hfl.nodes.reliability.number_set import NumberSet

if TYPE_CHECKING:
    from async_hfl.nodes.cloud.node import CloudNode


@plain
@dataclass(slots=True)
class Account:
    """One gateway's incarnation."""

    decided: NumberSet = field(default_factory=NumberSet)
    """Jobs over with an upload that was mixed or dropped."""
    claims: dict[int, int] = field(default_factory=dict)
    """Jobs that a device reported and that are not decided yet, and the device."""
    lost: bool = False
    listed: dict[int, int] = field(default_factory=dict)
    """Claims that were written down as lost."""


def decide(node: CloudNode, upload: m.Upload) -> None:
    if not upload.jobs:
        return
    account = _account(node, upload.upload.gateway, upload.upload.incarnation)
    for number in upload.jobs:
        account.decided.add(number)
        account.claims.pop(number, None)


def reported(node: CloudNode, gateway: int, unsettled: m.Unsettled, at: float) -> None:
    device = unsettled.device
    if device is None:
        return  # no gateway of ours would say so
    for job in unsettled.jobs:
        account = _account(node, job.gateway, job.incarnation)
        if job.number not in account.decided and job.number not in account.listed:
            account.claims[job.number] = device
        if account.lost:
            _write_lost(node, job.gateway, job.incarnation, account, at)
    node.send(gateway, m.SettledAck(device, unsettled.jobs))


def lose(node: CloudNode, gateway: int, incarnation: int, at: float) -> None:
    account = _account(node, gateway, incarnation)
    account.lost = True
    _write_lost(node, gateway, incarnation, account, at)


def find(node: CloudNode, gateway: int, incarnation: int, at: float) -> None:
    """It is back with its disk: nothing of what it had acknowledged is lost, whatever was written down."""
    account = _account(node, gateway, incarnation)
    account.lost = False
    for number, device in sorted(account.listed.items()):
        node.emit(Write(FoundRecord(at, JobId(gateway, incarnation, number), device)))
    account.claims.update(account.listed)
    account.listed.clear()


def _write_lost(node: CloudNode, gateway: int, incarnation: int, account: Account, at: float) -> None:
    for number, device in sorted(account.claims.items()):
        node.emit(Write(LostRecord(at, JobId(gateway, incarnation, number), device)))
    account.listed.update(account.claims)
    account.claims.clear()


def _account(node: CloudNode, gateway: int, incarnation: int) -> Account:
    return node.state.accounts.setdefault((gateway, incarnation), Account())
