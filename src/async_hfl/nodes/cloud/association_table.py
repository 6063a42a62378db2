"""The cloud's side of association: the problem it poses, the answer it applies, and the rights it hands round.

A device is triggered only by the gateway that holds the right to it. Associating it elsewhere does not move the right:
the old gateway releases it when the device is idle there (gateway -> cloud -> new gateway), so a device in flight
finishes with the gateway that triggered it. A gateway declared lost loses its rights; the numbers of the grants make
what it says later void.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.policies import Association, AssociationProblem
from async_hfl.core.protocol import messages as m
from async_hfl.core.randomness import scramble
from async_hfl.core.topology import FeasibleLinks, check_association, near_best
from async_hfl.nodes.cloud.state import Directory, Membership
from async_hfl.nodes.config import CloudConfig


def new_directory(links: FeasibleLinks, config: CloudConfig, samples: Ints) -> Directory:
    devices, count = links.devices, len(links.link_device)
    gradients = None if config.gradient == "none" else config.gradient_table(devices)
    if gradients is not None:
        gradients.counted[:] = True
    return Directory(
        links.expected_latency.copy(),
        np.zeros(count, bool),
        np.ones(count, bool),
        samples.copy(),
        np.full(devices, np.nan),
        np.full(devices, np.nan),
        np.full(devices, -1, np.int64),
        np.full(devices, -1, np.int64),
        np.zeros(devices, np.int64),
        np.zeros(devices, bool),
        gradients,
        config.sketch,
    )


class Registry:
    """Works on a Directory. Only where devices join at run time do the links themselves change."""

    def __init__(self, links: FeasibleLinks, config: CloudConfig) -> None:
        self.links = links
        self.config = config

    def absorb(self, directory: Directory, known: m.DeviceKnowledge, gateway: int) -> None:
        """Take in what a gateway learnt."""
        device = known.device
        if known.measured:
            link = self.links.find(device, gateway)
            if link >= 0:
                directory.latency[link] = known.round_latency
                directory.measured[link] = True
        if not isnan(known.loss):
            directory.samples[device] = known.samples
            directory.loss[device] = known.loss
            directory.squared_loss[device] = known.squared_loss
        if known.has_basis:
            directory.has_basis[device] = True
        if directory.gradients is not None and known.gradient is not None:
            directory.gradients.offer(device, known.gradient, known.compressed, directory.projection)

    def knowledge(self, directory: Directory, device: int, gateway: int) -> m.DeviceKnowledge:
        link = self.links.find(device, gateway)
        table = directory.gradients
        gradient = None if table is None else table.gradient(device)
        return m.DeviceKnowledge(
            device,
            float(directory.latency[link]),
            bool(directory.measured[link]),
            int(directory.samples[device]),
            float(directory.loss[device]),
            float(directory.squared_loss[device]),
            gradient,
            gradient is not None and table is not None and table.compressed,
            bool(directory.has_basis[device]),
        )

    def problem(
        self, directory: Directory, members: list[Membership], memory: dict[str, object], number: int, epoch: int
    ) -> AssociationProblem:
        links, config = self.links, self.config
        usable = self._in_touch(self.usable(directory, members), members)
        kept = near_best(links.link_device, usable, directory.latency, config.link_stretch)
        latency = directory.latency[kept]
        return AssociationProblem(
            self._utility(directory),
            self.bandwidth(directory, len(members)),
            links.link_device[kept],
            links.link_gateway[kept],
            config.model_bytes / latency,
            latency,
            config.load_penalty,
            config.every_device,
            config.switching_cost,
            directory.gateway_of.copy(),
            scramble(config.seed ^ number),
            memory,
            directory.measured[kept],
            epoch,
        )

    def bandwidth(self, directory: Directory, gateways: int) -> Floats:
        """B_j of every gateway."""
        if directory.bandwidth > 0:
            return np.full(gateways, directory.bandwidth)
        known = self.config.bandwidth
        return np.full(gateways, known[0]) if len(known) == 1 else np.array(known)

    def usable(self, directory: Directory, members: list[Membership]) -> npt.NDArray[np.bool_]:
        """Links that work and lead to a live gateway."""
        live = np.array([member.live for member in members], bool)
        usable: npt.NDArray[np.bool_] = directory.usable & live[self.links.link_gateway]
        return usable

    def _in_touch(self, usable: npt.NDArray[np.bool_], members: list[Membership]) -> npt.NDArray[np.bool_]:
        """Leave out gateways that are away just now, where a device has another."""
        away = np.array([member.away for member in members], bool)
        if not away.any():
            return usable
        here = usable & ~away[self.links.link_gateway]
        has_other = np.zeros(self.links.devices, bool)
        has_other[self.links.link_device[here]] = True
        found: npt.NDArray[np.bool_] = usable & (here | ~has_other[self.links.link_device])
        return found

    def _utility(self, directory: Directory) -> Floats:
        """u_i over all devices; who has no gradient yet counts as the mean; phi needs a scale, so divide by it."""
        gradients = directory.gradients
        if gradients is None or gradients.count == 0:
            return np.ones(self.links.devices)
        utility = gradients.utility(np.arange(self.links.devices))
        utility[~gradients.known] = utility[gradients.known].mean()
        size = float(np.abs(utility).mean())
        if self.config.utility_scale == "mean" and size > 0:
            utility = utility / size
        return utility

    def apply(
        self, directory: Directory, members: list[Membership], association: Association
    ) -> tuple[list[tuple[int, int]], dict[int, m.Assignment]]:
        """Make it the association of a new version. Returns who moved, and what each gateway concerned is told."""
        new = association.gateway_of
        if len(new) < self.links.devices:  # somebody joined while it was being solved
            new = np.append(new, np.full(self.links.devices - len(new), -1, new.dtype))
        check_association(self.links, np.ones(len(self.links.link_device), bool), new)
        old = directory.gateway_of
        moved = np.flatnonzero(new != old)
        concerned = set(new[moved].tolist()) | set(old[moved].tolist())
        concerned.discard(-1)
        directory.gateway_of = new.astype(np.int64)
        directory.version += 1
        leases: dict[int, list[m.Lease]] = {gateway: [] for gateway in concerned}
        for device in np.flatnonzero((directory.holder < 0) & (new >= 0)):
            gateway = int(new[device])
            if members[gateway].live:
                leases.setdefault(gateway, []).append(self._grant(directory, int(device), gateway))
        order = np.argsort(new, kind="stable")
        edges = np.searchsorted(new[order], np.arange(len(members) + 1))
        messages = {}
        for gateway, given in sorted(leases.items()):
            if members[gateway].live:
                devices = tuple(order[edges[gateway] : edges[gateway + 1]].tolist())
                messages[gateway] = self._assignment(directory, members[gateway], gateway, devices, given)
        return [(int(device), int(new[device])) for device in moved], messages

    def full_assignment(self, directory: Directory, members: list[Membership], gateway: int) -> m.Assignment:
        """What a gateway that begins anew must know."""
        devices = tuple(np.flatnonzero(directory.gateway_of == gateway).tolist())
        given = [self._grant(directory, device, gateway) for device in devices if directory.holder[device] < 0]
        return self._assignment(directory, members[gateway], gateway, devices, given)

    def released(
        self, directory: Directory, members: list[Membership], lease: m.Lease, gateway: int
    ) -> m.LeaseGranted | None:
        """A right came back: pass it on to whom the device is associated with now."""
        device = lease.device
        if directory.holder[device] != gateway or directory.lease[device] != lease.number:
            return None  # void: the gateway had been declared lost meanwhile
        directory.holder[device] = -1
        owner = int(directory.gateway_of[device])
        if owner < 0 or not members[owner].live:
            return None
        given = self._grant(directory, device, owner)
        return m.LeaseGranted(members[owner].incarnation, given, self.knowledge(directory, device, owner))

    def warm_up(
        self, directory: Directory, gateway: int, devices: Iterable[int]
    ) -> tuple[tuple[m.Lease, ...], tuple[m.DeviceKnowledge, ...]]:
        leases = tuple(self._grant(directory, device, gateway) for device in devices)
        return leases, tuple(self.knowledge(directory, lease.device, gateway) for lease in leases)

    def observe(self, directory: Directory, gateway: int, report: m.Report) -> None:
        """Links lost and heard again, unless something newer is known of them."""
        for devices, works in ((report.lost, False), (report.heard, True)):
            for device in devices:
                link = self.links.find(device, gateway) if device < self.links.devices else -1
                if link >= 0 and report.number > directory.reported.get(link, 0):
                    directory.reported[link] = report.number
                    directory.usable[link] = works

    def joined(self, directory: Directory, gateway: int) -> None:
        """A new incarnation finds out by itself which of its links work. Where devices join by themselves they have to
        do so again, else a link works until it is found not to."""
        own = self.links.link_gateway == gateway
        directory.usable[own] = self.config.start_devices == 0
        directory.reported = {link: number for link, number in directory.reported.items() if not own[link]}

    def rights_of(self, directory: Directory, gateway: int) -> tuple[m.Lease, ...]:
        held = np.flatnonzero(directory.holder == gateway).tolist()
        return tuple(m.Lease(device, int(directory.lease[device]), directory.version) for device in held)

    def lose(self, directory: Directory, gateway: int) -> list[int]:
        """Take back the rights of a lost gateway."""
        held = np.flatnonzero(directory.holder == gateway)
        directory.holder[held] = -1
        directory.lease[held] += 1
        return [int(device) for device in held]

    def _grant(self, directory: Directory, device: int, gateway: int) -> m.Lease:
        directory.lease[device] += 1
        directory.holder[device] = gateway
        return m.Lease(device, int(directory.lease[device]), directory.version)

    def _assignment(
        self, directory: Directory, member: Membership, gateway: int, devices: tuple[int, ...], given: list[m.Lease]
    ) -> m.Assignment:
        knowledge = tuple(self.knowledge(directory, lease.device, gateway) for lease in given)
        return m.Assignment(member.incarnation, directory.version, devices, tuple(given), knowledge)
