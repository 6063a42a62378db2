"""Who is there: devices and gateways that join at run time, gateways that stay away, and when a run begins.

A simulated world is complete from the beginning. A deployed one fills up: the run begins when enough devices and
gateways are there, or the patience to wait for them is over and at least one device can work; who comes later is a late
device. A link works from the moment its gateway reports to have heard the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core.effects import SetTimer
from async_hfl.core.events import DeviceJoined
from async_hfl.core.topology import nearest_load, with_link
from async_hfl.nodes.cloud_state import Directory, Membership

if TYPE_CHECKING:
    from async_hfl.nodes.cloud import CloudNode

START_TIMER = "start"
GONE_TIMER = "gone"
_NOBODY = 0
"""The incarnation of a gateway that has a number and has not spoken yet; real ones are drawn from 1 up."""


def started(node: CloudNode, at: float) -> None:
    if node.rules.start_devices == 0:
        node.begin(at)
        return
    node.emit(SetTimer(START_TIMER, at + node.rules.start_patience))


def begin_if_due(node: CloudNode, at: float) -> None:
    state, rules = node.state, node.rules
    if state.phase != "new" or rules.start_devices == 0:
        return
    usable = node.registry.usable(state.directory, state.members)
    devices = len(np.unique(node.registry.links.link_device[usable]))
    gateways = sum(member.live for member in state.members)
    if devices and (state.start_due or (devices >= rules.start_devices and gateways >= rules.start_gateways)):
        node.begin(at)


def fix_bandwidth(node: CloudNode) -> None:
    """B_j as a share of the demand: that of all devices in flight, as it is known now. Fixed once, recorded with the
    first global model."""
    state, rules, registry = node.state, node.rules, node.registry
    if rules.bandwidth_share == 0.0 or state.directory.bandwidth > 0.0:
        return
    usable = registry.usable(state.directory, state.members)
    load = nearest_load(registry.links, usable, state.directory.latency, rules.model_bytes)
    reached = np.bincount(registry.links.link_gateway[usable], minlength=registry.links.gateways) > 0
    if reached.any():
        state.directory.bandwidth = rules.bandwidth_share * float(load[reached].mean())


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
    directory.grant = np.append(directory.grant, np.zeros(extra, np.int64))
    directory.has_basis = np.append(directory.has_basis, np.zeros(extra, bool))
    if directory.gradients is not None:
        directory.gradients.grow(devices)
        directory.gradients.counted[-extra:] = True


# Gateways whose session broke ----------------------------------------------------------------------------------------


def gateway_gone(node: CloudNode, gateway: int, at: float) -> None:
    state = node.state
    if node.rules.gateway_patience == 0.0:
        node.lose(gateway, at)
    elif gateway < len(state.members) and state.members[gateway].live:
        state.members[gateway].away = True
        state.gone[gateway] = at + node.rules.gateway_patience
        _arm(node)


def gateway_back(node: CloudNode, gateway: int) -> None:
    node.state.gone.pop(gateway, None)
    if gateway < len(node.state.members):
        node.state.members[gateway].away = False


def sessions_gone(node: CloudNode, at: float) -> None:
    """After a restart of our own: nobody has a session."""
    if node.rules.gateway_patience > 0.0:
        for gateway in range(len(node.state.members)):
            gateway_gone(node, gateway, at)


def give_up_gateways(node: CloudNode, at: float) -> None:
    for gateway, due in sorted(node.state.gone.items()):
        if due <= at:
            del node.state.gone[gateway]
            node.lose(gateway, at)
    _arm(node)


def _arm(node: CloudNode) -> None:
    if node.state.gone:
        node.emit(SetTimer(GONE_TIMER, min(node.state.gone.values())))
