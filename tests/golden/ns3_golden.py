"""Files with the values recorded from ns-3, their columns, and access to benchmarks/ns3_probe."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "benchmarks"))
GIVEN = HERE / "ns3_path_loss.csv"
BRANCHES = HERE / "ns3_path_loss_branches.csv"
ERRORS = HERE / "ns3_frame_success.csv"
WIFI = HERE / "ns3_wifi.csv"
SETTINGS = (
    "frequency_mhz",
    "environment",
    "city_size",
    "rooftop_m",
    "line_of_sight_limit_m",
    "street_orientation_deg",
    "street_width_m",
    "building_extent_m",
    "building_separation_m",
    "inner_wall_db",
)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
