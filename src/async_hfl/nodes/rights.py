"""Rights to devices, the gateway's side: take what the cloud grants, give back what has moved.

A device that is associated elsewhere but busy here finishes here; its right goes back the moment it is idle. A right
that overtook its assignment waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core import messages as m
from async_hfl.core.effects import Send
from async_hfl.core.identifiers import CLOUD

if TYPE_CHECKING:
    from async_hfl.nodes.gateway import GatewayNode


def take(node: GatewayNode, grants: tuple[m.Grant, ...], knowledge: tuple[m.DeviceKnowledge, ...]) -> list[int]:
    """Note new rights; returns their slots."""
    roster = node.state.roster
    roster.add([grant.device for grant in grants])
    return [
        roster.take(grant, known)
        for grant, known in zip(grants, knowledge, strict=True)
        if grant.number > roster.grant[roster.slot_of[grant.device]]
    ]


def release_if_moved(node: GatewayNode, slot: int, *, warmup: bool = False) -> bool:
    """Give back the right to an idle device that is not associated here (any more)."""
    roster = node.state.roster
    if (
        roster.grant[slot] == 0
        or roster.associated[slot]
        or roster.job[slot] >= 0
        or roster.grant_version[slot] > node.state.version
    ):
        return False
    let_go(node, slot, warmup=warmup)
    return True


def release_all_moved(node: GatewayNode) -> None:
    roster = node.state.roster
    for slot in np.flatnonzero((roster.grant > 0) & ~roster.associated):
        release_if_moved(node, int(slot))


def let_go(node: GatewayNode, slot: int, *, warmup: bool = False) -> None:
    roster = node.state.roster
    if roster.grant[slot] == 0:
        return
    grant = m.Grant(int(roster.devices[slot]), int(roster.grant[slot]), int(roster.grant_version[slot]))
    node.emit(Send(CLOUD, m.Released(grant, roster.knowledge(slot), warmup)))
    roster.learnt.pop(slot, None)
    roster.grant[slot] = 0
    if roster.gradients is not None and not roster.associated[slot]:
        roster.gradients.forget(slot)  # it comes back with what the cloud knows, or with its next update
    roster.refresh(slot)
