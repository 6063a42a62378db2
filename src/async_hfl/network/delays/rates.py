"""Delays from rates: a transfer takes the latency of the link plus its bytes over the rate of that direction."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import final

from async_hfl.core.serialization import Plain
from async_hfl.network.link_lookup import LinkLookup


@final
@dataclass(frozen=True, slots=True, eq=False)
class RateDelays:
    """Constant rates, bytes per second; a DelayModel."""

    links: LinkLookup
    download_rate: array[float]
    """Per link, gateway to device."""
    upload_rate: array[float]
    """Per link, device to gateway."""
    link_latency: float
    compute_seconds: array[float]
    """Per device."""
    backhaul_rate: array[float]
    """Per gateway, each way."""
    backhaul_latency: float

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        return self.link_latency + size_bytes / self.download_rate[self.links.find(device, gateway)]

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        return self.link_latency + size_bytes / self.upload_rate[self.links.find(device, gateway)]

    def compute(self, device: int) -> float:
        return self.compute_seconds[device]

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        return self.backhaul_latency + size_bytes / self.backhaul_rate[gateway]

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        return self.backhaul_latency + size_bytes / self.backhaul_rate[gateway]

    def snapshot(self) -> Plain:
        return None

    def restore(self, data: Plain) -> None:
        """Nothing changes."""
