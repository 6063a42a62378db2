"""Radios in buildings: their rooms, and the effect of walls and floors on a signal.

The figures are from ITU-R P.1238 (a path within one building) and the COST 231 final report (outer walls, floors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import DataError, SettingsError
from async_hfl.network.radio.propagation.surroundings import Surroundings

OuterWall = Literal["wood", "concrete-with-windows", "concrete-without-windows", "stone-blocks"]
Use = Literal["residential", "office", "commercial"]

OUTER_WALL_DB: dict[OuterWall, float] = {
    "wood": 4.0,
    "concrete-with-windows": 7.0,
    "concrete-without-windows": 15.0,
    "stone-blocks": 12.0,
}
GAIN_BY_FLOOR_DB = 2.0
"""Gain per floor: higher floors have a clearer view over the neighbouring buildings."""
_DISTANCE_POWER: dict[Use, float] = {"residential": 28.0, "office": 30.0, "commercial": 22.0}
"""N of P.1238."""
_FIRST_FLOOR: dict[Use, float] = {"residential": 4.0, "office": 15.0, "commercial": 6.0}
_FURTHER_FLOOR: dict[Use, float] = {"residential": 4.0, "office": 4.0, "commercial": 3.0}
"""L_f(n) of P.1238: loss of the first floor between two radios, and of each further one."""

OUTDOORS = -1


@dataclass(frozen=True, slots=True)
class Building:
    use: Use = "residential"
    outer_wall: OuterWall = "concrete-with-windows"

    def __post_init__(self) -> None:
        for name, choices in (("use", get_args(Use)), ("outer_wall", get_args(OuterWall))):
            if getattr(self, name) not in choices:
                raise SettingsError(f"building: {name} = {getattr(self, name)!r}: choose from {', '.join(choices)}")


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """The rooms of radios, one row each: number of the building (-1: outdoors), floor from 1, room along x and y."""

    building: Ints
    floor: Ints
    room_x: Ints
    room_y: Ints

    def __post_init__(self) -> None:
        shapes = {values.shape for values in (self.building, self.floor, self.room_x, self.room_y)}
        if len(shapes) != 1:
            raise DataError(f"rooms: columns of shapes {sorted(shapes)}; give building, floor and room for each radio")
        wrong = np.flatnonzero((self.building >= 0) & (self.floor < 1))
        if len(wrong):
            raise DataError(f"rooms: radio {wrong[0]} is on floor {self.floor[wrong[0]]}; floors count from 1")

    @classmethod
    def outdoors(cls, radios: int) -> Rooms:
        return cls(np.full(radios, OUTDOORS), *(np.ones(radios, np.int64) for _ in range(3)))

    def rows(self, which: Ints) -> Rooms:
        return Rooms(self.building[which], self.floor[which], self.room_x[which], self.room_y[which])


def within_building(
    distance_m: Floats, one: Rooms, other: Rooms, buildings: Sequence[Building], around: Surroundings
) -> Floats:
    """Return L = 20 log10(f / MHz) + N log10(d / m) + L_f(n) - 28, plus the inner walls between the rooms (P.1238,
    3.1)."""
    floors = np.abs(one.floor - other.floor)
    walls = np.abs(one.room_x - other.room_x) + np.abs(one.room_y - other.room_y)
    power, first, further = (
        np.array([table[building.use] for building in buildings])[one.building]
        for table in (_DISTANCE_POWER, _FIRST_FLOOR, _FURTHER_FLOOR)
    )
    through = np.where(floors > 0, first + further * (floors - 1), 0.0)
    constant = 20.0 * np.log10(around.frequency_mhz) - 28.0
    loss: Floats = constant + power * np.log10(distance_m) + through + around.inner_wall_db * walls
    return loss


def outer_walls(rooms: Rooms, buildings: Sequence[Building]) -> Floats:
    """Return the loss of each radio's outer wall; 0 outdoors."""
    # OUTDOORS = -1 selects the last entry.
    table = np.array([*(OUTER_WALL_DB[building.outer_wall] for building in buildings), 0.0])
    loss: Floats = table[rooms.building]
    return loss


def floor_gain(rooms: Rooms) -> Floats:
    """Return the gain of each radio above the ground floor; 0 outdoors."""
    gain: Floats = np.where(rooms.building >= 0, GAIN_BY_FLOOR_DB * (rooms.floor - 1), 0.0)
    return gain
