"""Delays given as times instead of rates: a model takes as long as the table says, whatever its size.

The authors' matrix was simulated for a model of 600 kB and is used for every task, so its times do not scale. 18.72 s
would be absurd for a small message: anything below `CONTROL_BYTES` takes a short constant time instead. Only the size
is looked at. A control message above the limit (a long list of devices) takes as long as a model, and a model below it
travels like a control message; no task of the paper has such a model.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import final

from async_hfl.core.serialization import Plain
from async_hfl.network.link_lookup import LinkLookup

CONTROL_BYTES = 4096
"""A smaller message is assumed to carry no model."""
CONTROL_LINK_SECONDS = 0.1
"""Seconds of a control message over a device link: 1 kB at 80 kb/s, the slowest of the authors' uplinks."""
CONTROL_BACKHAUL_SECONDS = 0.05
"""Seconds of a control message between gateway and cloud: about one wide-area round trip."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class FixedDelays:
    """A DelayModel whose delays are constant for a whole run."""

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
        """Do nothing: the model has no state."""
