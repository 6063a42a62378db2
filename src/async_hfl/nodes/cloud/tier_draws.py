"""The tiers of devices that the cloud draws and tells the gateways, if their selection policy uses them (TiFL)."""

from __future__ import annotations

import math

from async_hfl.core.maths import latency_tiers
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.cloud.reference_latency import links_in_use


def update(cloud: Cloud) -> None:
    """Draw for the current cloud epoch, once: all gateways are told the same. While no device is associated, the last
    draws stay.

    T_max, beyond which a device is excluded, is the deadline of a round."""
    state, config = cloud.state, cloud.config
    if config.tier_rounds == 0 or state.tiers.epoch == state.epoch:
        return
    state.tiers.epoch = state.epoch
    used = links_in_use(cloud)
    if used.any():
        table, longest = state.association, config.tier_deadline or state.reference_latency or math.inf
        loss = table.loss[cloud.links.link_device[used]]
        latency_tiers.draw(
            state.tiers, table.latency[used], loss, longest, config.tier_rounds, state.epoch, config.seed
        )
