"""HPWREN: a year of weather at 26 stations; the task is to predict the next reading of twelve values from the 48
before.

Half-hourly means of 2021 (`hourly=True`: hourly means). A reading counts only if all twelve values are present, and a
window only if its 48 readings and the target follow each other without a gap. The first nine tenths of a station's
windows are for training; testing starts with the first window that shares no reading with them.

Sensors get stuck (wind at 99.9 m/s, rain at 655.35 mm) and jump (-78 degrees). Mean and deviation would be distorted by
such values, so each value is centred by its median and scaled by its quartiles over the training readings of all
stations, and clipped at six deviations of a normal distribution.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.files.catalogue import HPWREN
from async_hfl.learning.datasets.files.parsed_cache import Arrays, load_arrays
from async_hfl.learning.datasets.files.sources import Sources
from async_hfl.learning.datasets.hpwren_files import (
    HALF_HOURLY_FILE,
    HOURLY_FILE,
    Readings,
    read_half_hourly,
    read_hourly,
)
from async_hfl.learning.datasets.samples import Dataset, Samples

WINDOW = 48
TRAIN_SHARE = 0.9
LEFT_OUT = ("BMR", "SCI")
"""BMR never reports rain duration and intensity; SCI reported for half a day only."""
CUT_OFF = 6.0
_VERSION = "weather1"
_QUARTILES_OF_NORMAL = 1.349
"""Distance between the quartiles of a normal distribution, in deviations."""


def load_hpwren(folder: Path | None = None, *, hourly: bool = False) -> Dataset:
    """Read the data set, one owner per station. `folder` names files of your own in the same format."""
    name, read = (HOURLY_FILE, read_hourly) if hourly else (HALF_HOURLY_FILE, read_half_hourly)

    def parse(sources: Sources) -> Arrays:
        return _prepared(read(sources.content(name), str(sources.paths[name])))

    arrays = load_arrays(HPWREN, parse, version=_VERSION, folder=folder, names=[name])
    series = arrays["series"]
    train, test = (
        Samples(series, series[starts + WINDOW], starts, WINDOW)
        for starts in (arrays["train_starts"], arrays["test_starts"])
    )
    return Dataset(
        HPWREN.name,
        train,
        test,
        owner=arrays["owner"],
        test_owner=arrays["test_owner"],
        owner_names=tuple(str(station) for station in arrays["stations"]),
    )


def _prepared(readings: Readings) -> Arrays:
    """Return the complete readings of all stations as one series, and the windows in it."""
    parts: list[npt.NDArray[np.float32]] = []
    trained: list[npt.NDArray[np.float32]] = []
    stations: list[str] = []
    starts: dict[str, list[npt.NDArray[np.int32]]] = {"train": [], "test": []}
    before = 0
    for station, table in zip(readings.stations, readings.values, strict=True):
        whole = np.isfinite(table).all(axis=1)
        train, test = _windows(np.flatnonzero(whole))
        if station in LEFT_OUT or len(train) == 0:
            continue
        rows = table[whole]
        stations.append(station)
        parts.append(rows)
        trained.append(rows[: train[-1] + WINDOW + 1])
        starts["train"].append((before + train).astype(np.int32))
        starts["test"].append((before + test).astype(np.int32))
        before += len(rows)
    if not stations:
        raise DataError(f"hpwren: no station has {WINDOW + 1} whole readings in a row")
    owners = {
        part: np.repeat(np.arange(len(stations), dtype=np.int32), [len(windows) for windows in each])
        for part, each in starts.items()
    }
    return {
        "series": _normalised(np.concatenate(parts), np.concatenate(trained)),
        "train_starts": np.concatenate(starts["train"]),
        "test_starts": np.concatenate(starts["test"]),
        "owner": owners["train"],
        "test_owner": owners["test"],
        "stations": np.array(stations),
    }


def _windows(times: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the starts of a station's windows among its complete readings, for training and for testing."""
    first = np.arange(max(0, len(times) - WINDOW))
    without_gap = first[times[first + WINDOW] - times[first] == WINDOW]
    train = without_gap[: round(TRAIN_SHARE * len(without_gap))]
    later = without_gap[len(train) :]
    return train, later[later > train[-1] + WINDOW] if len(train) else later


def _normalised(table: npt.NDArray[np.float32], train: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    median = np.median(train.astype(np.float64), axis=0)
    scale = np.array([_scale(column, middle) for column, middle in zip(train.T, median, strict=True)])
    inputs: npt.NDArray[np.float32] = np.clip((table - median) / scale, -CUT_OFF, CUT_OFF).astype(np.float32)
    return inputs


def _scale(column: npt.NDArray[np.float32], median: float) -> float:
    """Return one deviation, estimated by the quartiles. Since it seldom rains, readings at the median are ignored if
    needed."""
    for values in (column, column[column != median]):
        if len(values):
            low, high = np.quantile(values.astype(np.float64), [0.25, 0.75])
            if high > low:
                return float(high - low) / _QUARTILES_OF_NORMAL
    return 1.0
