"""Files of the values recorded from ns-3, and their columns."""

from __future__ import annotations

import csv
from pathlib import Path

HERE = Path(__file__).parent
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
