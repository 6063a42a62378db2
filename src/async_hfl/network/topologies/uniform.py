"""`uniform`: a network of any size whose rates and compute times are drawn once from uniform distributions.

Each property has its own named random stream, so that another range of compute times, for example, leaves every link
as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Ints
from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import stream
from async_hfl.network.delays.rates import RatedLinks
from async_hfl.network.description import NetworkDescription
from async_hfl.network.topologies.rated_network import DEFAULT_WIRE, Wire, rated_network
from async_hfl.network.topologies.request import WIRE_SETTINGS, NetworkEntry, NetworkRequest

DEFAULT_LINKS_PER_DEVICE = 3


@dataclass(frozen=True, slots=True)
class UniformRanges:
    """Ranges of the uniform distributions, by default those of the authors' uniform mode."""

    min_rate: float = 50e3
    max_rate: float = 1e6
    """Bytes per second."""
    min_compute: float = 15.0
    max_compute: float = 100.0
    """Seconds of one local training."""

    def __post_init__(self) -> None:
        for name in ("min_rate", "max_rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SettingsError(f"uniform network: {name} = {value} is not a positive number of bytes per second")
        for name in ("min_compute", "max_compute"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SettingsError(f"uniform network: {name} = {value} is not a number of seconds, 0 or more")
        for low, high in (("min_rate", "max_rate"), ("min_compute", "max_compute")):
            if getattr(self, low) > getattr(self, high):
                raise SettingsError(
                    f"uniform network: {low} = {getattr(self, low)} is above {high} = {getattr(self, high)}"
                )


AUTHORS_RANGES = UniformRanges()


def uniform(
    devices: int,
    gateways: int,
    model_bytes: int,
    seed: int,
    links_per_device: int | None = None,
    ranges: UniformRanges = AUTHORS_RANGES,
    wire: Wire = DEFAULT_WIRE,
) -> NetworkDescription:
    """Build the network. Every device has `links_per_device` links (default: 3, or all gateways if fewer)."""
    if devices < 1 or gateways < 1:
        raise SettingsError(f"uniform network: {devices} devices and {gateways} gateways; at least one of each")
    each = min(gateways, DEFAULT_LINKS_PER_DEVICE) if links_per_device is None else links_per_device
    if not 1 <= each <= gateways:
        raise SettingsError(f"uniform network: {each} links per device with {gateways} gateways; 1..{gateways}")
    gateway = distinct_gateways(devices, gateways, each, stream(seed, "network", "links")).ravel()
    download, upload = (
        stream(seed, "network", way).uniform(ranges.min_rate, ranges.max_rate, len(gateway))
        for way in ("download", "upload")
    )
    compute = stream(seed, "network", "compute").uniform(ranges.min_compute, ranges.max_compute, devices)
    links = RatedLinks(np.repeat(np.arange(devices), each), gateway, download, upload)
    return rated_network("uniform", devices, gateways, links, compute, model_bytes, wire)


def distinct_gateways(devices: int, gateways: int, links: int, random: np.random.Generator) -> Ints:
    """Return a devices x links array of gateways, ascending and distinct within a row.

    The first ceil(G / N) links of a device (one, if there are at least as many devices as gateways) are dealt
    round-robin over a random order of the gateways: link s of device i is place (i + s N) mod G. A place never repeats
    within a device, and every place is dealt if N x links >= G. The remaining links are a uniform draw from the other
    gateways by Floyd's algorithm, vectorised over devices: O(links^2) comparisons per device, no devices x gateways
    array.
    """
    dealt = min(links, -(-gateways // devices))
    places = (np.arange(devices)[:, None] + np.arange(dealt) * devices) % gateways
    places.sort(axis=1)
    drawn = links - dealt
    others = gateways - dealt
    chosen = np.empty((devices, drawn), np.int64)
    for at in range(drawn):
        last = others - drawn + at
        pick = random.integers(0, last + 1, devices)
        taken = (chosen[:, :at] == pick[:, None]).any(axis=1)
        chosen[:, at] = np.where(taken, last, pick)
    for column in range(dealt):
        chosen += chosen >= places[:, column, None]  # renumber the drawn places so that the dealt ones are skipped
    order = random.permutation(gateways)
    rows: Ints = np.sort(order[np.concatenate((places, chosen), axis=1)], axis=1)
    return rows


_RANGES = ("min_rate", "max_rate", "min_compute", "max_compute")


def _build(request: NetworkRequest) -> NetworkDescription:
    links = request.settings["links_per_device"]
    return uniform(
        request.devices,
        request.gateways,
        request.model_bytes,
        request.seed,
        None if links == "auto" else links,
        UniformRanges(*(request.settings[name] for name in _RANGES)),
        request.wire,
    )


NETWORK = NetworkEntry(_build, reads=frozenset({"gateways", "links_per_device", *_RANGES}) | WIRE_SETTINGS)
