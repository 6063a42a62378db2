"""The Wi-Fi transfers on which ns-3 and async_hfl are compared: distance x bytes x contention, in both directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

Direction = Literal["up", "down"]
Size = Literal["quick", "full"]

STAGGER_S = 0.01
"""Seconds between the starts of two stations. Started in the same nanosecond, all of them would collide."""
_STATION_SPACING_M = 2.0
_LOWEST_TOTAL_RATE = 100_000.0
"""Bytes per second of all stations together; a slower transfer counts as one that never arrives."""


@dataclass(frozen=True, slots=True)
class WifiCase:
    """Stations close to each other at one distance from the gateway, each with one transfer; averaged over `runs`."""

    distance_m: float
    height_m: float
    """Height of the stations and of the gateway."""
    mcs: int
    direction: Direction
    stations: int
    size_bytes: int
    runs: int = 1
    frequency_mhz: float = 5180.0
    transmit_dbm: float = 16.0206

    def requests(self) -> list[dict[str, Any]]:
        """Return the questions for ns-3, one per run."""
        step = _STATION_SPACING_M / max(self.distance_m, 10.0)
        places = [
            [self.distance_m * math.cos(step * i), self.distance_m * math.sin(step * i), self.height_m]
            for i in range(self.stations)
        ]
        return [
            {
                "frequency_mhz": self.frequency_mhz,
                "run": run,
                "stations": places,
                "gateway_z": self.height_m,
                "tx_power_dbm": self.transmit_dbm,
                "mode": f"HtMcs{self.mcs}",
                "direction": self.direction,
                "size_bytes": self.size_bytes,
                "stagger_s": STAGGER_S,
                "limit_s": 10.0 + self.stations * self.size_bytes / _LOWEST_TOTAL_RATE,
            }
            for run in range(1, self.runs + 1)
        ]


@dataclass(frozen=True, slots=True)
class WifiTimes:
    """Mean time of a transfer, and time from the first start to the last end; None if not all transfers arrived."""

    mean_s: float | None
    all_done_s: float | None


def times(answers: Sequence[dict[str, Any]]) -> WifiTimes:
    """Average ns-3's answers to one case over its runs."""
    means, ends = [], []
    for answer in answers:
        seconds = answer["seconds"]
        if None in seconds:
            return WifiTimes(None, None)
        means.append(sum(seconds) / len(seconds))
        ends.append(max(STAGGER_S * i + took for i, took in enumerate(seconds)))
    return WifiTimes(sum(means) / len(means), sum(ends) / len(ends))


def wifi_cases(size: Size) -> list[WifiCase]:
    both: tuple[Direction, ...] = ("up", "down")
    if size == "quick":
        return [WifiCase(50.0, 10.0, 0, way, n, 300_000, 3) for way, n in product(both, (1, 4))]
    # Short concurrent transfers vary most from run to run: one lost packet is a tenth of their time. Average more runs.
    places = ((10.0, 10.0), (150.0, 10.0), (300.0, 25.0))
    cases = [
        WifiCase(distance, height, 0, way, n, size_bytes, 1 if n == 1 else 3 if size_bytes > 100_000 else 10)
        for (distance, height), way, n, size_bytes in product(places, both, (1, 2, 4, 8), (100_000, 600_000))
    ]
    cases += [WifiCase(150.0, 10.0, 0, way, n, 5_000_000) for way, n in product(both, (1, 2, 4, 8))]
    cases += [WifiCase(20.0, 10.0, mcs, way, n, 2_000_000) for mcs, way, n in product((1, 3, 5, 7), both, (1, 4))]
    lossy = ((7, 130.0), (7, 140.0), (7, 150.0), (6, 160.0), (6, 180.0), (5, 190.0))  # far enough that frames are lost
    cases += [WifiCase(distance, 10.0, mcs, "up", 1, 600_000, 3) for mcs, distance in lossy]
    silent = ((7, 165.0, 10.0), (0, 300.0, 10.0), (0, 400.0, 25.0), (0, 900.0, 18.0))  # too far for anything to arrive
    cases += [WifiCase(distance, height, mcs, "up", 1, 100_000) for mcs, distance, height in silent]
    return cases


def case_columns() -> list[str]:
    return list(asdict(WifiCase(1.0, 1.0, 0, "up", 1, 1)))
