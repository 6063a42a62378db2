"""Sites from the user's file: a CSV or GeoJSON file with the places of devices and gateways.

CSV columns: `role` (device or gateway), `longitude` and `latitude` in degrees or `x_m` and `y_m` in metres, and
optionally `name`, `height_m` (antenna above the ground) and `compute_s` (seconds of one local training on that device).
GeoJSON: a FeatureCollection of points with the same names as properties; a third coordinate is the height.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.network.files.cells import Line, csv_table, nearest
from async_hfl.network.positions import MapFrame
from async_hfl.network.radio.places import Places

ROLES = ("device", "gateway")
COLUMNS = ("role", "longitude", "latitude", "x_m", "y_m", "name", "height_m", "compute_s")
USUAL_HEIGHT = {"device": 10.0, "gateway": 25.0}
"""Default antenna heights in metres: a third-floor window, and a roof above its neighbours."""
_MAX_HEIGHT = 10_000.0
_MISSPELT = 0.75
"""Similarity from which an unknown column name counts as a misspelling."""


@dataclass(frozen=True, slots=True, eq=False)
class UserSites:
    """Devices and gateways in the order of the file."""

    path: str
    devices: Places
    gateways: Places
    device_names: tuple[str, ...]
    gateway_names: tuple[str, ...]
    device_lines: tuple[str, ...]
    """The line of each device in the file, for error messages."""
    compute: Floats | None
    """Seconds of one local training per device, if the file gives them."""
    frame: MapFrame | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Site:
    where: str
    role: str
    name: str
    x: float
    y: float
    """Metres, or longitude and latitude."""
    height: float | None
    compute: float | None


def sites_from_csv(path: Path, text: str) -> UserSites:
    header, lines = csv_table(path, text)
    on_earth = _check_columns(str(path), header)
    return _sites(path, [_site(line, on_earth) for line in lines], on_earth, header)


def sites_from_geojson(path: Path, text: str) -> UserSites:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None
    if not isinstance(data, dict) or data.get("type") != "FeatureCollection":
        raise DataError(f"{path}: not a GeoJSON FeatureCollection, which is what sites are read from")
    features = data.get("features")
    if not isinstance(features, list) or not features:
        raise DataError(f"{path}: its FeatureCollection holds no features")
    seen: dict[str, None] = {}
    sites = []
    for position, feature in enumerate(features):
        where = f"{path}, feature {position}"
        cells = dict(_feature_cells(feature, where))
        properties = [name for name in cells if name not in ("longitude", "latitude")]
        _check_spelling(where, properties)
        seen.update(dict.fromkeys(properties))
        sites.append(_site(Line(where, cells), on_earth=True))
    return _sites(path, sites, True, sorted(seen))


def _feature_cells(feature: Any, where: str) -> Iterator[tuple[str, str]]:
    """Return a feature as the cells of a CSV line."""
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    if not isinstance(geometry, dict) or geometry.get("type") != "Point":
        kind = geometry.get("type") if isinstance(geometry, dict) else None
        raise DataError(f"{where}: its geometry is {kind or 'missing'}; a site is a Point")
    coordinates = geometry.get("coordinates")
    if not isinstance(coordinates, list) or len(coordinates) not in (2, 3):
        raise DataError(f"{where}: coordinates {coordinates!r}; write [longitude, latitude] or [.., .., height]")
    yield from zip(("longitude", "latitude", "height_m"), (json.dumps(value) for value in coordinates), strict=False)
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise DataError(f"{where}: properties {properties!r} are not an object")
    for name, value in properties.items():
        if value is not None:
            yield str(name), value if isinstance(value, str) else json.dumps(value)


def _check_columns(path: str, header: Sequence[str]) -> bool:
    """Check the columns; return True if places are in degrees."""
    _check_spelling(path, header)
    if "role" not in header:
        raise DataError(f"{path}: has no column 'role' (its columns: {', '.join(header)})")
    degrees, metres = "longitude" in header or "latitude" in header, "x_m" in header or "y_m" in header
    if degrees and metres:
        raise DataError(f"{path}: has places in degrees and in metres; leave one of them out")
    if not degrees and not metres:
        raise DataError(
            f"{path}: has no column 'longitude'; a site needs longitude and latitude, or x_m and y_m "
            f"(its columns: {', '.join(header)})"
        )
    for given, missing in (("longitude", "latitude"), ("latitude", "longitude"), ("x_m", "y_m"), ("y_m", "x_m")):
        if given in header and missing not in header:
            raise DataError(f"{path}: has a column {given!r} but no column {missing!r}")
    return degrees


def _check_spelling(where: str, header: Sequence[str]) -> None:
    for name in header:
        alike = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=_MISSPELT)
        if name not in COLUMNS and alike and alike[0] not in header:
            raise DataError(f"{where}: {name!r} is not read; did you mean {alike[0]}?")


def _site(line: Line, on_earth: bool) -> _Site:
    role = line.text("role")
    if role not in ROLES:
        raise DataError(f"{line.where}: {f'role {role!r}' if role else 'no role'}{nearest(role, ROLES)}")
    if on_earth:
        x, y = line.number("longitude", -180, 180), line.number("latitude", -85, 85)
    else:
        x, y = line.number("x_m"), line.number("y_m")
    height = line.number("height_m", 0.1, _MAX_HEIGHT) if line.text("height_m") else None
    compute = line.number("compute_s", 0) if line.text("compute_s") else None
    if compute is not None and role == "gateway":
        raise DataError(f"{line.where}: a gateway with compute_s; only devices train")
    return _Site(line.where, role, line.text("name"), x, y, height, compute)


def _sites(path: Path, sites: Sequence[_Site], on_earth: bool, header: Sequence[str]) -> UserSites:
    taken: dict[str, str] = {}
    for site in sites:
        if site.name in taken:
            raise DataError(f"{site.where}: the name {site.name!r} is taken ({taken[site.name]})")
        if site.name:
            taken[site.name] = site.where
    by_role = {role: [site for site in sites if site.role == role] for role in ROLES}
    for role in ROLES:
        if not by_role[role]:
            raise DataError(f"{path}: no site has the role {role!r}; a network needs at least one")
    frame = None
    if on_earth:
        west, east = min(site.x for site in sites), max(site.x for site in sites)
        south, north = min(site.y for site in sites), max(site.y for site in sites)
        if east - west > 5 or north - south > 5:
            raise DataError(
                f"{path}: its sites lie {east - west:.1f} degrees of longitude and {north - south:.1f} of latitude "
                "apart; a radio network spans 5 at most, so some of them must be wrong"
            )
        frame = MapFrame.around((west + east) / 2, (south + north) / 2)
    compute = [site.compute for site in by_role["device"]]
    given = [value for value in compute if value is not None]
    if given and len(given) < len(compute):
        missing = by_role["device"][compute.index(None)]
        raise DataError(f"{missing.where}: no compute_s, though other devices have one; give it to all or to none")
    notes = [f"sites of {path}"]
    guessed = sum(site.height is None for site in sites)
    if guessed:
        heights = ", ".join(f"{role}s at {USUAL_HEIGHT[role]:g} m" for role in ROLES)
        notes.append(f"{guessed} sites without a height: {heights}")
    if unread := [name for name in header if name not in COLUMNS]:
        notes.append(f"not read: {', '.join(unread)}")
    devices, gateways = (_places(by_role[role], frame) for role in ROLES)
    device_names, gateway_names = (
        tuple(site.name or f"{role} {i}" for i, site in enumerate(by_role[role])) for role in ROLES
    )
    return UserSites(
        str(path),
        devices,
        gateways,
        device_names,
        gateway_names,
        device_lines=tuple(site.where for site in by_role["device"]),
        compute=np.array(given) if given else None,
        frame=frame,
        notes=tuple(notes),
    )


def _places(sites: Sequence[_Site], frame: MapFrame | None) -> Places:
    x, y = np.array([site.x for site in sites]), np.array([site.y for site in sites])
    if frame is not None:
        x, y = frame.to_metres(x, y)
    height = np.array([USUAL_HEIGHT[site.role] if site.height is None else site.height for site in sites])
    return Places(x, y, height, np.arange(len(sites)))
