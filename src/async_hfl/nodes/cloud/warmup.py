"""Warm-up: every reachable device trains once from the initial model, through its nearest gateway.

It ends when a quorum of the devices not given up has answered and the patience has passed, when none is outstanding, or
at the limit with at least one answer. Later answers still count as knowledge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core.maths.projection import fit_pca
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import SetTimer, Write
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.topology import nearest_gateway
from async_hfl.nodes.cloud import membership as joining

if TYPE_CHECKING:
    from async_hfl.nodes.cloud.node import CloudNode


def begin(node: CloudNode, at: float) -> None:
    state, config, registry = node.state, node.config, node.registry
    state.phase = "warmup"
    usable = registry.usable(state.directory, state.members)
    nearest = nearest_gateway(registry.links, usable, state.directory.latency)
    warmup = state.warmup
    warmup.started_at = at
    warmup.outstanding = set(np.flatnonzero(nearest >= 0).tolist())
    warmup.total = len(warmup.outstanding)
    for gateway, member in enumerate(state.members):
        devices = np.flatnonzero(nearest == gateway).tolist()
        if devices:
            leases, knowledge = registry.warm_up(state.directory, gateway, devices)
            node.send(gateway, m.WarmUp(member.incarnation, state.weights, leases, knowledge))
    if config.warmup_patience > 0:
        node.emit(SetTimer("warmup_patience", at + config.warmup_patience))
    node.emit(SetTimer("warmup_limit", at + config.warmup_limit))


def counted(node: CloudNode, devices: list[int], at: float, *, answered: bool) -> None:
    """These answered, or will not answer."""
    warmup = node.state.warmup
    for device in devices:
        if device in warmup.outstanding:
            warmup.outstanding.discard(device)
            if answered:
                warmup.answered += 1
            else:
                warmup.given_up += 1
    end_if_due(node, at)


def end_if_due(node: CloudNode, at: float) -> None:
    state, config, warmup = node.state, node.config, node.state.warmup
    if state.phase != "warmup":
        return
    waited = at - warmup.started_at
    quorum = warmup.answered > 0 and warmup.answered >= config.warmup_quorum * (warmup.total - warmup.given_up)
    if (
        (quorum and waited >= config.warmup_patience)
        or not warmup.outstanding
        or (warmup.answered > 0 and waited >= config.warmup_limit)
    ):
        state.phase = "running"
        _fit_basis(node)
        joining.fix_bandwidth(node)
        detail = f"{warmup.answered} of {warmup.total} answered, {warmup.given_up} given up"
        if state.directory.bandwidth > 0:
            detail += f"; B_j = {state.directory.bandwidth:.6g} bytes/s"
        node.emit(Write(LifecycleRecord(at, "warmup_ended", "cloud", detail)))
        node.solve()


def _fit_basis(node: CloudNode) -> None:
    """compression = pca: the gradients that warm-up brought decide what later ones are projected on; not refitted."""
    directory, table = node.state.directory, node.state.directory.gradients
    if node.config.components == 0 or table is None:
        return
    slots = np.flatnonzero(table.known)
    if len(slots):
        directory.projection = fit_pca(table.gradients(slots), node.config.components)
        table.compress(directory.projection.size, directory.projection)
