"""Links by radio: from places, path loss and goodput to the best few links of every device.

Only the nearest `candidates` gateways of a device are looked at (all of them in a small network), since the loss grows
with distance; that is wide enough for a tall gateway further off, or one with luck in its shadowing, to be among them.
Of those whose rates reach `least_rate` both ways the best `links` stay: what moves a model there and back soonest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import keyed_uniform, stream_seed
from async_hfl.network.radio.places import Places
from async_hfl.network.radio.spatial_index import GatewayGrid

PathLoss: TypeAlias = Callable[[Places, Places], Floats]
"""Decibels from place to place, row by row, without shadowing."""
Goodput: TypeAlias = Callable[[Floats], Floats]
"""Bytes per second that arrive over a path of so many decibels; 0 where nothing does."""

_PAIRS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class Air:
    """What the air does to a link."""

    path_loss: PathLoss
    download: Goodput
    upload: Goodput
    shadowing_db: float = 0.0
    """Standard deviation of what buildings in the way add or take, drawn once for each pair of places."""


@dataclass(frozen=True, slots=True)
class LinkRules:
    """Which links a network keeps."""

    least_rate: float = 10_000.0
    """Bytes per second in either direction: 80 kb/s, the slowest uplink in the authors' network."""
    links: int = 10
    """Most links a device."""
    candidates: int = 40
    """Nearest gateways looked at for each device."""

    def __post_init__(self) -> None:
        if not 1 <= self.links <= self.candidates:
            raise SettingsError(
                f"{self.links} links a device out of the {self.candidates} nearest gateways; "
                "at least one, and no more than are looked at"
            )


@dataclass(frozen=True, slots=True, eq=False)
class RadioLinks:
    """Columns over links, sorted by device and then gateway."""

    device: Ints
    gateway: Ints
    loss_db: Floats
    download_rate: Floats
    upload_rate: Floats

    def __len__(self) -> int:
        return len(self.device)


def best_links(devices: Places, gateways: Places, air: Air, rules: LinkRules, seed: int) -> RadioLinks:
    """A device that reaches nobody has no row here: the caller drops it, draws it anew, or complains."""
    near = min(rules.candidates, len(gateways))
    grid = GatewayGrid(gateways.x, gateways.y)
    rows = max(1, _PAIRS_AT_ONCE // near)
    parts = [
        _of_some(devices, gateways, grid, np.arange(at, min(at + rows, len(devices))), near, air, rules, seed)
        for at in range(0, len(devices), rows)
    ]
    return RadioLinks(
        np.concatenate([part.device for part in parts]),
        np.concatenate([part.gateway for part in parts]),
        np.concatenate([part.loss_db for part in parts]),
        np.concatenate([part.download_rate for part in parts]),
        np.concatenate([part.upload_rate for part in parts]),
    )


def shadowing(devices: Places, gateways: Places, deviation_db: float, seed: int) -> Floats:
    """Normal in decibels, a function of the two places' keys and the seed: Box and Muller on hashed uniforms."""
    root = stream_seed(seed, "network", "shadowing")
    with np.errstate(over="ignore"):  # unsigned arithmetic wraps, as intended
        one = devices.key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(root)
    two = gateways.key.astype(np.uint64) << np.uint64(1)
    radius = np.sqrt(-2.0 * np.log1p(-keyed_uniform(one, two)))
    drawn: Floats = deviation_db * radius * np.cos(2.0 * np.pi * keyed_uniform(one, two | np.uint64(1)))
    return drawn


def _of_some(
    devices: Places,
    gateways: Places,
    grid: GatewayGrid,
    rows: Ints,
    near: int,
    air: Air,
    rules: LinkRules,
    seed: int,
) -> RadioLinks:
    gateway = grid.nearest(devices.x[rows], devices.y[rows], near).ravel()
    device = np.repeat(rows, near)
    here, there = devices.of(device), gateways.of(gateway)
    loss = air.path_loss(here, there)
    if air.shadowing_db > 0:
        loss = loss + shadowing(here, there, air.shadowing_db, seed)
    down, up = air.download(loss), air.upload(loss)
    kept = np.flatnonzero((down >= rules.least_rate) & (up >= rules.least_rate))
    # Quickest first within a device (near ones first among equals, since candidates come in that order) ...
    kept = kept[np.lexsort((kept, 1.0 / down[kept] + 1.0 / up[kept], device[kept]))]
    # ... and of these the first few: the place of a row within its device is its distance from the device's first row.
    place = np.arange(len(kept)) - np.searchsorted(device[kept], device[kept])
    kept = kept[place < rules.links]
    kept = kept[np.lexsort((gateway[kept], device[kept]))]
    return RadioLinks(device[kept], gateway[kept], loss[kept], down[kept], up[kept])
