"""A gateway's leases: it takes those that the cloud grants and releases those of devices that have moved.

Only the gateway that holds a device's lease may trigger it. A device that is associated with another gateway while it
is busy finishes its job first; its lease is released as soon as it is idle. A lease that overtakes the assignment that
it belongs to is kept until that assignment arrives.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.identifiers import CLOUD
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send
from async_hfl.core.protocol.message_vectors import decode_knowledge
from async_hfl.nodes.gateway.context import Gateway


def take(gateway: Gateway, leases: tuple[m.Lease, ...], knowledge: tuple[m.DeviceKnowledge, ...]) -> list[int]:
    """Store new leases and return their slots."""
    device_table = gateway.state.device_table
    device_table.add([lease.device for lease in leases])
    return [
        device_table.take(lease, decode_knowledge(gateway.config.codec, known, "down"))
        for lease, known in zip(leases, knowledge, strict=True)
        if lease.number > device_table.lease[device_table.slot_of[lease.device]]
    ]


def release_if_moved(gateway: Gateway, slot: int, *, warmup: bool = False) -> bool:
    """Release the lease of an idle device that is associated with another gateway; return True if that was done."""
    device_table = gateway.state.device_table
    if (
        device_table.lease[slot] == 0
        or device_table.associated[slot]
        or device_table.job[slot] >= 0
        or device_table.lease_version[slot] > gateway.state.version
    ):
        return False
    release(gateway, slot, warmup=warmup)
    return True


def release_all_moved(gateway: Gateway) -> None:
    device_table = gateway.state.device_table
    for slot in np.flatnonzero((device_table.lease > 0) & ~device_table.associated):
        release_if_moved(gateway, int(slot))


def release(gateway: Gateway, slot: int, *, warmup: bool = False) -> None:
    device_table = gateway.state.device_table
    if device_table.lease[slot] == 0:
        return
    lease = m.Lease(
        int(device_table.devices[slot]), int(device_table.lease[slot]), int(device_table.lease_version[slot])
    )
    gateway.emit(Send(CLOUD, m.LeaseReleased(lease, gateway.knowledge(slot), warmup)))
    device_table.unreported.pop(slot, None)
    device_table.lease[slot] = 0
    if device_table.gradients is not None and not device_table.associated[slot]:
        # If the device returns to this gateway, its lease or its next update brings a gradient.
        device_table.gradients.forget(slot)
    device_table.refresh(slot)


def revoke(gateway: Gateway, leases: tuple[m.Lease, ...]) -> None:
    """Drop leases that the cloud has granted to other gateways."""
    device_table = gateway.state.device_table
    for lease in leases:
        slot = device_table.slot_of.get(lease.device)
        if slot is not None and 0 < device_table.lease[slot] <= lease.number:
            device_table.lease[slot] = 0
            device_table.refresh(slot)
