"""Networks given by the rates of their links and the compute times of their devices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError, SettingsError
from async_hfl.core.topology import feasible_links
from async_hfl.network.delays.rates import RateDelays, RatedLinks
from async_hfl.network.description import NetworkDescription
from async_hfl.network.link_lookup import LinkLookup, compact
from async_hfl.network.positions import Positions


@dataclass(frozen=True, slots=True)
class Wire:
    """Latency of a device link, and latency and rate of the backhaul between a gateway and the cloud."""

    link_latency: float = 0.02
    backhaul_rate: float = 12.5e6
    """Bytes per second: 100 Mb/s, the wire between gateways and server in the authors' ns-3 network."""
    backhaul_latency: float = 0.02

    def __post_init__(self) -> None:
        if not (math.isfinite(self.backhaul_rate) and self.backhaul_rate > 0):
            raise SettingsError(f"backhaul_rate = {self.backhaul_rate} is not a positive number of bytes per second")
        for name in ("link_latency", "backhaul_latency"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SettingsError(f"{name} = {value} is not a number of seconds, 0 or more")


DEFAULT_WIRE = Wire()


def rated_network(
    name: str,
    devices: int,
    gateways: int,
    links: RatedLinks,
    compute: Floats,
    model_bytes: int,
    wire: Wire = DEFAULT_WIRE,
    positions: Positions | None = None,
    notes: tuple[str, ...] = (),
    credit: str = "",
) -> NetworkDescription:
    """Build a network from rates. `model_bytes` decides the expected latencies: a larger model takes longer."""
    if model_bytes < 1:
        raise SettingsError(f"network {name}: a model of {model_bytes} bytes; at least one")
    if len(links.device) == 0:
        raise DataError(f"network {name}: no device has a link to any gateway")
    order = np.lexsort((links.gateway, links.device))
    device, gateway = links.device[order], links.gateway[order]
    download, upload = links.download_rate[order], links.upload_rate[order]
    for rates in (download, upload):
        wrong = np.flatnonzero(~(np.isfinite(rates) & (rates > 0)))
        if len(wrong):
            link = f"device {device[wrong[0]]} and gateway {gateway[wrong[0]]}"
            raise DataError(f"network {name}, {link}: {rates[wrong[0]]} is not a rate in bytes per second")
    # Summed in the order in which a round happens, so that the expected and the measured latency agree to the bit.
    there = wire.link_latency + model_bytes / download
    back = wire.link_latency + model_bytes / upload
    feasible = feasible_links(devices, gateways, device, gateway, there + compute[device] + back)
    delays = RateDelays(
        LinkLookup.of(feasible),
        compact(download),
        compact(upload),
        wire.link_latency,
        compact(compute),
        compact(np.full(gateways, wire.backhaul_rate)),
        wire.backhaul_latency,
    )
    return NetworkDescription(name, feasible, compute, delays, positions, notes, credit=credit)
