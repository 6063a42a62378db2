"""`uniform`: a network of any size whose rates and compute times are drawn once from uniform distributions.

Each property has its own named stream, so that e.g. another range of compute times leaves every link as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import stream
from async_hfl.core.topology import feasible_links
from async_hfl.network.delays.rates import RateDelays
from async_hfl.network.description import NetworkDescription
from async_hfl.network.link_lookup import LinkLookup, compact
from async_hfl.network.topologies.distinct_choices import distinct_gateways

USUAL_LINKS_PER_DEVICE = 3


@dataclass(frozen=True, slots=True)
class UniformRanges:
    """What is drawn from where. Bytes per second, seconds. Rates and compute times as in the authors' uniform mode."""

    min_rate: float = 50e3
    max_rate: float = 1e6
    min_compute: float = 15.0
    max_compute: float = 100.0
    link_latency: float = 0.02
    backhaul_rate: float = 12.5e6
    """100 Mb/s, the wire between gateways and server in the authors' ns-3 network."""
    backhaul_latency: float = 0.02

    def __post_init__(self) -> None:
        for name in ("min_rate", "max_rate", "backhaul_rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SettingsError(f"uniform network: {name} = {value} is not a positive number of bytes per second")
        for name in ("min_compute", "max_compute", "link_latency", "backhaul_latency"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SettingsError(f"uniform network: {name} = {value} is not a number of seconds, 0 or more")
        for low, high in (("min_rate", "max_rate"), ("min_compute", "max_compute")):
            if getattr(self, low) > getattr(self, high):
                raise SettingsError(
                    f"uniform network: {low} = {getattr(self, low)} is above {high} = {getattr(self, high)}"
                )


AS_THE_AUTHORS = UniformRanges()


def uniform(
    devices: int,
    gateways: int,
    model_bytes: int,
    seed: int,
    links_per_device: int | None = None,
    ranges: UniformRanges = AS_THE_AUTHORS,
) -> NetworkDescription:
    """Every device has `links_per_device` links (3, or all gateways if fewer); `model_bytes` sets the latency prior."""
    if devices < 1 or gateways < 1:
        raise SettingsError(f"uniform network: {devices} devices and {gateways} gateways; at least one of each")
    if model_bytes < 1:
        raise SettingsError(f"uniform network: a model of {model_bytes} bytes; at least one")
    each = min(gateways, USUAL_LINKS_PER_DEVICE) if links_per_device is None else links_per_device
    if not 1 <= each <= gateways:
        raise SettingsError(f"uniform network: {each} links per device with {gateways} gateways; 1..{gateways}")

    gateway = distinct_gateways(devices, gateways, each, stream(seed, "network", "links")).ravel()
    device = np.repeat(np.arange(devices), each)
    low, high = ranges.min_rate, ranges.max_rate
    download = stream(seed, "network", "download").uniform(low, high, len(gateway))
    upload = stream(seed, "network", "upload").uniform(low, high, len(gateway))
    compute = stream(seed, "network", "compute").uniform(ranges.min_compute, ranges.max_compute, devices)

    # Added up in the order in which a round happens, so that prior and measurement agree to the bit.
    there = ranges.link_latency + model_bytes / download
    back = ranges.link_latency + model_bytes / upload
    links = feasible_links(devices, gateways, device, gateway, there + compute[device] + back)
    delays = RateDelays(
        LinkLookup.of(links),
        compact(download),
        compact(upload),
        ranges.link_latency,
        compact(compute),
        compact(np.full(gateways, ranges.backhaul_rate)),
        ranges.backhaul_latency,
    )
    return NetworkDescription("uniform", links, compute, delays)
