"""The files of HPWREN's readings of 2021: half-hourly means (npz) and the authors' hourly means (csv in a tar).

The half-hourly file is built from the readings (about one per minute) in the history of UCSD-SEELab/iot-dataset, one
csv per station and day: readings of 0 <= t < 86,400 s, half-hour floor(t / 1800), plain mean of each value, rounded to
two decimals. Wind directions are plain means too, as in the authors' hourly files.
"""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError

HALF_HOURLY_FILE = "hpwren_2021_30min.npz"
HOURLY_FILE = "hpwren_2021_hourly_csv.tar"
VALUES = ("Dn", "Dm", "Dx", "Sn", "Sm", "Sx", "Ta", "Ua", "Pa", "Rc", "Rd", "Ri")
"""Wind direction and speed (minimum, mean, maximum), temperature, humidity, pressure, rain (amount, duration,
intensity).
"""
_YEAR = 2021
_DAYS = 365
_HALF_HOURS = 48
_HEADER = ",".join(("year", "month", "day", "hour", *VALUES))
_DAY_FILE = re.compile(rf"hpwren/{_YEAR}/(\w+)/({_YEAR}\d{{4}})\.csv$")
_STATION_FILE = re.compile(rf"hpwren/{_YEAR}/(\w+)\.csv$")
_UNREADABLE = (OSError, EOFError, ValueError, KeyError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    stations: tuple[str, ...]
    values: npt.NDArray[np.float32]
    """Shape (stations, times, 12); NaN for a missing reading."""


def read_half_hourly(content: bytes, where: str = HALF_HOURLY_FILE) -> Readings:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            stations, values, names = archive["stations"], archive["data"], archive["features"]
    except _UNREADABLE as problem:
        raise DataError(f"{where}: not an archive of readings ({problem})") from problem
    if tuple(names.tolist()) != VALUES or values.ndim != 3 or values.shape[::2] != (len(stations), len(VALUES)):
        raise DataError(f"{where}: {values.shape} values of {len(stations)} stations are not those of HPWREN")
    return Readings(tuple(map(str, stations)), values.astype(np.float32))


def read_hourly(content: bytes, where: str = HOURLY_FILE) -> Readings:
    tables: dict[str, npt.NDArray[np.float32]] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            for member in sorted(tar.getmembers(), key=lambda member: member.name):
                file = tar.extractfile(member)
                if file is not None and member.name.endswith(".csv"):
                    tables[Path(member.name).stem] = _hourly_table(file.read())
    except _UNREADABLE as problem:
        raise DataError(f"{where}: not an archive of hourly csv files ({problem})") from problem
    if not tables or len({table.shape for table in tables.values()}) != 1:
        raise DataError(f"{where}: its csv files are not of one length; it is damaged")
    return Readings(tuple(tables), np.stack(list(tables.values())))


def check_half_hourly(content: bytes) -> None:
    _check(read_half_hourly(content), _HALF_HOURS)


def check_hourly(content: bytes) -> None:
    _check(read_hourly(content), 24)


def _check(readings: Readings, per_day: int) -> None:
    if readings.values.shape[1] != _DAYS * per_day or np.isfinite(readings.values).all(axis=2).sum() == 0:
        raise DataError(f"readings of {readings.values.shape[1]} times are not those of {_YEAR}")


def _hourly_table(content: bytes) -> npt.NDArray[np.float32]:
    header, _, rows = content.partition(b"\n")
    if header.decode("ascii", errors="replace").strip() != _HEADER:
        raise ValueError(f"its first line is not {_HEADER}")
    table: npt.NDArray[np.float32] = np.loadtxt(io.BytesIO(rows), delimiter=",", ndmin=2, dtype=np.float32)
    return table[:, 4:]


def unpack_repository(archive: Path, folder: Path) -> None:
    """Extract both files from the repository's zip: copy the hourly csv files, and build the half-hourly means."""
    try:
        with zipfile.ZipFile(archive) as packed:
            _write_hourly(packed, folder / HOURLY_FILE)
            _write_half_hourly(packed, folder / HALF_HOURLY_FILE)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as problem:
        raise DataError(f"{archive.name}: not the archive of the readings ({problem})") from problem


def _write_hourly(packed: zipfile.ZipFile, path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for station, name in sorted(_matching(packed, _STATION_FILE, lambda match: match[1])):
            content = packed.read(name)
            info = tarfile.TarInfo(f"{station}.csv")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def _write_half_hourly(packed: zipfile.ZipFile, path: Path) -> None:
    files = sorted(_matching(packed, _DAY_FILE, lambda match: (match[1], match[2])))
    if not files:
        raise DataError("there are no readings by day in the archive")
    stations = sorted({station for (station, _), _ in files})
    values = np.full((len(stations), _DAYS * _HALF_HOURS, len(VALUES)), np.nan, np.float32)
    counts = np.zeros(values.shape[:2], np.uint16)
    for (station, day), name in files:
        number = (datetime.strptime(day, "%Y%m%d").date() - date(_YEAR, 1, 1)).days
        place = (stations.index(station), slice(number * _HALF_HOURS, (number + 1) * _HALF_HOURS))
        values[place], counts[place] = half_hour_means(packed.read(name))
    times = [datetime(_YEAR, 1, 1) + timedelta(minutes=30) * step for step in range(values.shape[1])]
    np.savez_compressed(
        path,
        data=values,
        count=counts,
        stations=np.array(stations),
        features=np.array(VALUES),
        time=np.array([time.isoformat(timespec="minutes") for time in times]),
    )


def half_hour_means(content: bytes) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
    """Return the (48, 12) means and the (48,) numbers of readings of one station and day."""
    means = np.full((_HALF_HOURS, len(VALUES)), np.nan, np.float32)
    header, _, rows = content.partition(b"\n")
    if header.decode("ascii", errors="replace").strip() != ",".join(("t", *VALUES)):
        raise ValueError("a file of readings by day begins otherwise than expected")
    if not rows.strip():
        return means, np.zeros(_HALF_HOURS, np.uint16)
    table = np.loadtxt(io.BytesIO(rows), delimiter=",", ndmin=2)
    table = table[(table[:, 0] >= 0) & (table[:, 0] < 86_400)]
    half_hour = (table[:, 0] // 1800).astype(np.int64)
    counts = np.bincount(half_hour, minlength=_HALF_HOURS)
    for step in np.flatnonzero(counts):
        means[step] = np.round(table[half_hour == step, 1:].mean(axis=0), 2)
    return means, counts.astype(np.uint16)


def _matching(
    packed: zipfile.ZipFile, pattern: re.Pattern[str], key: Callable[[re.Match[str]], Any]
) -> list[tuple[Any, str]]:
    """Yield (key, member) for every member whose name ends in the given way."""
    return [(key(match), name) for name in packed.namelist() if (match := pattern.search(name))]
