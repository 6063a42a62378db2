"""`random-geometric`: devices and gateways anywhere in a square, at any scale, with links by radio.

The square is as large as its gateways need at a given mean distance from one to the next, so that a network of a
thousand gateways is like one of ten, only larger. A device that reaches nobody is placed anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import stream
from async_hfl.network.description import NetworkDescription
from async_hfl.network.positions import Positions
from async_hfl.network.radio.links import Air, LinkRules, RadioLinks, best_links
from async_hfl.network.radio.places import Places
from async_hfl.network.topologies.rated_network import USUAL_WIRE, RatedLinks, Wire, rated_network

MOST_DRAWS = 50


@dataclass(frozen=True, slots=True)
class Square:
    """How it is filled; metres."""

    spacing: float = 500.0
    """From gateway to gateway, on average: a gateway for every spacing x spacing."""
    lowest_gateway: float = 20.0
    highest_gateway: float = 60.0
    lowest_device: float = 3.0
    highest_device: float = 30.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.spacing) and self.spacing > 0):
            raise SettingsError(f"random-geometric: a spacing of {self.spacing} m; it must be above 0")
        for who in ("gateway", "device"):
            low, high = getattr(self, f"lowest_{who}"), getattr(self, f"highest_{who}")
            if not 0 < low <= high < math.inf:
                raise SettingsError(f"random-geometric: {who}s at heights of {low} to {high} m; above 0, in this order")


def random_geometric(
    devices: int,
    gateways: int,
    model_bytes: int,
    seed: int,
    air: Air,
    compute: Callable[[int], Floats],
    square: Square | None = None,
    rules: LinkRules | None = None,
    wire: Wire = USUAL_WIRE,
) -> NetworkDescription:
    """`compute` gives so many devices' seconds of one local training."""
    if devices < 1 or gateways < 1:
        raise SettingsError(f"random-geometric: {devices} devices and {gateways} gateways; at least one of each")
    square, rules = square or Square(), rules or LinkRules()
    side = square.spacing * math.sqrt(gateways)
    random = stream(seed, "network", "gateways")
    hubs = Places(
        random.uniform(0, side, gateways),
        random.uniform(0, side, gateways),
        random.uniform(square.lowest_gateway, square.highest_gateway, gateways),
        np.arange(gateways),
    )
    there, linked, moved = _settle(devices, side, square, hubs, air, rules, seed)
    links = RatedLinks(linked.device, linked.gateway, linked.download_rate, linked.upload_rate)
    positions = Positions(
        there.x,
        there.y,
        hubs.x,
        hubs.y,
        estimated=False,
        device_height=there.height,
        gateway_height=hubs.height,
    )
    notes = [f"places drawn in a square of {side / 1000:.1f} km, a gateway every {square.spacing:.0f} m on average"]
    if moved:
        notes.append(f"{moved:,} place{'s' if moved > 1 else ''} without a link drawn anew")
    return rated_network(
        "random-geometric",
        devices,
        gateways,
        links,
        compute(devices),
        model_bytes,
        wire,
        positions,
        tuple(notes),
    )


def _settle(
    devices: int, side: float, square: Square, hubs: Places, air: Air, rules: LinkRules, seed: int
) -> tuple[Places, RadioLinks, int]:
    """Places with a link each, their links, and how many places had to be drawn anew."""
    x, y, height = np.empty(devices), np.empty(devices), np.empty(devices)
    waiting = np.arange(devices)
    parts: list[RadioLinks] = []
    moved = 0
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
        settled = np.unique(linked.device)
        at = waiting[settled]
        x[at], y[at], height[at] = tried.x[settled], tried.y[settled], tried.height[settled]
        parts.append(
            RadioLinks(waiting[linked.device], linked.gateway, linked.loss_db, linked.download_rate, linked.upload_rate)
        )
        waiting = np.delete(waiting, settled)
        moved += len(waiting)
        if not len(waiting):
            break
    else:
        raise SettingsError(
            f"random-geometric: {len(waiting)} of {devices} devices found no place with a link in {MOST_DRAWS} draws; "
            f"put gateways closer together (network.spacing is {square.spacing:g} m) or ask for lower rates "
            "(network.least_rate)"
        )
    joined = RadioLinks(
        np.concatenate([part.device for part in parts]),
        np.concatenate([part.gateway for part in parts]),
        np.concatenate([part.loss_db for part in parts]),
        np.concatenate([part.download_rate for part in parts]),
        np.concatenate([part.upload_rate for part in parts]),
    )
    return Places(x, y, height, np.arange(devices)), joined, moved
