"""Records the golden values of the network from ns-3 3.44: `python tests/golden/make_ns3_golden.py [PYTHON_WITH_NS3]`.

Writes ns3_path_loss_branches.csv (every branch of the propagation model), ns3_frame_success.csv (error rates) and
ns3_wifi.csv (transfer times; takes half an hour). All values come from ns-3; this script only chooses the cases.
(ns3_path_loss.csv was recorded earlier, in the same way.)
"""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from ns3_golden import BRANCHES, ERRORS, SETTINGS, WIFI

from ns3_probe.ask import ask
from ns3_probe.transfers import case_columns, times, wifi_cases

USES = ("residential", "office", "commercial")
WALLS = ("wood", "concrete-with-windows", "concrete-without-windows", "stone-blocks")
CITIES = ("small", "medium", "large")
ENVIRONMENTS = ("urban", "suburban", "open-areas")
FREQUENCIES = (100, 150, 199, 200, 450, 900, 925, 1500, 1501, 1800, 2000, 2001, 2160, 2300, 2301, 2600, 5180, 5825)


def outdoor_cases(random: np.random.Generator) -> list[dict[str, Any]]:
    """Return random settings with six pairs each, some of them exactly at a threshold."""
    cases = []
    for number in range(90):
        roof = float(random.choice([20.0, 20.0, 6.0, 35.5]))
        near = float(random.choice([200.0, 200.0, 50.0, 600.0, 1500.0]))
        case: dict[str, Any] = {
            "frequency_mhz": float(FREQUENCIES[number % len(FREQUENCIES)]),
            "environment": ENVIRONMENTS[number % 3],
            "city_size": CITIES[(number // 3) % 3],
            "rooftop_m": roof,
            "line_of_sight_limit_m": near,
            "street_orientation_deg": float(random.choice([0.0, 20.0, 35.0, 45.0, 55.0, 70.0, 90.0])),
            "street_width_m": float(random.choice([20.0, 8.0, 31.5])),
            "building_extent_m": float(random.choice([80.0, 500.0, 5000.0])),
            "building_separation_m": float(random.choice([50.0, 20.0, 75.0])),
        }
        pairs = []
        for _ in range(6):
            distance = float(np.round(np.exp(random.uniform(np.log(1.0), np.log(6000.0))), 2))
            distance = float(random.choice([distance, distance, distance, near, 1000.0, 500.0]))
            heights = [
                float(
                    random.choice([np.round(random.uniform(0.5, 15.0), 2), np.round(random.uniform(5, 120), 2), roof])
                )
                for _ in range(2)
            ]
            pairs.append([distance, 0.0, heights[0], 0.0, 0.0, heights[1]])
        cases.append({**case, "pairs": pairs})
    return cases


def indoor_cases(random: np.random.Generator) -> list[dict[str, Any]]:
    """Return cases of two buildings at some distance: pairs within one, between both, and with the street."""
    cases = []
    for number in range(24):
        far = float(random.choice([100.0, 400.0, 900.0, 1500.0]))
        buildings = [
            {
                "bounds": [at, at + 40.0, 0.0, 30.0, 0.0, 36.0],
                "use": USES[(number + index) % 3],
                "outer_wall": WALLS[(number + 3 * index) % 4],
                "floors": int(random.choice([3, 9, 12])),
                "rooms_x": int(random.choice([1, 4, 5])),
                "rooms_y": int(random.choice([1, 3])),
            }
            for index, at in enumerate((100.0, 140.0 + far))
        ]
        inside = [
            [float(np.round(at + random.uniform(0.5, 39.5), 2)), float(np.round(random.uniform(0.5, 29.5), 2))]
            for at in (100.0, 100.0, 140.0 + far)
        ]
        heights = [float(np.round(random.uniform(0.5, 35.5), 2)) for _ in range(3)]
        one, neighbour, other = ([*place, height] for place, height in zip(inside, heights, strict=True))
        street = [50.0, -20.0, float(random.choice([1.5, 10.0, 25.0, 60.0]))]
        distant = [-1400.0, 0.0, float(random.choice([1.5, 10.0, 25.0, 60.0]))]
        pairs = [
            [*one, *neighbour],
            [*one, *other],
            [*one, *street],
            [*street, *other],
            [*one, *distant],
            [*distant, *other],
        ]
        cases.append(
            {
                "frequency_mhz": float(random.choice([700.0, 1800.0, 2160.0, 2600.0, 5180.0])),
                "inner_wall_db": float(random.choice([5.0, 3.5])),
                "buildings": buildings,
                "pairs": pairs,
            }
        )
    return cases


def branch_rows(cases: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[list[Any]]:
    rows = []
    for case, answer in zip(cases, answers, strict=True):
        settings = [case.get(name, "") for name in SETTINGS]
        for pair, loss, rooms in zip(case["pairs"], answer["path_loss_db"], answer["rooms"], strict=True):
            ends = []
            for room in rooms:
                box = case["buildings"][room[0]] if room else {"use": "", "outer_wall": ""}
                ends += [*(room or ["", "", "", ""]), box["use"], box["outer_wall"]]
            rows.append([*settings, *pair, *ends, loss])
    return rows


def write(path: Path, how: str, header: list[str], rows: list[list[Any]]) -> None:
    with path.open("w", newline="") as file:
        file.write(f"# {how}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def path_losses(python: Path | None) -> None:
    random = np.random.default_rng(20261115)
    cases = [*outdoor_cases(random), *indoor_cases(random)]
    answers = ask({"path_loss": cases}, python)["path_loss"]
    ends = [f"{end}_{name}" for end in "ab" for name in ("building", "floor", "room_x", "room_y", "use", "outer_wall")]
    header = [*SETTINGS, "ax", "ay", "az", "bx", "by", "bz", *ends, "path_loss_db"]
    how = "ns-3 3.44 HybridBuildingsPropagationLossModel, no shadowing, made by make_ns3_golden.py; empty: default"
    write(BRANCHES, how, header, branch_rows(cases, answers))


def frame_successes(python: Path | None) -> None:
    cases = [
        {"mcs": mcs, "bits": 8 * size, "snr_db": [float(snr) for snr in np.arange(-2.0, 30.0, 1.0)]}
        for mcs in range(8)
        for size in (90, 1114)
    ]
    answers = ask({"success": cases}, python)["success"]
    rows = [
        [case["mcs"], case["bits"], snr, chance]
        for case, answer in zip(cases, answers, strict=True)
        for snr, chance in zip(case["snr_db"], answer["success"], strict=True)
    ]
    how = "ns-3 3.44 YansErrorRateModel, 20 MHz, long guard interval, made by make_ns3_golden.py"
    write(ERRORS, how, ["mcs", "bits", "snr_db", "success"], rows)


def transfers(python: Path | None) -> None:
    cases = wifi_cases("full")
    requests = [case.requests() for case in cases]
    answers = iter(ask({"wifi": [request for runs in requests for request in runs]}, python)["wifi"])
    rows = []
    for case, runs in zip(cases, requests, strict=True):
        took = times([next(answers) for _ in runs])
        rows.append([*asdict(case).values(), *("" if value is None else value for value in asdict(took).values())])
    how = "ns-3 3.44 ad hoc 802.11n at 5 GHz, YansErrorRate, TCP in segments of 1024 bytes, made by make_ns3_golden.py"
    write(WIFI, how, [*case_columns(), "mean_s", "all_done_s"], rows)


def main() -> None:
    python = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    wanted = sys.argv[2:] or ["path-loss", "success", "wifi"]
    for name, make in (("path-loss", path_losses), ("success", frame_successes), ("wifi", transfers)):
        if name in wanted:
            make(python)


if __name__ == "__main__":
    main()
