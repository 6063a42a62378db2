"""How much bandwidth B_j a network asks for, and limits stated as a share of that.

Demand is the load of all devices in flight at once, each on its link of least expected latency: that is where warm-up
sends them and where an unhindered association would. A device loads its gateway with R_ij = M / tau_ij.
The mean is over the gateways that any link reaches; one that nobody can reach takes no part (as in the association).
"""

from __future__ import annotations

import math

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import SettingsError
from async_hfl.core.topology import FeasibleLinks, nearest_load

TIGHT = 0.5
"""The share of the `tight` preset: on average a gateway has room for half of its load."""


def gateway_load(links: FeasibleLinks, model_bytes: int) -> Floats:
    """Bytes per second at each gateway with every device in flight."""
    if model_bytes < 1:
        raise SettingsError(f"bandwidth: a model of {model_bytes} bytes; at least one")
    return nearest_load(links, np.ones(len(links.link_device), np.bool_), links.expected_latency, model_bytes)


def demand(links: FeasibleLinks, model_bytes: int) -> float:
    """Mean load of the gateways that any link reaches, bytes per second."""
    reached = np.bincount(links.link_gateway, minlength=links.gateways) > 0
    return float(gateway_load(links, model_bytes)[reached].mean())


def share_of_demand(links: FeasibleLinks, model_bytes: int, share: float) -> float:
    """B_j, the same for every gateway, bytes per second."""
    if not (math.isfinite(share) and share > 0):
        raise SettingsError(f"bandwidth: {share} is not a share of the demand; a positive number, e.g. {TIGHT}")
    return share * demand(links, model_bytes)
