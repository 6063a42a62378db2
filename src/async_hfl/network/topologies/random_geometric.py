"""`random-geometric`: devices and gateways at random places in a square, at any scale, with links by radio.

The area of the square is proportional to the number of gateways, so that their mean distance stays the same: a network
of a thousand gateways is like one of ten, only larger. A device that reaches no gateway is placed again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import stream
from async_hfl.network.delays.rates import RatedLinks
from async_hfl.network.description import NetworkDescription
from async_hfl.network.positions import Positions
from async_hfl.network.radio.air import Air
from async_hfl.network.radio.links import LinkRules, best_links
from async_hfl.network.radio.places import Places
from async_hfl.network.topologies.rated_network import rated_network
from async_hfl.network.topologies.request import RADIO_SETTINGS, NetworkEntry, NetworkRequest

MOST_DRAWS = 50


@dataclass(frozen=True, slots=True)
class Square:
    """Spacing of the gateways and heights of the antennas, in metres."""

    spacing: float = 500.0
    """Mean distance between gateways: there is one gateway for every spacing x spacing."""
    lowest_gateway: float = 20.0
    highest_gateway: float = 60.0
    lowest_device: float = 3.0
    highest_device: float = 30.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.spacing) and self.spacing > 0):
            raise SettingsError(f"random-geometric: a spacing of {self.spacing} m; it must be above 0")
        for tier in ("gateway", "device"):
            low, high = getattr(self, f"lowest_{tier}"), getattr(self, f"highest_{tier}")
            if not 0 < low <= high < math.inf:
                raise SettingsError(f"random-geometric: {tier}s at heights of {low} to {high} m; give 0 < low <= high")


def random_geometric(request: NetworkRequest) -> NetworkDescription:
    devices, gateways, seed = request.devices, request.gateways, request.seed
    if devices < 1 or gateways < 1:
        raise SettingsError(f"random-geometric: {devices} devices and {gateways} gateways; at least one of each")
    square = Square(spacing=request.settings["spacing"])
    side = square.spacing * math.sqrt(gateways)
    random = stream(seed, "network", "gateways")
    hubs = Places(
        random.uniform(0, side, gateways),
        random.uniform(0, side, gateways),
        random.uniform(square.lowest_gateway, square.highest_gateway, gateways),
        np.arange(gateways),
    )
    there, links, redrawn = _place_devices(devices, side, square, hubs, request.make_air(), request.link_rules, seed)
    positions = Positions(
        there.x, there.y, hubs.x, hubs.y, estimated=False, device_height=there.height, gateway_height=hubs.height
    )
    notes = [f"places drawn in a square of {side / 1000:.1f} km, a gateway every {square.spacing:.0f} m on average"]
    if redrawn:
        notes.append(f"{redrawn:,} place{'s' if redrawn > 1 else ''} without a link drawn again")
    name, compute, size = "random-geometric", request.compute(devices), request.model_bytes
    return rated_network(name, devices, gateways, links, compute, size, request.wire, positions, tuple(notes))


def _place_devices(
    devices: int, side: float, square: Square, hubs: Places, air: Air, rules: LinkRules, seed: int
) -> tuple[Places, RatedLinks, int]:
    """Return places that each have a link, their links, and the number of places that were drawn again."""
    x, y, height = np.empty(devices), np.empty(devices), np.empty(devices)
    waiting = np.arange(devices)
    parts: list[RatedLinks] = []
    redrawn = 0
    for draw in range(MOST_DRAWS):
        random = stream(seed, "network", "devices", draw)
        count = len(waiting)
        tried = Places(
            random.uniform(0, side, count),
            random.uniform(0, side, count),
            random.uniform(square.lowest_device, square.highest_device, count),
            waiting,
        )
        linked = best_links(tried, hubs, air, rules, seed)
        placed = np.unique(linked.device)
        at = waiting[placed]
        x[at], y[at], height[at] = tried.x[placed], tried.y[placed], tried.height[placed]
        parts.append(replace(linked, device=waiting[linked.device]))
        waiting = np.delete(waiting, placed)
        redrawn += len(waiting)
        if not len(waiting):
            break
    else:
        raise SettingsError(
            f"random-geometric: {len(waiting)} of {devices} devices found no place with a link in {MOST_DRAWS} draws; "
            f"put gateways closer together (network.spacing is {square.spacing:g} m) or ask for lower rates "
            "(network.least_rate)"
        )
    return Places(x, y, height, np.arange(devices)), RatedLinks.concatenate(parts), redrawn


NETWORK = NetworkEntry(random_geometric, frozenset({"gateways", "spacing"}) | RADIO_SETTINGS, by_radio=True)
