"""Radio propagation between two places: path loss by the buildings model, goodput by Wi-Fi."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.network.radio.places import Places
from async_hfl.network.radio.propagation.hybrid_buildings import path_loss, straight_line
from async_hfl.network.radio.propagation.surroundings import Surroundings
from async_hfl.network.radio.wifi.goodput import Wifi, download_goodput, upload_goodput

PathLoss: TypeAlias = Callable[[Places, Places], Floats]
"""Path loss in decibels between two columns of places, row by row, without shadowing."""
Goodput: TypeAlias = Callable[[Floats], Floats]
"""Bytes per second that arrive over paths of the given losses in decibels; 0 if nothing arrives."""

LEAST_DISTANCE_M = 1.0
"""Sites of a map may share a roof, and so a position to the metre; their antennas are further apart."""
_STEPS_PER_DB, _MOST_DB = 100, 300


@dataclass(frozen=True, slots=True)
class Air:
    """Radio propagation: path loss, the goodput that results from it, and the spread of shadowing."""

    path_loss: PathLoss
    download: Goodput
    upload: Goodput
    shadowing_db: float = 0.0
    """Standard deviation of the shadowing by buildings, which is drawn once for each pair of places."""


def make_air(around: Surroundings, wifi: Wifi) -> Air:
    def loss_outdoors(here: Places, there: Places) -> Floats:
        length = straight_line(here.x - there.x, here.y - there.y, here.height - there.height)
        return path_loss(np.maximum(length, LEAST_DISTANCE_M), here.height, there.height, around)

    download = tabulated(lambda loss: download_goodput(loss, wifi))
    upload = tabulated(lambda loss: upload_goodput(loss, wifi))
    return Air(loss_outdoors, download, upload, around.shadowing_outdoor_db)


def tabulated(goodput: Goodput) -> Goodput:
    """Return a function that interpolates `goodput` in a table with steps of a hundredth of a decibel.

    Computing the error functions of millions of links at eight rates would take longer than everything else in a large
    network.
    """
    losses = np.arange(_STEPS_PER_DB * _MOST_DB + 1) / _STEPS_PER_DB
    rates = goodput(losses)
    edge = losses[np.flatnonzero(rates > 0)[-1]] if rates.any() else -1.0

    def looked_up(loss: Floats) -> Floats:
        # Beyond the largest loss at which frames are detected the rate is 0; it is not interpolated down to 0.
        found: Floats = np.where(loss <= edge, np.interp(loss, losses, rates), 0.0)
        return found

    return looked_up
