"""The reference latency: a quantile of the round latencies of all devices, which the cloud tells every gateway.

Gateways derive times from it that have to be the same in the whole network, such as the length of a period. A quantile
of one gateway's own devices would not do: the cloud waits for the slowest gateway, and one slow device among five would
decide about its time.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Bools
from async_hfl.nodes.cloud.context import Cloud


def update(cloud: Cloud) -> None:
    """Compute it anew from the latencies of the links in use, measured or expected."""
    state, quantile = cloud.state, cloud.config.reference_quantile
    if quantile > 0.0:
        used = links_in_use(cloud)
        if used.any():
            latency = state.association.latency[used]
            state.reference_latency = float(np.quantile(latency, quantile, method="inverted_cdf"))


def links_in_use(cloud: Cloud) -> Bools:
    """Return a mask of the usable links between devices and the gateways that they are associated with."""
    links = cloud.links
    associated: Bools = cloud.state.association.gateway_of[links.link_device] == links.link_gateway
    return cloud.usable_links() & associated
