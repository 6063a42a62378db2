"""The bandwidth B_j that a network demands.

The demand is the load when all devices are in flight at once, each on its link of least expected latency, which is the
link that warm-up uses and that an unconstrained association would choose. A device loads its gateway with R_ij = M /
tau_ij. The mean is taken over the gateways that some link reaches, as in the association.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import SettingsError
from async_hfl.core.topology import FeasibleLinks, nearest_load

TIGHT = 0.5
"""The share of the `tight` preset: on average a gateway can carry half of its load."""


def gateway_load(links: FeasibleLinks, model_bytes: int) -> Floats:
    """Return the bytes per second at each gateway with every device in flight."""
    if model_bytes < 1:
        raise SettingsError(f"bandwidth: a model of {model_bytes} bytes; at least one")
    return nearest_load(links, np.ones(len(links.link_device), np.bool_), links.expected_latency, model_bytes)


def demand(links: FeasibleLinks, model_bytes: int) -> float:
    """Return the mean load in bytes per second of the gateways that some link reaches."""
    reached = np.bincount(links.link_gateway, minlength=links.gateways) > 0
    return float(gateway_load(links, model_bytes)[reached].mean())


def smallest_rates(links: FeasibleLinks, model_bytes: int) -> Floats:
    """Return the least R_ij of each device that has a link, in bytes per second: its rate on its slowest link."""
    slowest = np.zeros(links.devices)
    np.maximum.at(slowest, links.link_device, links.expected_latency)
    rates: Floats = model_bytes / slowest[slowest > 0]
    return rates
