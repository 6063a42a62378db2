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

from collections.abc import Container
from typing import TYPE_CHECKING

from async_hfl.core.identifiers import CLOUD, Address, JobId, device_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Send, Write
from async_hfl.core.protocol.records import LateRecord

if TYPE_CHECKING:
    from async_hfl.nodes.gateway.node import GatewayNode


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
    if node.config.accounts and node.state.over.add(number):
        node.state.landed.append((number, slot))


def take_landed(node: GatewayNode) -> tuple[tuple[int, int], ...]:
    taken = tuple(node.state.landed)
    node.state.landed.clear()
    return taken


def settled(node: GatewayNode, jobs: tuple[tuple[int, int], ...]) -> None:
    """The cloud has decided on the upload that these were over with."""
    for number, slot in jobs:
        node.state.settled.setdefault(slot, []).append(number)


def list_late(node: GatewayNode, decided: Container[int], at: float) -> None:
    """The run is over: whatever was acknowledged and no decided upload names came too late."""
    if not node.config.accounts:
        return
    state = node.state
    late = {held.number: held.in_flight.slot for held in node.aggregation.held()}
    late.update(state.landed)
    for number, outstanding in state.outstanding.items():
        late.update(outstanding.landed)
        if number in decided:
            for job, _ in outstanding.landed:
                del late[job]
    for job, slot in sorted(late.items()):
        state.over.add(job)
        device = int(state.device_table.devices[slot])
        node.emit(Write(LateRecord(at, JobId(node.config.number, state.incarnation, job), device)))


def came_after_the_end(node: GatewayNode, device: int, update: m.Update, at: float) -> None:
    """Its job ended with the run; it was acknowledged all the same, as everything is that arrives."""
    ours = node.config.accounts and update.job.incarnation == node.state.incarnation
    if ours and not update.warmup and node.state.over.add(update.job.number):
        node.emit(Write(LateRecord(at, update.job, device)))


def take_settled(node: GatewayNode, slot: int) -> tuple[int, ...]:
    return tuple(node.state.settled.pop(slot, ()))


def pass_on_report(node: GatewayNode, device: int, unsettled: m.Unsettled) -> None:
    node.emit(Send(CLOUD, m.Unsettled(device, unsettled.jobs)))


def pass_on_note(node: GatewayNode, noted: m.SettledAck) -> None:
    node.emit(Send(device_address(noted.device), noted))
