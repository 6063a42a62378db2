"""Membership: nodes that join at run time, gateways that stay away, and the start of a run.

In a simulation all nodes exist from the beginning. In a deployment they join one by one. The run starts when enough
devices and gateways have joined, or after a timeout with at least one device; more devices may join later. A link works
from the moment its gateway reports that it has heard the device.

A gateway whose session breaks is first away; after a timeout it is suspended and its devices are reassigned; after
another timeout its updates are recorded as lost. It may return with its state at any time.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import SetTimer, Write
from async_hfl.core.protocol.events import DeviceJoined
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.topology import nearest_load, with_link
from async_hfl.nodes.cloud import update_ledger
from async_hfl.nodes.cloud.association_step import solve
from async_hfl.nodes.cloud.association_table import full_assignment, leases_of, reset_links
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.cloud.state import Membership

START_TIMER = "start"
ABSENCE_TIMER = "gone"
_NO_INCARNATION = 0
"""The incarnation of a gateway that has a number and has not joined yet; real ones start at 1."""


# The start of a run -------------------------------------------------------------------------------------------------


def is_ready(cloud: Cloud) -> bool:
    """True if enough devices and gateways have joined, or if the timeout has passed and at least one device has."""
    state, config = cloud.state, cloud.config
    devices = len(np.unique(cloud.links.link_device[cloud.usable_links()]))
    gateways = sum(member.live for member in state.members)
    return devices > 0 and (
        state.start_due or (devices >= config.membership.start_devices and gateways >= config.membership.start_gateways)
    )


def fix_bandwidth(cloud: Cloud) -> None:
    """Set B_j to a share of the mean demand of a gateway with all its devices in flight, as measured so far."""
    config, association, links = cloud.config, cloud.state.association, cloud.links
    if config.membership.bandwidth_share == 0.0 or association.bandwidth > 0.0:
        return
    usable = cloud.usable_links()
    load = nearest_load(links, usable, association.latency, config.demand_model_bytes or config.model_bytes)
    reached = np.bincount(links.link_gateway[usable], minlength=links.gateways) > 0
    if reached.any():
        association.bandwidth = config.membership.bandwidth_share * float(load[reached].mean())


# Nodes that join ----------------------------------------------------------------------------------------------------


def make_room(cloud: Cloud, gateway: int) -> None:
    """Extend the list of members so that it includes this gateway."""
    members = cloud.state.members
    while len(members) <= gateway:
        members.append(Membership(_NO_INCARNATION, live=False))


def device_joined(cloud: Cloud, event: DeviceJoined) -> None:
    state, links, association = cloud.state, cloud.links, cloud.state.association
    make_room(cloud, event.gateway)
    if event.device < links.devices and (link := links.find(event.device, event.gateway)) >= 0:
        if not association.measured[link]:
            association.latency[link] = event.expected_latency
    else:
        state.links, place = with_link(links, event.device, event.gateway, event.expected_latency)
        association.add_link(place, event.expected_latency, state.links.devices)
    if np.isnan(association.loss[event.device]):
        association.samples[event.device] = event.samples


def gateway_joined(cloud: Cloud, gateway: int, incarnation: int, at: float) -> None:
    """Admit a new incarnation of a gateway."""
    state, former = cloud.state, cloud.state.members[gateway]
    # A model that was sent to the former incarnation may be the first one to arrive at the new one.
    state.members[gateway] = Membership(incarnation, fenced=former.fenced, bases=former.bases)
    reset_links(cloud, gateway)
    cloud.emit(Write(LifecycleRecord(at, "gateway_joined", f"g{gateway}")))
    if state.phase == "running":
        cloud.send(gateway, full_assignment(cloud, gateway))
        solve(cloud)


# Gateways that stay away --------------------------------------------------------------------------------------------


def session_lost(cloud: Cloud, gateway: int, at: float) -> None:
    """Note that a gateway's session broke: it has `gateway_patience` to reconnect."""
    state = cloud.state
    if gateway < len(state.members) and state.members[gateway].live:
        state.members[gateway].away = True
        state.suspend_at[gateway] = at + cloud.config.membership.gateway_patience
        arm(cloud)


def session_restored(cloud: Cloud, gateway: int) -> None:
    cloud.state.suspend_at.pop(gateway, None)
    if gateway < len(cloud.state.members):
        cloud.state.members[gateway].away = False


def suspend_next(cloud: Cloud, at: float) -> int | None:
    """Suspend the first gateway that has been away for too long, and return its number; None if there is none."""
    state = cloud.state
    gateway = next((gateway for gateway, due in sorted(state.suspend_at.items()) if due <= at), None)
    if gateway is None:
        return None
    del state.suspend_at[gateway]
    member = state.members[gateway]
    if member.live and state.phase != "over":
        member.suspended = True
        member.revoked = leases_of(cloud, gateway)
        member.pending.clear()  # the gateway resends its undecided uploads when it returns
        state.declare_lost_at[gateway] = at + cloud.config.membership.lost_patience
    return gateway


def record_overdue_losses(cloud: Cloud, at: float) -> None:
    """Record as lost the updates of gateways that have been suspended for too long."""
    for gateway, due in sorted(cloud.state.declare_lost_at.items()):
        if due <= at:
            record_loss(cloud, gateway, at)


def record_loss(cloud: Cloud, gateway: int, at: float) -> None:
    """Record as lost the updates that a suspended gateway has acknowledged and not uploaded. If it returns with its
    state, it is still reinstated."""
    cloud.state.declare_lost_at.pop(gateway, None)
    update_ledger.declare_lost(cloud, gateway, cloud.state.members[gateway].incarnation, at)


def reinstate(cloud: Cloud, gateway: int, at: float) -> None:
    """Take back a suspended gateway that has returned with its state; only its leases are lost."""
    state, member = cloud.state, cloud.state.members[gateway]
    state.declare_lost_at.pop(gateway, None)
    update_ledger.withdraw_loss(cloud, gateway, member.incarnation, at)
    member.suspended, member.live = False, True
    cloud.emit(Write(LifecycleRecord(at, "gateway_joined", f"g{gateway}", "with what it had")))
    cloud.send(gateway, m.LeasesRevoked(member.incarnation, member.revoked))
    member.revoked = ()
    if state.phase == "running":
        cloud.send(gateway, full_assignment(cloud, gateway))
        solve(cloud)


def replace(cloud: Cloud, gateway: int, at: float) -> None:
    """Fence a suspended incarnation that another one has replaced."""
    member = cloud.state.members[gateway]
    record_loss(cloud, gateway, at)
    member.suspended = False
    member.fenced.add(member.incarnation)


def accept_after_end(cloud: Cloud, gateway: int, incarnation: int, at: float) -> bool:
    """Handle a message of a gateway after the end of the run; return False if its incarnation is fenced.

    The known incarnation still has its updates and records them as late. A new incarnation does not: they are lost."""
    member = cloud.state.members[gateway]
    if incarnation == member.incarnation:
        if member.suspended:
            member.suspended = False
            update_ledger.withdraw_loss(cloud, gateway, incarnation, at)
        return True
    if incarnation in member.fenced:
        return False
    if member.incarnation != _NO_INCARNATION:
        member.fenced.add(member.incarnation)
        update_ledger.declare_lost(cloud, gateway, member.incarnation, at)
    cloud.state.members[gateway] = Membership(incarnation, fenced=member.fenced)
    return True


def arm(cloud: Cloud) -> None:
    due = [*cloud.state.suspend_at.values(), *cloud.state.declare_lost_at.values()]
    if due:
        cloud.emit(SetTimer(ABSENCE_TIMER, min(due)))
