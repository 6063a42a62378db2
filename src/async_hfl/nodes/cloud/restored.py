"""A cloud that continues from an older copy of its state, as its operator has confirmed (`--restored`).

What it has done since the copy was made is lost, and it does not know what that was. So it must not continue with
gateways that do: every gateway of the copy is declared lost and fenced at its next message, whatever its incarnation,
and starts again from the model of the copy. Versions of the association and numbers of leases skip those that may have
been used since.
"""

from __future__ import annotations

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.events import Received, Restored
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.nodes.cloud import membership, uploads
from async_hfl.nodes.cloud.context import Cloud

_SKIPPED = 1_000_000
"""More versions and leases than are made between two copies."""


def begin(cloud: Cloud, event: Restored) -> list[int]:
    """Continue from the copy; return the live gateways, which must be declared lost."""
    state = cloud.state
    cloud.emit(Write(LifecycleRecord(event.at, "restored", "cloud", f"continues from a copy of epoch {state.epoch}")))
    state.association.version += _SKIPPED
    state.association.lease = state.association.lease + _SKIPPED
    state.outdated = set(range(len(state.members)))
    for gateway, member in enumerate(state.members):
        if member.suspended:
            membership.replace(cloud, gateway, event.at)
    return [gateway for gateway, member in enumerate(state.members) if member.live]


def is_outdated(cloud: Cloud, received: Received) -> bool:
    """Return True for a message from before the restore, which must not be used; fence the gateway that sent it."""
    state, gateway, message = cloud.state, received.sender.number, received.message
    if gateway not in state.outdated or isinstance(message, m.Unsettled):
        return False  # a device's report names its updates in full, so it is as true as before
    if isinstance(message, (m.Hello, m.Report)):
        incarnation = message.incarnation
    elif isinstance(message, m.Upload):
        incarnation = message.upload.incarnation
    else:
        return True
    state.outdated.discard(gateway)
    state.members[gateway].fenced.add(incarnation)
    uploads.send_fenced(cloud, gateway, incarnation)
    return True
