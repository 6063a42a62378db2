"""Devices, links and leases at the cloud: building the association problem, applying its solution, granting leases.

A device is triggered only by the gateway that holds its lease. Associating the device with another gateway does not
move the lease at once: the old gateway releases it to the cloud when the device is idle, and the cloud grants it to the
new gateway. A job in flight therefore finishes at the gateway that triggered it. The leases of a lost gateway are
revoked; leases are numbered, so that a later release of a revoked one is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

import numpy as np

from async_hfl.core.arrays import Bools, Floats
from async_hfl.core.compression.model_codec import plain_vector
from async_hfl.core.policies import Association, AssociationProblem
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.message_vectors import decode_knowledge, encode_knowledge
from async_hfl.core.randomness import scramble
from async_hfl.core.topology import check_association, near_best
from async_hfl.nodes.cloud.context import Cloud

# Knowledge ----------------------------------------------------------------------------------------------------------


def store_knowledge(cloud: Cloud, known: m.DeviceKnowledge, gateway: int) -> None:
    """Store a gateway's knowledge about a device."""
    table, device = cloud.state.association, known.device
    known = decode_knowledge(cloud.config.codec, known, "up")
    if known.measured:
        link = cloud.links.find(device, gateway)
        if link >= 0:
            table.latency[link] = known.round_latency
            table.measured[link] = True
    if not isnan(known.loss):
        table.samples[device] = known.samples
        table.loss[device] = known.loss
        table.squared_loss[device] = known.squared_loss
    if known.has_basis:
        table.has_basis[device] = True
    if table.gradients is not None and known.gradient is not None:
        table.gradients.offer(device, plain_vector(known.gradient), known.compressed, table.projection)


def knowledge(cloud: Cloud, device: int, gateway: int) -> m.DeviceKnowledge:
    """Return the knowledge about a device, for the gateway that will trigger it."""
    table, link = cloud.state.association, cloud.links.find(device, gateway)
    gradients = table.gradients
    gradient = None if gradients is None else gradients.gradient(device)
    known = m.DeviceKnowledge(
        device,
        float(table.latency[link]),
        bool(table.measured[link]),
        int(table.samples[device]),
        float(table.loss[device]),
        float(table.squared_loss[device]),
        gradient,
        gradient is not None and gradients is not None and gradients.compressed,
        bool(table.has_basis[device]),
    )
    key = cloud.config.codec.key("known gradient", device, int(table.lease[device]))
    return encode_knowledge(cloud.config.codec, known, "down", key)


def observe_links(cloud: Cloud, gateway: int, report: m.Report) -> None:
    """Update the links in a gateway's report, except those with a newer report."""
    links, table = cloud.links, cloud.state.association
    for devices, works in ((report.lost, False), (report.heard, True)):
        for device in devices:
            link = links.find(device, gateway) if device < links.devices else -1
            if link >= 0 and report.number > table.reported.get(link, 0):
                table.reported[link] = report.number
                table.usable[link] = works


def reset_links(cloud: Cloud, gateway: int) -> None:
    """Reset the links of a gateway that has joined as a new incarnation.

    If devices join at run time, they must join it again; otherwise all its links work until they are reported lost."""
    table, own = cloud.state.association, cloud.links.link_gateway == gateway
    table.usable[own] = cloud.config.membership.start_devices == 0
    table.reported = {link: number for link, number in table.reported.items() if not own[link]}


# The association problem --------------------------------------------------------------------------------------------


def association_problem(cloud: Cloud) -> AssociationProblem:
    links, config, state, table = cloud.links, cloud.config, cloud.state, cloud.state.association
    usable = _prefer_connected(cloud, cloud.usable_links())
    kept = near_best(links.link_device, usable, table.latency, config.max_latency_ratio)
    latency = table.latency[kept]
    bandwidth = np.full(len(state.members), table.bandwidth if table.bandwidth > 0 else config.bandwidth, np.float64)
    return AssociationProblem(
        device_utility(cloud),
        bandwidth,
        links.link_device[kept],
        links.link_gateway[kept],
        config.model_bytes / latency,
        latency,
        config.load_penalty,
        config.every_device,
        config.switching_cost,
        table.gateway_of.copy(),
        scramble(config.seed ^ state.solves),
        state.memory,
        table.measured[kept],
        state.epoch,
    )


def _prefer_connected(cloud: Cloud, usable: Bools) -> Bools:
    """Leave out a link to a gateway that is away if the device has another link."""
    away, links = np.array([member.away for member in cloud.state.members], bool), cloud.links
    if not away.any():
        return usable
    connected = usable & ~away[links.link_gateway]
    has_other = np.zeros(links.devices, bool)
    has_other[links.link_device[connected]] = True
    found: Bools = usable & (connected | ~has_other[links.link_device])
    return found


