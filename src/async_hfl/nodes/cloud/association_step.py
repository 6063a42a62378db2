"""Re-association at the cloud: posing the association problem, and putting its solution into force.

The problem is posed every `association.period` cloud epochs, when a gateway is lost or joins, and soon after a device
loses its last link to its gateway. Solving is an effect; the solution arrives as an event.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import SetTimer, Solve, Write
from async_hfl.core.protocol.events import Solved
from async_hfl.core.protocol.records import AssociationRecord
from async_hfl.nodes.cloud import reference_latency, tier_draws
from async_hfl.nodes.cloud.association_table import apply_association, association_problem
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.cloud.state import NEVER

ASSOCIATION_TIMER = "association"


def solve(cloud: Cloud) -> None:
    """Pose the association problem; if one is being solved, pose a new one afterwards."""
    state = cloud.state
    state.solve_at = NEVER  # this problem includes the devices for which that time was set
    if state.solving:
        state.solve_again = True
        return
    state.solving = True
    state.solves += 1
    cloud.emit(Solve(state.solves, association_problem(cloud)))


def solve_soon(cloud: Cloud, at: float) -> None:
    """Pose the problem after `association_patience`, so that one solution serves several lost devices."""
    if cloud.state.solve_at == NEVER:
        cloud.state.solve_at = at + cloud.config.association_patience
        cloud.emit(SetTimer(ASSOCIATION_TIMER, cloud.state.solve_at))


def adopt(cloud: Cloud, event: Solved) -> None:
    """Put a solution into force: record it, inform the gateways, and send new gateways their first model."""
    state, association = cloud.state, event.association
    state.solving = False
    state.memory = dict(association.memory)
    moved, messages = apply_association(cloud, association)
    reference_latency.update(cloud)
    tier_draws.update(cloud)
    bound = association.bound if np.isfinite(association.bound) else None
    version = state.association.version
    cloud.emit(Write(AssociationRecord(event.at, version, association.objective, bound, tuple(moved))))
    for gateway, message in messages.items():
        cloud.send(gateway, message)
    for gateway, member in enumerate(state.members):
        if member.live and not member.begun:
            member.begun = True
            cloud.send_model(gateway, first=True)


def needed_after(cloud: Cloud, gateway: int, report: m.Report) -> bool:
    """True if a report leaves a device without a working gateway, or a gateway without devices."""
    return any(_is_stranded(cloud, device) for device in (*report.lost, *report.heard)) or (
        bool(report.heard) and _has_no_devices(cloud, gateway)
    )


def _is_stranded(cloud: Cloud, device: int) -> bool:
    """True if a device has no working link to its own gateway and has one to another."""
    state, links = cloud.state, cloud.links
    row = links.of(device)
    live = np.array([state.members[int(gateway)].live for gateway in links.link_gateway[row]])
    working = state.association.usable[row] & live
    own = links.link_gateway[row] == state.association.gateway_of[device]
    return bool(working.any() and not (working & own).any())


def _has_no_devices(cloud: Cloud, gateway: int) -> bool:
    """True if a gateway has no devices, or may have none after the solution in progress; only if devices join at run
    time.

    A gateway that returns without its disk has no sessions when it joins, so the solution made then gives it no
    devices."""
    has_some = (cloud.state.association.gateway_of == gateway).any()
    return cloud.config.membership.start_devices > 0 and (cloud.state.solving or not has_some)
