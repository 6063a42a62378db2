"""Delays from rates: a transfer takes the latency of the link plus its bytes divided by the rate of that direction."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.serialization import Plain
from async_hfl.network.link_lookup import LinkLookup


@final
@dataclass(frozen=True, slots=True, eq=False)
class RatedLinks:
    """Device links with the rates of both directions, one column per property."""

    device: Ints
    gateway: Ints
    download_rate: Floats
    """Bytes per second from the gateway to the device."""
    upload_rate: Floats
    """Bytes per second from the device to the gateway."""

    def __len__(self) -> int:
        return len(self.device)

    @classmethod
    def concatenate(cls, parts: Sequence[RatedLinks]) -> RatedLinks:
        columns = ("device", "gateway", "download_rate", "upload_rate")
        return cls(*(np.concatenate([getattr(part, column) for part in parts]) for column in columns))


@final
@dataclass(frozen=True, slots=True, eq=False)
class RateDelays:
    """A DelayModel of constant rates, in bytes per second."""

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
        """Do nothing: the model has no state."""
