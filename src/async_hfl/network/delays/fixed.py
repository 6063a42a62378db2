"""Delays given as times, not as rates: a model takes as long as the table says, whatever its bytes.

The authors' matrix was simulated for one model of 600 kB and is used for every task, so its times do not scale.
Small messages would be absurd at 18.72 s each: whatever is under `CONTROL_BYTES` takes a short constant instead.
Size is all the model sees, so a control message that large (a long list of devices) takes as long as a model, and a
model smaller than that travels like a control message: no task of the paper has one.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import final

from async_hfl.core.serialization import Plain
from async_hfl.network.link_lookup import LinkLookup

CONTROL_BYTES = 4096
"""A message smaller than this is taken to carry no model."""
CONTROL_LINK_SECONDS = 0.1
"""A control message over a device link: 1 kB at the slowest of the authors' uplinks, 80 kb/s."""
CONTROL_BACKHAUL_SECONDS = 0.05
"""A control message between gateway and cloud: a wide-area round trip or so."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class FixedDelays:
    """Constant for a whole run; a DelayModel."""

    links: LinkLookup
    download_seconds: float
    upload_seconds: array[float]
    """Per link."""
    compute_seconds: array[float]
    """Per device."""
    backhaul_seconds: array[float]
    """Per gateway, each way."""

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        self.links.find(device, gateway)
        return CONTROL_LINK_SECONDS if size_bytes < CONTROL_BYTES else self.download_seconds

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        link = self.links.find(device, gateway)
        return CONTROL_LINK_SECONDS if size_bytes < CONTROL_BYTES else self.upload_seconds[link]

    def compute(self, device: int) -> float:
        return self.compute_seconds[device]

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        return CONTROL_BACKHAUL_SECONDS if size_bytes < CONTROL_BYTES else self.backhaul_seconds[gateway]

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        return CONTROL_BACKHAUL_SECONDS if size_bytes < CONTROL_BYTES else self.backhaul_seconds[gateway]

    def snapshot(self) -> Plain:
        return None

    def restore(self, data: Plain) -> None:
        """Nothing changes."""
