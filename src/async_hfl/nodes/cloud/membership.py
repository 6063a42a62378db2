"""Who is there: devices and gateways that join at run time, gateways that stay away, and when a run begins.

A simulated world is complete from the beginning. A deployed one fills up: the run begins when enough devices and
gateways are there, or the patience to wait for them is over and at least one device can work; who comes later is a late
device. A link works from the moment its gateway reports to have heard the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import SetTimer, Write
from async_hfl.core.protocol.events import DeviceJoined
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.topology import nearest_load, with_link
from async_hfl.nodes import update_ledger
from async_hfl.nodes.cloud.state import Directory, Membership

if TYPE_CHECKING:
    from async_hfl.nodes.cloud.node import CloudNode

START_TIMER = "start"
GONE_TIMER = "gone"
_NOBODY = 0
"""The incarnation of a gateway that has a number and has not spoken yet; real ones are drawn from 1 up."""


def started(node: CloudNode, at: float) -> None:
    if node.config.start_devices == 0:
        node.begin(at)
        return
    node.emit(SetTimer(START_TIMER, at + node.config.start_patience))


def begin_if_due(node: CloudNode, at: float) -> None:
    state, config = node.state, node.config
    if state.phase != "new" or config.start_devices == 0:
        return
    usable = node.registry.usable(state.directory, state.members)
    devices = len(np.unique(node.registry.links.link_device[usable]))
    gateways = sum(member.live for member in state.members)
    if devices and (state.start_due or (devices >= config.start_devices and gateways >= config.start_gateways)):
        node.begin(at)


def fix_bandwidth(node: CloudNode) -> None:
    """B_j as a share of the demand: that of all devices in flight, as it is known now. Fixed once, recorded with the
    first global model."""
    state, config, registry = node.state, node.config, node.registry
    if config.bandwidth_share == 0.0 or state.directory.bandwidth > 0.0:
        return
    usable = registry.usable(state.directory, state.members)
    load = nearest_load(registry.links, usable, state.directory.latency, config.model_bytes)
    reached = np.bincount(registry.links.link_gateway[usable], minlength=registry.links.gateways) > 0
    if reached.any():
        state.directory.bandwidth = config.bandwidth_share * float(load[reached].mean())


def room_for_gateway(node: CloudNode, gateway: int) -> None:
    members = node.state.members
    while len(members) <= gateway:
        members.append(Membership(_NOBODY, live=False))


def device_joined(node: CloudNode, event: DeviceJoined) -> None:
    state, registry = node.state, node.registry
    room_for_gateway(node, event.gateway)
    if event.device < registry.links.devices and (link := registry.links.find(event.device, event.gateway)) >= 0:
        if not state.directory.measured[link]:
            state.directory.latency[link] = event.expected_latency
    else:
        links, place = with_link(registry.links, event.device, event.gateway, event.expected_latency)
        _grow(state.directory, links.devices, place, event.expected_latency)
        state.links = registry.links = links
    if np.isnan(state.directory.loss[event.device]):
        state.directory.samples[event.device] = event.samples


def _grow(directory: Directory, devices: int, place: int, latency: float) -> None:
    """A link more, at that place among the others, and room for so many devices."""
    directory.latency = np.insert(directory.latency, place, latency)
    directory.measured = np.insert(directory.measured, place, False)
    directory.usable = np.insert(directory.usable, place, False)
    directory.reported = {link + (link >= place): number for link, number in directory.reported.items()}
    extra = devices - len(directory.samples)
    if extra == 0:
        return
    for name, value in (("samples", 0), ("loss", np.nan), ("squared_loss", np.nan), ("gateway_of", -1), ("holder", -1)):
        old = getattr(directory, name)
        setattr(directory, name, np.append(old, np.full(extra, value, old.dtype)))
    directory.lease = np.append(directory.lease, np.zeros(extra, np.int64))
    directory.has_basis = np.append(directory.has_basis, np.zeros(extra, bool))
    if directory.gradients is not None:
        directory.gradients.grow(devices)
        directory.gradients.counted[-extra:] = True


# Gateways whose session broke ----------------------------------------------------------------------------------------


def gateway_gone(node: CloudNode, gateway: int, at: float) -> None:
    state = node.state
    if node.config.gateway_patience == 0.0:
        node.lose(gateway, at)
    elif gateway < len(state.members) and state.members[gateway].live:
        state.members[gateway].away = True
        state.gone[gateway] = at + node.config.gateway_patience
        _arm(node)


def gateway_back(node: CloudNode, gateway: int) -> None:
    node.state.gone.pop(gateway, None)
    if gateway < len(node.state.members):
        node.state.members[gateway].away = False


def sessions_gone(node: CloudNode, at: float) -> None:
    """After a restart of our own: nobody has a session."""
    if node.config.gateway_patience > 0.0:
        for gateway in range(len(node.state.members)):
            gateway_gone(node, gateway, at)


def give_up_gateways(node: CloudNode, at: float) -> None:
    """One at a time, the timer being due again at once for the next: the loss of one may be what others waited for."""
    state = node.state
    for gateway, due in sorted(state.gone.items()):
        if due <= at:
            del state.gone[gateway]
            _give_up(node, gateway, at)
            _arm(node)
            return
    for gateway, due in sorted(state.suspended.items()):
        if due <= at:
            hold_for_lost(node, gateway, at)
    _arm(node)


def _give_up(node: CloudNode, gateway: int, at: float) -> None:
    """Its devices are needed elsewhere. It may yet come back with what it has."""
    state, member = node.state, node.state.members[gateway]
    if not member.live or state.phase == "over":
        return
    member.suspended = True
    member.revoked = node.registry.rights_of(state.directory, gateway)
    member.pending.clear()  # what the aggregation held of it is void: it will be sent again
    state.suspended[gateway] = at + node.config.lost_patience
    node.take_away(gateway, at)


def reinstate(node: CloudNode, gateway: int, at: float) -> None:
    """It is back with its state, however late: nothing is lost but the rights to its devices."""
    state, member = node.state, node.state.members[gateway]
    state.suspended.pop(gateway, None)
    update_ledger.find(node, gateway, member.incarnation, at)
    member.suspended, member.live = False, True
    node.emit(Write(LifecycleRecord(at, "gateway_joined", f"g{gateway}", "with what it had")))
    node.send(gateway, m.LeasesRevoked(member.incarnation, member.revoked))
    member.revoked = ()
    if state.phase == "running":
        node.send(gateway, node.registry.full_assignment(state.directory, state.members, gateway))
        node.solve()
    begin_if_due(node, at)


def hold_for_lost(node: CloudNode, gateway: int, at: float) -> None:
    """Nobody waits for it any longer: what it had acknowledged and not brought is listed as lost. Should it come back
    as it was, it is as welcome as before: its uploads are numbered, and none of them counts twice."""
    node.state.suspended.pop(gateway, None)
    update_ledger.lose(node, gateway, node.state.members[gateway].incarnation, at)


def replace(node: CloudNode, gateway: int, at: float) -> None:
    """Another incarnation has taken its place: it cannot come back."""
    member = node.state.members[gateway]
    hold_for_lost(node, gateway, at)
    member.suspended = False
    member.fenced.add(member.incarnation)


def is_back_too_late(node: CloudNode, gateway: int, incarnation: int, at: float) -> bool:
    """After the end of the run. What it still has can go into no model; but it has it, and says so by itself. Another
    incarnation in its place has not: then it is lost. False: an old message of one that is no more."""
    member = node.state.members[gateway]
    if incarnation == member.incarnation:
        if member.suspended:
            member.suspended = False
            update_ledger.find(node, gateway, incarnation, at)
        return True
    if incarnation in member.fenced:
        return False
    if member.incarnation != _NOBODY:
        member.fenced.add(member.incarnation)
        update_ledger.lose(node, gateway, member.incarnation, at)
    node.state.members[gateway] = Membership(incarnation, fenced=member.fenced)
    return True


def _arm(node: CloudNode) -> None:
    due = [*node.state.gone.values(), *node.state.suspended.values()]
    if due:
        node.emit(SetTimer(GONE_TIMER, min(due)))
