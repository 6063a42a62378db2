"""Comparison of async_hfl's path loss and Wi-Fi model with ns-3: the same pairs of places and the same transfers.

    pip install -e '.[ns3]'                       # Linux, 520 MB, GPL
    python benchmarks/ns3_validation.py           # half an hour; --quick for one or two minutes
    python benchmarks/ns3_validation.py --python PATH_OF_A_PYTHON_THAT_HAS_NS3

`async-hfl network validate` runs this script. Exit code 0: all differences are within the limits, 1: not all, 2: error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.errors import UserError
from async_hfl.core.randomness import stream
from async_hfl.network.radio.propagation.hybrid_buildings import path_loss, straight_line
from async_hfl.network.radio.propagation.surroundings import CitySize, Environment, Surroundings
from ns3_probe.ask import ask
from ns3_probe.prediction import predicted
from ns3_probe.transfers import Size, WifiCase, WifiTimes, times, wifi_cases

LOSS_LIMIT_DB = 1e-6
TIME_LIMIT = 0.15
"""Relative to ns-3's time."""

_SURROUNDINGS: tuple[tuple[float, Environment, CitySize], ...] = (
    (900.0, "suburban", "medium"),
    (1800.0, "open-areas", "small"),
    (2160.0, "urban", "large"),
    (2600.0, "urban", "large"),
    (5180.0, "urban", "large"),
)


@dataclass(frozen=True, slots=True)
class LossDifference:
    """Largest difference in path loss over the pairs in one kind of surroundings."""

    frequency_mhz: float
    environment: str
    city_size: str
    pairs: int
    worst_db: float


@dataclass(frozen=True, slots=True)
class TimeDifference:
    case: WifiCase
    ns3: WifiTimes
    ours: WifiTimes

    @property
    def mean(self) -> float | None:
        """Difference relative to ns-3; 0 if nothing arrives in either model, None if it arrives in only one of them."""
        return _relative(self.ours.mean_s, self.ns3.mean_s)

    @property
    def all_done(self) -> float | None:
        return _relative(self.ours.all_done_s, self.ns3.all_done_s)

    def within(self, limit: float = TIME_LIMIT) -> bool:
        """True if the mean time is within the limit. The last end is not tested: it depends on single lost packets."""
        return self.mean is not None and abs(self.mean) <= limit


@dataclass(frozen=True, slots=True)
class Comparison:
    losses: list[LossDifference]
    transfers: list[TimeDifference]

    @property
    def agrees(self) -> bool:
        return all(row.worst_db <= LOSS_LIMIT_DB for row in self.losses) and all(row.within() for row in self.transfers)

    def as_json(self) -> dict[str, Any]:
        return {
            "agrees": self.agrees,
            "loss_limit_db": LOSS_LIMIT_DB,
            "time_limit": TIME_LIMIT,
            "path_loss": [asdict(row) for row in self.losses],
            "transfers": [
                {
                    **asdict(row.case),
                    "ns3_mean_s": row.ns3.mean_s,
                    "ours_mean_s": row.ours.mean_s,
                    "ns3_all_done_s": row.ns3.all_done_s,
                    "ours_all_done_s": row.ours.all_done_s,
                    "within": row.within(),
                }
                for row in self.transfers
            ],
        }


Ask = Callable[[dict[str, Any]], dict[str, Any]]


def compare(size: Size, python: Path | None = None, put: Ask | None = None) -> Comparison:
    """Compare ns-3, asked everything in one request, with async_hfl. Tests replace ns-3 by `put`."""
    loss_cases = _loss_cases(100 if size == "quick" else 1000)
    cases = wifi_cases(size)
    requests = [case.requests() for case in cases]
    question = {"path_loss": loss_cases, "wifi": [request for runs in requests for request in runs]}
    answer = put(question) if put is not None else ask(question, python)
    answers = iter(answer["wifi"])
    return Comparison(
        [_loss_difference(case, reply) for case, reply in zip(loss_cases, answer["path_loss"], strict=True)],
        [
            TimeDifference(case, times([next(answers) for _ in runs]), predicted(case))
            for case, runs in zip(cases, requests, strict=True)
        ],
    )


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    yield "path loss: worst difference from ns-3"
    for row in comparison.losses:
        where = f"{row.frequency_mhz:6.0f} MHz  {row.environment:<10} {row.city_size:<6}"
        yield f"  {where} {row.pairs} pairs  {row.worst_db:.1e} dB"
    yield "Wi-Fi transfers: seconds, ns-3 / ours (mean of a transfer; from the first start to the last end)"
    for line in comparison.transfers:
        case = line.case
        size = f"{case.size_bytes / 1e3:6.0f} kB"
        what = f"{case.distance_m:4.0f} m  MCS {case.mcs}  {case.stations} {case.direction:<4} {size}"
        mean = _beside(line.ns3.mean_s, line.ours.mean_s, line.mean)
        done = _beside(line.ns3.all_done_s, line.ours.all_done_s, line.all_done)
        yield f"  {what}  {mean}  {done}{'' if line.within() else '  beyond the limit'}"
    limits = f"{LOSS_LIMIT_DB:.0e} dB, {TIME_LIMIT:.0%}"
    yield f"{'all within' if comparison.agrees else 'NOT all within'} the limits ({limits})"


def _beside(ns3: float | None, ours: float | None, difference: float | None) -> str:
    one, two = ("   never" if value is None else f"{value:8.3f}" for value in (ns3, ours))
    return f"{one} / {two.strip():<7} ({'?' if difference is None else f'{difference:+.1%}'})"


def _relative(ours: float | None, ns3: float | None) -> float | None:
    if ours is None or ns3 is None:
        return 0.0 if ours is None and ns3 is None else None
    return ours / ns3 - 1.0


def _loss_cases(pairs: int) -> list[dict[str, Any]]:
    random = stream(1, "network", "validate")
    cases = []
    for frequency, environment, city_size in _SURROUNDINGS:
        distance = np.exp(random.uniform(np.log(5.0), np.log(5000.0), pairs))
        angle = random.uniform(0.0, 2.0 * np.pi, pairs)
        heights = np.exp(random.uniform(np.log(1.0), np.log(120.0), (2, pairs)))
        zero = np.zeros(pairs)
        rows = np.stack([distance * np.cos(angle), distance * np.sin(angle), heights[0], zero, zero, heights[1]], 1)
        cases.append(
            {
                "frequency_mhz": frequency,
                "environment": environment,
                "city_size": city_size,
                "rooftop_m": 20.0,
                "pairs": rows.round(3).tolist(),
            }
        )
    return cases


def _loss_difference(case: dict[str, Any], reply: dict[str, Any]) -> LossDifference:
    x, y, height_a, _, _, height_b = np.array(case["pairs"]).T
    around = Surroundings(case["frequency_mhz"], case["environment"], case["city_size"], case["rooftop_m"])
    ours = path_loss(straight_line(x, y, height_a - height_b), height_a, height_b, around)
    worst = float(np.abs(ours - np.array(reply["path_loss_db"])).max())
    return LossDifference(around.frequency_mhz, around.environment, around.city_size, len(ours), worst)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only a few transfers")
    parser.add_argument("--python", type=Path, metavar="PATH", help="a Python that has ns3 (default: this one)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    try:
        comparison = compare("quick" if options.quick else "full", options.python)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(comparison.as_json()) if options.json else "\n".join(comparison_lines(comparison)))
    return 0 if comparison.agrees else 1


if __name__ == "__main__":
    sys.exit(main())
