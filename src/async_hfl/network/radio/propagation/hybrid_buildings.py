"""The choice of the path loss model for each pair of radios, as in ns-3's HybridBuildingsPropagationLossModel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.network.radio.propagation.indoors import Building, Rooms, floor_gain, outer_walls, within_building
from async_hfl.network.radio.propagation.itu_1411 import line_of_sight, over_rooftops
from async_hfl.network.radio.propagation.okumura_hata import kun_2600, okumura_hata
from async_hfl.network.radio.propagation.surroundings import PAPER_SURROUNDINGS, Surroundings

Booleans = npt.NDArray[np.bool_]

_KUN_ABOVE_MHZ = 2300.0
_PAIRS_AT_ONCE = 1 << 15
"""Pairs processed together; their columns fit into the cache of a core."""


@dataclass(frozen=True, slots=True, eq=False)
class Indoors:
    """The rooms of both radios of each pair, if any of them is indoors."""

    one: Rooms
    other: Rooms
    buildings: Sequence[Building]

    def __post_init__(self) -> None:
        for rooms in (self.one, self.other):
            wrong = np.flatnonzero((rooms.building < -1) | (rooms.building >= len(self.buildings)))
            if len(wrong):
                raise DataError(
                    f"rooms: radio {wrong[0]} is in building {rooms.building[wrong[0]]} of {len(self.buildings)}; "
                    "they count from 0, and -1 is outdoors"
                )


def path_loss(
    distance_m: Floats,
    height_a: Floats,
    height_b: Floats,
    around: Surroundings = PAPER_SURROUNDINGS,
    indoors: Indoors | None = None,
) -> Floats:
    """Return the decibels lost between two radios, without shadowing; never negative.

    `distance_m` is the length of the straight line; heights are above the ground. There is one row per pair.
    """
    _check(distance_m, height_a, height_b)
    loss = np.empty(len(distance_m))
    for start in range(0, len(distance_m), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        loss[part] = _outdoors(distance_m[part], height_a[part], height_b[part], around)
    if indoors is not None:
        _go_inside(loss, distance_m, height_a, height_b, around, indoors)
    np.maximum(loss, 0.0, out=loss)
    return loss


def straight_line(x: Floats, y: Floats, z: Floats) -> Floats:
    """Return the length of each vector (x, y, z)."""
    length: Floats = np.sqrt(x * x + y * y + z * z)
    return length


def _check(distance_m: Floats, height_a: Floats, height_b: Floats) -> None:
    if not (distance_m.ndim == 1 and distance_m.shape == height_a.shape == height_b.shape):
        raise DataError(
            f"path loss: distances of shape {distance_m.shape}, heights of {height_a.shape} and {height_b.shape}; "
            "give one of each for every pair"
        )
    for name, values in (("distance", distance_m), ("height", height_a), ("height", height_b)):
        if len(values) and not (values.min() > 0.0 and values.max() < np.inf):  # NaN fails both
            wrong = np.flatnonzero(~((values > 0.0) & (values < np.inf)))[0]
            raise DataError(
                f"path loss: pair {wrong} has {name} {values[wrong]}; it must be a number of metres above 0"
            )


def _outdoors(distance_m: Floats, height_a: Floats, height_b: Floats, around: Surroundings) -> Floats:
    cell = _in_a_cell(distance_m, height_a, height_b, around)
    near = (distance_m < around.line_of_sight_limit_m) & ~cell
    return _by_model(distance_m, height_a, height_b, around, near, cell)


def _in_a_cell(distance_m: Floats, height_a: Floats, height_b: Floats, around: Surroundings) -> Booleans:
    """Return True for pairs that are far apart and not both below the roofs."""
    cell: Booleans = (distance_m > around.rooftop_limit_m) & (np.maximum(height_a, height_b) >= around.rooftop_m)
    return cell


def _by_model(
    distance_m: Floats, height_a: Floats, height_b: Floats, around: Surroundings, near: Booleans, cell: Booleans
) -> Floats:
    loss = np.empty(len(distance_m))
    for model, where in ((line_of_sight, near), (over_rooftops, ~(near | cell)), (_whole_cell, cell)):
        rows = np.flatnonzero(where)
        if len(rows):
            loss[rows] = model(distance_m[rows], height_a[rows], height_b[rows], around)
    return loss


def _whole_cell(distance_m: Floats, height_a: Floats, height_b: Floats, around: Surroundings) -> Floats:
    if around.frequency_mhz > _KUN_ABOVE_MHZ:
        return kun_2600(distance_m)
    return okumura_hata(distance_m, height_a, height_b, around)


def _go_inside(
    loss: Floats, distance_m: Floats, height_a: Floats, height_b: Floats, around: Surroundings, indoors: Indoors
) -> None:
    """Replace the outdoor losses of pairs with a radio indoors, in place.

    In the same building P.1238 holds alone. Between two buildings both outer walls count, always with P.1411 and
    without a floor gain. With one radio indoors its outer wall and its floor gain count; but there is no floor gain if
    a whole-cell model holds and the second radio is the one indoors. The order of the two radios therefore matters
    there, as it does in ns-3.
    """
    one, other = indoors.one, indoors.other
    inside_one, inside_other = one.building >= 0, other.building >= 0
    apart = np.flatnonzero(inside_one & inside_other & (one.building != other.building))
    near = distance_m[apart] < around.line_of_sight_limit_m
    loss[apart] = _by_model(distance_m[apart], height_a[apart], height_b[apart], around, near, cell=np.zeros_like(near))
    loss += outer_walls(one, indoors.buildings) + outer_walls(other, indoors.buildings)
    lone_other = inside_other & ~inside_one & ~_in_a_cell(distance_m, height_a, height_b, around)
    loss -= np.where(inside_one & ~inside_other, floor_gain(one), 0.0) + np.where(lone_other, floor_gain(other), 0.0)
    same = np.flatnonzero(inside_one & (one.building == other.building))
    loss[same] = within_building(distance_m[same], one.rows(same), other.rows(same), indoors.buildings, around)
