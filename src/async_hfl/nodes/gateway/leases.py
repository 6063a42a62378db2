"""Rights to devices, the gateway's side: take what the cloud grants, give back what has moved.

A device that is associated elsewhere but busy here finishes here; its right goes back the moment it is idle. A right
that overtook its assignment waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core.identifiers import CLOUD
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send

if TYPE_CHECKING:
    from async_hfl.nodes.gateway.node import GatewayNode


def take(node: GatewayNode, leases: tuple[m.Lease, ...], knowledge: tuple[m.DeviceKnowledge, ...]) -> list[int]:
    """Note new rights; returns their slots."""
    device_table = node.state.device_table
    device_table.add([lease.device for lease in leases])
    return [
        device_table.take(lease, known)
        for lease, known in zip(leases, knowledge, strict=True)
        if lease.number > device_table.lease[device_table.slot_of[lease.device]]
    ]


def release_if_moved(node: GatewayNode, slot: int, *, warmup: bool = False) -> bool:
    """Give back the right to an idle device that is not associated here (any more)."""
    device_table = node.state.device_table
    if (
        device_table.lease[slot] == 0
        or device_table.associated[slot]
        or device_table.job[slot] >= 0
        or device_table.lease_version[slot] > node.state.version
    ):
        return False
    let_go(node, slot, warmup=warmup)
    return True


def release_all_moved(node: GatewayNode) -> None:
    device_table = node.state.device_table
    for slot in np.flatnonzero((device_table.lease > 0) & ~device_table.associated):
        release_if_moved(node, int(slot))


def let_go(node: GatewayNode, slot: int, *, warmup: bool = False) -> None:
    device_table = node.state.device_table
    if device_table.lease[slot] == 0:
        return
    lease = m.Lease(
        int(device_table.devices[slot]), int(device_table.lease[slot]), int(device_table.lease_version[slot])
    )
    node.emit(Send(CLOUD, m.LeaseReleased(lease, device_table.knowledge(slot), warmup)))
    device_table.learnt.pop(slot, None)
    device_table.lease[slot] = 0
    if device_table.gradients is not None and not device_table.associated[slot]:
        device_table.gradients.forget(slot)  # it comes back with what the cloud knows, or with its next update
    device_table.refresh(slot)
