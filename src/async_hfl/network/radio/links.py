"""Links by radio: the best few links of every device, from places, path loss and goodput.

Only the nearest `candidates` gateways of a device are considered (all of them in a small network), since the loss grows
with distance. The default is large enough to include a taller gateway further away, or one with favourable shadowing.
Of the gateways whose rates reach `least_rate` in both directions, the `links` with the shortest time for a model there
and back are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import keyed_uniform, stream_seed
from async_hfl.network.delays.rates import RatedLinks
from async_hfl.network.radio.air import Air
from async_hfl.network.radio.places import Places
from async_hfl.network.radio.spatial_index import GatewayGrid

_PAIRS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class LinkRules:
    """Criteria by which a network keeps links."""

    least_rate: float = 10_000.0
    """Bytes per second in either direction: 80 kb/s, the slowest uplink in the authors' network."""
    links: int = 10
    """Largest number of links per device."""
    candidates: int = 40
    """Number of nearest gateways that are considered for each device."""

    def __post_init__(self) -> None:
        if not 1 <= self.links <= self.candidates:
            raise SettingsError(
                f"{self.links} links a device out of the {self.candidates} nearest gateways; "
                "at least one, and no more than are considered"
            )


DEFAULT_LINK_RULES = LinkRules()


def best_links(devices: Places, gateways: Places, air: Air, rules: LinkRules, seed: int) -> RatedLinks:
    """Return the links of all devices, sorted by device and then gateway. A device may have none."""
    near = min(rules.candidates, len(gateways))
    grid = GatewayGrid(gateways.x, gateways.y)
    rows = max(1, _PAIRS_AT_ONCE // near)
    parts = [
        _links_of_rows(devices, gateways, grid, np.arange(at, min(at + rows, len(devices))), near, air, rules, seed)
        for at in range(0, len(devices), rows)
    ]
    return RatedLinks.concatenate(parts)


def shadowing(devices: Places, gateways: Places, deviation_db: float, seed: int) -> Floats:
    """Return normal shadowing in decibels, a function of the two places' keys and the seed (Box-Muller on hashes)."""
    root = stream_seed(seed, "network", "shadowing")
    with np.errstate(over="ignore"):  # unsigned arithmetic wraps, as intended
        one = devices.key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(root)
    two = gateways.key.astype(np.uint64) << np.uint64(1)
    radius = np.sqrt(-2.0 * np.log1p(-keyed_uniform(one, two)))
    drawn: Floats = deviation_db * radius * np.cos(2.0 * np.pi * keyed_uniform(one, two | np.uint64(1)))
    return drawn


def _links_of_rows(
    devices: Places, gateways: Places, grid: GatewayGrid, rows: Ints, near: int, air: Air, rules: LinkRules, seed: int
) -> RatedLinks:
    gateway = grid.nearest(devices.x[rows], devices.y[rows], near).ravel()
    device = np.repeat(rows, near)
    here, there = devices.take(device), gateways.take(gateway)
    loss = air.path_loss(here, there)
    if air.shadowing_db > 0:
        loss = loss + shadowing(here, there, air.shadowing_db, seed)
    down, up = air.download(loss), air.upload(loss)
    kept = np.flatnonzero((down >= rules.least_rate) & (up >= rules.least_rate))
    # Fastest first within a device; candidates come nearest first, which decides ties.
    kept = kept[np.lexsort((kept, 1.0 / down[kept] + 1.0 / up[kept], device[kept]))]
    # Keep the first few of each device: the rank of a row is its distance from the first row of its device.
    rank = np.arange(len(kept)) - np.searchsorted(device[kept], device[kept])
    kept = kept[rank < rules.links]
    kept = kept[np.lexsort((gateway[kept], device[kept]))]
    return RatedLinks(device[kept], gateway[kept], down[kept], up[kept])