def device_utility(cloud: Cloud) -> Floats:
    """Return u_i of all devices; devices without a gradient get the mean. With `association.utility_scale = "mean"`,
    utilities are divided by their mean size, so that phi does not depend on their scale."""
    devices, gradients = cloud.links.devices, cloud.state.association.gradients
    if gradients is None or gradients.count == 0:
        return np.ones(devices)
    utility = gradients.utility(np.arange(devices))
    utility[~gradients.known] = utility[gradients.known].mean()
    size = float(np.abs(utility).mean())
    if cloud.config.utility_scale == "mean" and size > 0:
        utility = utility / size
    return utility


def apply_association(cloud: Cloud, association: Association) -> tuple[list[tuple[int, int]], dict[int, m.Assignment]]:
    """Apply a solution as a new version. Return the devices that moved, and the messages to the gateways affected."""
    links, members, table = cloud.links, cloud.state.members, cloud.state.association
    new = association.gateway_of
    if len(new) < links.devices:  # devices have joined while the problem was being solved
        new = np.append(new, np.full(links.devices - len(new), -1, new.dtype))
    check_association(links, np.ones(len(links.link_device), bool), new)
    old = table.gateway_of
    moved = np.flatnonzero(new != old)
    affected = set(new[moved].tolist()) | set(old[moved].tolist())
    affected.discard(-1)
    table.gateway_of = new.astype(np.int64)
    table.version += 1
    leases: dict[int, list[m.Lease]] = {gateway: [] for gateway in affected}
    for device in np.flatnonzero((table.holder < 0) & (new >= 0)):
        gateway = int(new[device])
        if members[gateway].live:
            leases.setdefault(gateway, []).append(_grant(cloud, int(device), gateway))
    order = np.argsort(new, kind="stable")
    edges = np.searchsorted(new[order], np.arange(len(members) + 1))
    messages = {}
    for gateway, granted in sorted(leases.items()):
        if members[gateway].live:
            devices = tuple(order[edges[gateway] : edges[gateway + 1]].tolist())
            messages[gateway] = _assignment(cloud, gateway, devices, granted)
    return [(int(device), int(new[device])) for device in moved], messages


# Leases -------------------------------------------------------------------------------------------------------------


def full_assignment(cloud: Cloud, gateway: int) -> m.Assignment:
    """Return the assignment of a gateway that has joined or returned, with all leases of its devices that are free."""
    table = cloud.state.association
    devices = tuple(np.flatnonzero(table.gateway_of == gateway).tolist())
    return _assignment(
        cloud, gateway, devices, [_grant(cloud, device, gateway) for device in devices if table.holder[device] < 0]
    )


def pass_on_lease(cloud: Cloud, lease: m.Lease, gateway: int) -> m.LeaseGranted | None:
    """Take back a released lease and grant it to the gateway that the device is associated with now, if any."""
    table, members, device = cloud.state.association, cloud.state.members, lease.device
    if table.holder[device] != gateway or table.lease[device] != lease.number:
        return None  # the lease was revoked: the gateway had been declared lost
    table.holder[device] = -1
    owner = int(table.gateway_of[device])
    if owner < 0 or not members[owner].live:
        return None
    granted = _grant(cloud, device, owner)
    return m.LeaseGranted(members[owner].incarnation, granted, knowledge(cloud, device, owner))


def grant_leases(
    cloud: Cloud, gateway: int, devices: Iterable[int]
) -> tuple[tuple[m.Lease, ...], tuple[m.DeviceKnowledge, ...]]:
    leases = tuple(_grant(cloud, device, gateway) for device in devices)
    return leases, tuple(knowledge(cloud, lease.device, gateway) for lease in leases)


def leases_of(cloud: Cloud, gateway: int) -> tuple[m.Lease, ...]:
    table = cloud.state.association
    held = np.flatnonzero(table.holder == gateway).tolist()
    return tuple(m.Lease(device, int(table.lease[device]), table.version) for device in held)


def revoke_leases(cloud: Cloud, gateway: int) -> list[int]:
    """Take back the leases of a lost gateway; return their devices."""
    table = cloud.state.association
    held = np.flatnonzero(table.holder == gateway)
    table.holder[held] = -1
    table.lease[held] += 1
    return [int(device) for device in held]


def _grant(cloud: Cloud, device: int, gateway: int) -> m.Lease:
    table = cloud.state.association
    table.lease[device] += 1
    table.holder[device] = gateway
    return m.Lease(device, int(table.lease[device]), table.version)


def _assignment(cloud: Cloud, gateway: int, devices: tuple[int, ...], granted: list[m.Lease]) -> m.Assignment:
    known = tuple(knowledge(cloud, lease.device, gateway) for lease in granted)
    incarnation = cloud.state.members[gateway].incarnation
    return m.Assignment(incarnation, cloud.state.association.version, devices, tuple(granted), known)
