"""Membership: devices and gateways that join at run time, gateways that stay away, and the start of a run.

In a simulation all nodes are there from the beginning. In a deployment they arrive one by one: the run starts when
enough devices and gateways have joined, or when the time to wait for them is over and at least one device can work;
devices may join later. A link works from the moment its gateway reports that it heard the device.

A gateway whose session breaks is first away, then suspended (its devices are given to others), then its updates are
recorded as lost. It may come back with its state at any time.
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
    """True if enough devices and gateways have joined, or the time to wait for more is over and one device can work."""
    state, config = cloud.state, cloud.config
    devices = len(np.unique(cloud.links.link_device[cloud.usable_links()]))
    gateways = sum(member.live for member in state.members)
    return devices > 0 and (
        state.start_due or (devices >= config.membership.start_devices and gateways >= config.membership.start_gateways)
    )


def fix_bandwidth(cloud: Cloud) -> None:
    """Fix B_j as a share of the demand, that of all devices in flight, as it is known now."""
    config, association, links = cloud.config, cloud.state.association, cloud.links
    if config.membership.bandwidth_share == 0.0 or association.bandwidth > 0.0:
        return
    usable = cloud.usable_links()
    load = nearest_load(links, usable, association.latency, config.model_bytes)
    reached = np.bincount(links.link_gateway[usable], minlength=links.gateways) > 0
    if reached.any():
        association.bandwidth = config.membership.bandwidth_share * float(load[reached].mean())


# Nodes that join ----------------------------------------------------------------------------------------------------


def make_room(cloud: Cloud, gateway: int) -> None:
    """Extend the list of members up to this gateway."""
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
    state = cloud.state
    state.members[gateway] = Membership(incarnation, fenced=state.members[gateway].fenced)
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
    """Suspend the first gateway that has been away for too long, and return its number; None if there is none.

    Its devices are needed elsewhere; it may come back later with what it holds."""
    state = cloud.state
    gateway = next((gateway for gateway, due in sorted(state.suspend_at.items()) if due <= at), None)
    if gateway is None:
        return None
    del state.suspend_at[gateway]
    member = state.members[gateway]
    if member.live and state.phase != "over":
        member.suspended = True
        member.revoked = leases_of(cloud, gateway)
        member.pending.clear()  # undecided uploads are void: the gateway will send them again
        state.declare_lost_at[gateway] = at + cloud.config.membership.lost_patience
    return gateway


def record_overdue_losses(cloud: Cloud, at: float) -> None:
    """Record the updates of gateways that have been suspended for too long as lost."""
    for gateway, due in sorted(cloud.state.declare_lost_at.items()):
        if due <= at:
            record_loss(cloud, gateway, at)


def record_loss(cloud: Cloud, gateway: int, at: float) -> None:
    """Record what a suspended gateway acknowledged and did not bring as lost.

    If it returns with its state it is still welcome: its uploads are numbered, so none counts twice."""
    cloud.state.declare_lost_at.pop(gateway, None)
    update_ledger.declare_lost(cloud, gateway, cloud.state.members[gateway].incarnation, at)


def reinstate(cloud: Cloud, gateway: int, at: float) -> None:
    """Take a suspended gateway back with its state; it has lost nothing but its leases."""
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
    """Fence a suspended incarnation for good, since another one has taken its place."""
    member = cloud.state.members[gateway]
    record_loss(cloud, gateway, at)
    member.suspended = False
    member.fenced.add(member.incarnation)


def accept_after_end(cloud: Cloud, gateway: int, incarnation: int, at: float) -> bool:
    """Handle a gateway that speaks after the end of the run; False if the message is of a fenced incarnation.

    The same incarnation still holds its updates, and records itself that they came too late. Another incarnation in its
    place does not hold them: they are lost."""
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
