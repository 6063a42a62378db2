"""The network model against values recorded from ns-3 3.44 (make_ns3_golden.py)."""

from __future__ import annotations

import numpy as np
import pytest
from ns3_golden import BRANCHES, ERRORS, GIVEN, SETTINGS, WIFI, rows

from async_hfl.network.radio.pair_losses import pair_losses, read_pairs
from async_hfl.network.radio.propagation.hybrid_buildings import Indoors, path_loss, straight_line
from async_hfl.network.radio.propagation.indoors import Building, Rooms
from async_hfl.network.radio.propagation.surroundings import Surroundings
from async_hfl.network.radio.wifi.error_rate import frame_success
from async_hfl.network.radio.wifi.modes import modes
from ns3_probe.prediction import predicted
from ns3_probe.transfers import WifiCase, WifiTimes, case_columns
from ns3_validation import LOSS_LIMIT_DB, TIME_LIMIT, TimeDifference

ENDS = ("building", "floor", "room_x", "room_y")


@pytest.mark.parametrize("frequency", [2160, 5180])
def test_path_loss_of_150_pairs(frequency: int) -> None:
    golden = [float(row[f"path_loss_db_{frequency}MHz"]) for row in rows(GIVEN)]
    losses = pair_losses(read_pairs(GIVEN), Surroundings(frequency_mhz=frequency))
    assert len(golden) == 150
    assert np.abs(losses - golden).max() < LOSS_LIMIT_DB


def branch_loss(row: dict[str, str]) -> float:
    words = {name: row[name] for name in ("environment", "city_size") if row[name]}
    numbers = {name: float(row[name]) for name in SETTINGS if row[name] and name not in words}
    a, b = (np.array([[float(row[f"{end}{axis}"])] for axis in "xyz"]) for end in "ab")
    buildings = [Building(), Building()]
    rooms = []
    for end in "ab":
        if row[f"{end}_building"]:
            place = [int(row[f"{end}_{name}"]) for name in ENDS]
            buildings[place[0]] = Building(row[f"{end}_use"], row[f"{end}_outer_wall"])  # type: ignore[arg-type]
            rooms.append(Rooms(*(np.array([number]) for number in place)))
        else:
            rooms.append(Rooms.outdoors(1))
    around = Surroundings(**numbers, **words)  # type: ignore[arg-type]
    return float(path_loss(straight_line(*(a - b)), a[2], b[2], around, Indoors(*rooms, buildings))[0])


def test_path_loss_in_every_branch() -> None:
    """Eighteen frequencies, all environments, streets, exact thresholds, heights at roof level, rooms and walls."""
    golden = rows(BRANCHES)
    wrong = [row for row in golden if not abs(branch_loss(row) - float(row["path_loss_db"])) < LOSS_LIMIT_DB]
    assert wrong == []
    assert sum(bool(row["a_building"] or row["b_building"]) for row in golden) > 100
    assert len(golden) > 600


def test_outdoor_rows_need_no_rooms() -> None:
    for row in rows(BRANCHES)[:50]:
        assert not row["a_building"]
        a, b = (np.array([[float(row[f"{end}{axis}"])] for axis in "xyz"]) for end in "ab")
        words = {name: row[name] if name in ("environment", "city_size") else float(row[name]) for name in SETTINGS[:9]}
        around = Surroundings(**words)  # type: ignore[arg-type]
        loss = path_loss(straight_line(*(a - b)), a[2], b[2], around)[0]
        assert loss == pytest.approx(float(row["path_loss_db"]), abs=LOSS_LIMIT_DB)


def test_frame_success() -> None:
    """Within 1e-5: ns-3 counts its rates in whole bits per second and loses a few digits of the exponent."""
    by_mcs = modes()
    for row in rows(ERRORS):
        ours = frame_success(by_mcs[int(row["mcs"])], np.array([float(row["snr_db"])]), int(row["bits"]) // 8)[0]
        assert ours == pytest.approx(float(row["success"]), abs=1e-5), row


def transfers() -> list[TimeDifference]:
    found = []
    for row in rows(WIFI):
        given = {name: row[name] if name == "direction" else float(row[name]) for name in case_columns()}
        for name in ("mcs", "stations", "size_bytes", "runs"):
            given[name] = int(given[name])
        case = WifiCase(**given)  # type: ignore[arg-type]
        mean, done = (float(row[name]) if row[name] else None for name in ("mean_s", "all_done_s"))
        found.append(TimeDifference(case, WifiTimes(mean, done), predicted(case)))
    return found


def test_wifi_transfer_times() -> None:
    """Distance x bytes x contention: the mean time of a transfer is within 15 % everywhere, and transfers that never
    arrive agree. The last end of several transfers agrees as well, except for eight uploads at once, where ns-3's
    last one may wait for TCP's timer, one second each time."""
    found = transfers()
    assert [row for row in found if not row.within(TIME_LIMIT)] == []
    late = [row for row in found if row.all_done is None or abs(row.all_done) > TIME_LIMIT]
    assert {(row.case.direction, row.case.stations) for row in late} <= {("up", 8)}
    assert len(late) <= 4
    cases = [row.case for row in found]
    assert {case.stations for case in cases} == {1, 2, 4, 8}
    assert len({case.distance_m for case in cases}) >= 8
    assert {100_000, 600_000, 5_000_000} <= {case.size_bytes for case in cases}
    assert sum(row.ns3.mean_s is None for row in found) == 4
