"""Positions of devices and gateways, for maps only: no delay and no decision depends on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError


@dataclass(frozen=True, slots=True)
class MapFrame:
    """A plane with coordinates in metres, x to the east and y to the north of an origin.

    Within a city the length of a degree hardly changes, so a plane is enough. The lengths are part of the frame because
    published coordinates were computed with rounded ones; other lengths would shift them by tens of metres.
    """

    longitude: float
    latitude: float
    metres_per_degree_longitude: float
    metres_per_degree_latitude: float

    def to_metres(self, longitude: Floats, latitude: Floats) -> tuple[Floats, Floats]:
        x: Floats = (longitude - self.longitude) * self.metres_per_degree_longitude
        y: Floats = (latitude - self.latitude) * self.metres_per_degree_latitude
        return x, y

    def to_degrees(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        longitude: Floats = self.longitude + x / self.metres_per_degree_longitude
        latitude: Floats = self.latitude + y / self.metres_per_degree_latitude
        return longitude, latitude

    @classmethod
    def around(cls, longitude: float, latitude: float) -> MapFrame:
        """Return the plane tangent to the WGS 84 ellipsoid at a place, accurate to 0.1 % within 50 km."""
        phi = math.radians(latitude)
        east = 111_412.84 * math.cos(phi) - 93.5 * math.cos(3 * phi)
        north = 111_132.92 - 559.82 * math.cos(2 * phi) + 1.175 * math.cos(4 * phi)
        return cls(longitude, latitude, east, north)


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Metres east (x) and north (y) of the frame's origin."""

    device_x: Floats
    device_y: Floats
    gateway_x: Floats
    gateway_y: Floats
    estimated: bool
    """True if the gateways' positions are estimates, which every map must state."""
    frame: MapFrame | None = None
    """Conversion to longitude and latitude; None if the plane is not a place on Earth."""
    device_height: Floats | None = None
    gateway_height: Floats | None = None
    """Metres above the ground, if known."""
    device_names: tuple[str, ...] = ()
    gateway_names: tuple[str, ...] = ()
    """Names given by the user; if empty, nodes are named by their numbers."""

    def __post_init__(self) -> None:
        for name, x, y in (("device", self.device_x, self.device_y), ("gateway", self.gateway_x, self.gateway_y)):
            if x.shape != y.shape or x.ndim != 1:
                raise DataError(f"{name} positions: x has shape {x.shape} and y {y.shape}; both must be one row")
            wrong = np.flatnonzero(~(np.isfinite(x) & np.isfinite(y)))
            if len(wrong):
                raise DataError(f"{name} {wrong[0]}: position ({x[wrong[0]]}, {y[wrong[0]]}) is not finite")
        for name, x, height, names in (
            ("device", self.device_x, self.device_height, self.device_names),
            ("gateway", self.gateway_x, self.gateway_height, self.gateway_names),
        ):
            if height is not None and height.shape != x.shape:
                raise DataError(f"{name} positions: {len(height)} heights for {len(x)} {name}s")
            if names and len(names) != len(x):
                raise DataError(f"{name} positions: {len(names)} names for {len(x)} {name}s")
