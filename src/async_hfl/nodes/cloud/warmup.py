"""Warm-up: every reachable device trains once from the initial model, through its nearest gateway.

It ends when a quorum of the devices, not counting those that timed out, has answered and the minimum time has passed;
when no answer is outstanding; or at the time limit if at least one device has answered. Knowledge from later answers is
still used.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.maths.projection import fit_pca
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import SetTimer, Write
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.topology import nearest_gateway
from async_hfl.nodes.cloud.association_table import grant_leases
from async_hfl.nodes.cloud.context import Cloud

TIMERS = ("warmup_patience", "warmup_limit")


def begin(cloud: Cloud, at: float) -> None:
    state, config, warmup = cloud.state, cloud.config, cloud.state.warmup
    nearest = nearest_gateway(cloud.links, cloud.usable_links(), state.association.latency)
    warmup.started_at = at
    warmup.outstanding = set(np.flatnonzero(nearest >= 0).tolist())
    warmup.total = len(warmup.outstanding)
    for gateway, member in enumerate(state.members):
        devices = np.flatnonzero(nearest == gateway).tolist()
        if devices:
            leases, knowledge = grant_leases(cloud, gateway, devices)
            cloud.send(gateway, m.WarmUp(member.incarnation, cloud.encoded_model(), leases, knowledge))
    if config.warmup_patience > 0:
        cloud.emit(SetTimer("warmup_patience", at + config.warmup_patience))
    cloud.emit(SetTimer("warmup_limit", at + config.warmup_limit))


def count(cloud: Cloud, devices: list[int], *, answered: bool) -> None:
    """Count devices that have answered, or that are not expected to."""
    warmup = cloud.state.warmup
    for device in devices:
        if device in warmup.outstanding:
            warmup.outstanding.discard(device)
            if answered:
                warmup.answered += 1
            else:
                warmup.given_up += 1


def is_over(cloud: Cloud, at: float) -> bool:
    config, warmup = cloud.config, cloud.state.warmup
    waited = at - warmup.started_at
    quorum = warmup.answered > 0 and warmup.answered >= config.warmup_quorum * (warmup.total - warmup.given_up)
    return (
        (quorum and waited >= config.warmup_patience)
        or not warmup.outstanding
        or (warmup.answered > 0 and waited >= config.warmup_limit)
    )


def fit_basis(cloud: Cloud) -> None:
    """Fit the basis on which gradients are projected (compression = pca) to the warm-up gradients."""
    association, gradients = cloud.state.association, cloud.state.association.gradients
    if cloud.config.components == 0 or gradients is None:
        return
    slots = np.flatnonzero(gradients.known)
    if len(slots):
        association.projection = fit_pca(gradients.gradients(slots), cloud.config.components)
        gradients.compress(association.projection.size, association.projection)


def record_end(cloud: Cloud, at: float) -> None:
    warmup, bandwidth = cloud.state.warmup, cloud.state.association.bandwidth
    detail = f"{warmup.answered} of {warmup.total} answered, {warmup.given_up} given up"
    if bandwidth > 0:
        detail += f"; B_j = {bandwidth:.6g} bytes/s"
    cloud.emit(Write(LifecycleRecord(at, "warmup_ended", "cloud", detail)))
