"""Shadowing: what things that no model knows add to a loss, or take from it. Log-normal, so normal in decibels."""

from __future__ import annotations

import math

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.network.radio.propagation.indoors import Rooms
from async_hfl.network.radio.propagation.surroundings import Surroundings


def shadowing_deviation(one: Rooms, other: Rooms, around: Surroundings) -> Floats:
    """Standard deviation for each pair, dB: outdoors, indoors, or with the variance of one outer wall added."""
    through_wall = math.hypot(around.shadowing_outdoor_db, around.shadowing_outer_wall_db)
    inside_one, inside_other = one.building >= 0, other.building >= 0
    deviation: Floats = np.where(
        inside_one & inside_other,
        around.shadowing_indoor_db,
        np.where(inside_one | inside_other, through_wall, around.shadowing_outdoor_db),
    )
    return deviation
