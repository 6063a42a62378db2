"""A delay model with noise: every transfer and every training is multiplied by a random factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from async_hfl.core.serialization import Plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.delays.noise import TRANSFER_SIGMA, NoiseFactors
from async_hfl.network.description import DelayModel
from async_hfl.network.link_lookup import LinkLookup


@dataclass(frozen=True, slots=True)
class NoiseSpread:
    """Sigma of the log-normal factors, whose mean is 1."""

    link: float = TRANSFER_SIGMA
    compute: float = 0.0
    backhaul: float = 0.0


@final
@dataclass(frozen=True, slots=True, eq=False)
class NoisyDelays:
    """A DelayModel that wraps another one. Each link has one random stream per direction, as have devices and
    backhauls."""

    delays: DelayModel
    links: LinkLookup
    download: NoiseFactors
    upload: NoiseFactors
    training: NoiseFactors
    backhaul: NoiseFactors
    """Sources 2 g and 2 g + 1 are gateway g to the cloud and back."""

    @classmethod
    def around(cls, delays: DelayModel, links: FeasibleLinks, spread: NoiseSpread, seed: int) -> NoisyDelays:
        count = len(links.link_device)
        return cls(
            delays,
            LinkLookup.of(links),
            NoiseFactors(seed, "download", count, spread.link),
            NoiseFactors(seed, "upload", count, spread.link),
            NoiseFactors(seed, "compute", links.devices, spread.compute),
            NoiseFactors(seed, "backhaul", 2 * links.gateways, spread.backhaul),
        )

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        factor = self.download.next(self.links.find(device, gateway))
        return factor * self.delays.to_device(gateway, device, size_bytes)

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        factor = self.upload.next(self.links.find(device, gateway))
        return factor * self.delays.to_gateway(device, gateway, size_bytes)

    def compute(self, device: int) -> float:
        return self.training.next(device) * self.delays.compute(device)

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        return self.backhaul.next(2 * gateway) * self.delays.gateway_to_cloud(gateway, size_bytes)

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        return self.backhaul.next(2 * gateway + 1) * self.delays.cloud_to_gateway(gateway, size_bytes)

    def snapshot(self) -> Plain:
        return [part.snapshot() for part in self._parts()]

    def restore(self, data: Plain) -> None:
        for part, saved in zip(self._parts(), data, strict=True):
            part.restore(saved)

    def _parts(self) -> tuple[DelayModel | NoiseFactors, ...]:
        return (self.delays, self.download, self.upload, self.training, self.backhaul)
