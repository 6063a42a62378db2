"""The installed sites of NYC Mesh on two dates of its public map, from packaged files (data/CREDITS.md)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.network.positions import MapFrame
from async_hfl.network.radio.places import Places

MeshDate = Literal["2022-04-04", "2024-07-23"]
INSTALLED: dict[MeshDate, int] = {"2022-04-04": 1068, "2024-07-23": 1335}
HUB_ROLES = frozenset({"hub", "supernode", "pop"})
CREDIT = "Sites: NYC Mesh (nycmesh.net)"

WEST, EAST, SOUTH, NORTH = -74.1, -73.7, 40.5, 41.0
"""Bounds of the city. Three sites of the 2022 map are far outside (one in Colorado, one in California)."""
FRAME = MapFrame.around(-73.95, 40.72)
UNKNOWN_ALTITUDE = -1.0
LEAST_HEIGHT = 3.0
"""Metres. The few sites listed below this height are on a ground floor."""


@dataclass(frozen=True, slots=True, eq=False)
class MeshSites:
    """The sites inside the city, in the order of their numbers on the map."""

    date: MeshDate
    hub: npt.NDArray[np.bool_]
    """True for a hub, a supernode or a point of presence."""
    places: Places
    """The key of a place is its number on the map."""
    left_out: int
    """Number of installed sites outside the city."""
    unknown_height: int
    """Number of sites without a height; they get the median height."""
    median_height: float


def mesh_sites(date: MeshDate) -> MeshSites:
    """Read the sites. The map's altitude is used as antenna height: no datum is given, and the city is flat and low."""
    rows = _rows(date)
    longitude, latitude, altitude = (
        np.array([float(row[column]) for row in rows]) for column in ("longitude", "latitude", "altitude_m")
    )
    inside = (longitude >= WEST) & (longitude <= EAST) & (latitude >= SOUTH) & (latitude <= NORTH)
    key = np.array([int(row["id"]) for row in rows], np.int64)
    kept = np.flatnonzero(inside)
    kept = kept[np.argsort(key[kept])]
    x, y = FRAME.to_metres(longitude[kept], latitude[kept])
    height = altitude[kept]
    unknown = height == UNKNOWN_ALTITUDE
    median = float(np.median(height[~unknown]))
    height = np.maximum(np.where(unknown, median, height), LEAST_HEIGHT)
    hub = np.array([rows[row]["role"] in HUB_ROLES for row in kept])
    places = Places(x, y, height, key[kept])
    return MeshSites(date, hub, places, len(rows) - len(kept), int(unknown.sum()), median)


def _rows(date: MeshDate) -> list[dict[str, str]]:
    name = f"sites_{date}.csv"
    try:
        text = (resources.files("async_hfl.network") / "data" / name).read_text(encoding="utf-8")
    except OSError as fault:
        raise DataError(f"package data {name} cannot be read ({fault}): install the package again") from fault
    rows = list(csv.DictReader(text.splitlines()))
    if len(rows) != INSTALLED[date]:
        raise DataError(f"package data {name} has {len(rows)} sites, not {INSTALLED[date]}: install the package again")
    return rows
