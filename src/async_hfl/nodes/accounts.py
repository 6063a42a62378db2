"""Who has what: so that a lost disk costs updates, but never the knowledge of which.

A gateway says with every upload which jobs' updates are over with it (mixed, or refused with a reason on record), and
with every job which of the device's earlier ones the cloud has decided on meanwhile. A device keeps the ids of updates
that were acknowledged and are not known to be there; when it works for another gateway, or another incarnation of the
same, it reports them. The cloud compares: what it decided on is settled, what a lost incarnation had acknowledged and
no decided upload held is lost, and is written down, once, by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from async_hfl.core import messages as m
from async_hfl.core.effects import Effect, Send, Write
from async_hfl.core.identifiers import CLOUD, Address, JobId, device_address
from async_hfl.core.plain import plain
from async_hfl.core.records import LostRecord
from async_hfl.nodes.number_set import NumberSet

if TYPE_CHECKING:
    from async_hfl.nodes.cloud import CloudNode
    from async_hfl.nodes.gateway import GatewayNode


# A device -----------------------------------------------------------------------------------------------------------


def still_unsettled(unsettled: tuple[JobId, ...], train: m.Train) -> tuple[JobId, ...]:
    """What is left when a gateway says with a new job what the cloud has decided on."""
    return tuple(known for known in unsettled if known[:2] != train.job[:2] or known.number not in train.settled)


def to_report(unsettled: tuple[JobId, ...], train: m.Train, to: Address) -> list[Effect]:
    """What another gateway, or a former incarnation of this one, has acknowledged."""
    elsewhere = tuple(known for known in unsettled if known[:2] != train.job[:2])
    return [Send(to, m.Unsettled(None, elsewhere))] if elsewhere else []


# A gateway ----------------------------------------------------------------------------------------------------------


def landed(node: GatewayNode, number: int, slot: int) -> None:
    """An update came to its end here: the next upload says so. Once: a device that lost its disk may do a job again."""
    if node.rules.accounts and node.state.over.add(number):
        node.state.landed.append((number, slot))


def take_landed(node: GatewayNode) -> tuple[tuple[int, int], ...]:
    taken = tuple(node.state.landed)
    node.state.landed.clear()
    return taken


def settled(node: GatewayNode, jobs: tuple[tuple[int, int], ...]) -> None:
    """The cloud has decided on the upload that these were over with."""
    for number, slot in jobs:
        node.state.settled.setdefault(slot, []).append(number)


def take_settled(node: GatewayNode, slot: int) -> tuple[int, ...]:
    return tuple(node.state.settled.pop(slot, ()))


def pass_on_report(node: GatewayNode, device: int, unsettled: m.Unsettled) -> None:
    node.emit(Send(CLOUD, m.Unsettled(device, unsettled.jobs)))


def pass_on_note(node: GatewayNode, noted: m.Noted) -> None:
    node.emit(Send(device_address(noted.device), noted))


# The cloud ----------------------------------------------------------------------------------------------------------


@plain
@dataclass(slots=True)
class Account:
    """One gateway's incarnation."""

    decided: NumberSet = field(default_factory=NumberSet)
    """Jobs over with an upload that was mixed or dropped, or written down as lost."""
    claims: dict[int, int] = field(default_factory=dict)
    """Jobs that a device reported and that are not decided yet, and the device."""
    lost: bool = False


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
        if job.number not in account.decided:
            account.claims[job.number] = device
        if account.lost:
            _write_lost(node, job.gateway, job.incarnation, account, at)
    node.send(gateway, m.Noted(device, unsettled.jobs))


def lose(node: CloudNode, gateway: int, incarnation: int, at: float) -> None:
    account = _account(node, gateway, incarnation)
    account.lost = True
    _write_lost(node, gateway, incarnation, account, at)


def _write_lost(node: CloudNode, gateway: int, incarnation: int, account: Account, at: float) -> None:
    for number, device in sorted(account.claims.items()):
        account.decided.add(number)
        node.emit(Write(LostRecord(at, JobId(gateway, incarnation, number), device)))
    account.claims.clear()


def _account(node: CloudNode, gateway: int, incarnation: int) -> Account:
    return node.state.accounts.setdefault((gateway, incarnation), Account())
