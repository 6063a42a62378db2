"""Path loss by hand, its dependence on distance, and invalid input."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError, SettingsError
from async_hfl.network.radio.propagation.hybrid_buildings import Indoors, path_loss, straight_line
from async_hfl.network.radio.propagation.indoors import Building, Rooms
from async_hfl.network.radio.propagation.itu_1411 import over_rooftops
from async_hfl.network.radio.propagation.surroundings import Surroundings

PAPER = Surroundings()
AT_5_GHZ = Surroundings(frequency_mhz=5180.0)


def loss(distance: float, height_a: float, height_b: float, around: Surroundings = PAPER) -> float:
    return float(path_loss(np.array([distance]), np.array([height_a]), np.array([height_b]), around)[0])


def test_line_of_sight_by_hand() -> None:
    """At 2160 MHz lambda is 0.13879 m; both at 10 m the breakpoint is 2,882 m, where the bounds are 102.31 and 122.31
    dB: 100 m are 1.4597 decades nearer at 22.5 dB each."""
    wavelength = 299_792_458 / 2160e6
    breakpoint_m = 4 * 100 / wavelength
    at_breakpoint = abs(20 * math.log10(wavelength**2 / (8 * math.pi * 100)))
    by_hand = at_breakpoint + 10 + 22.5 * math.log10(100 / breakpoint_m)
    assert by_hand == pytest.approx(79.47, abs=0.01)
    assert loss(100.0, 10.0, 10.0) == pytest.approx(by_hand, abs=1e-9)
    assert loss(breakpoint_m * 10, 10.0, 10.0, replace(PAPER, line_of_sight_limit_m=1e9)) == pytest.approx(
        at_breakpoint + 10 + 40, abs=1e-9
    )


def test_above_the_roofs_it_is_free_space() -> None:
    assert loss(500.0, 30.0, 40.0) == pytest.approx(32.4 + 20 * math.log10(0.5) + 20 * math.log10(2160), abs=1e-9)


def test_whole_cells_by_hand() -> None:
    """COST 231 at 2160 MHz (large city: + 3, a = 3.2 log10(11.75 h_m)^2) and Kun above 2.3 GHz, at 2 km."""
    a = 3.2 * math.log10(11.75 * 10) ** 2
    cost = (
        46.3 + 33.9 * math.log10(2160) - 13.82 * math.log10(50) + (44.9 - 6.55 * math.log10(50)) * math.log10(2) - a + 3
    )
    assert loss(2000.0, 10.0, 50.0) == pytest.approx(cost, abs=1e-9)
    assert loss(2000.0, 10.0, 50.0, AT_5_GHZ) == pytest.approx(36 + 26 * math.log10(2000), abs=1e-9)


HEIGHTS = st.floats(1.0, 120.0)


@given(HEIGHTS, HEIGHTS, st.floats(1.0, 5000.0), st.floats(1.001, 3.0))
def test_further_is_never_better_within_a_model(
    height_a: float, height_b: float, distance: float, factor: float
) -> None:
    """Within a regime: below 200 m, up to 1 km, beyond; over roofs only with the base at roof height or above (below
    it, ns-3's two formulas for rows of buildings do not agree)."""
    further = distance * factor

    def regime(metres: float) -> int:
        return (metres >= 200.0) + (metres > 1000.0)

    if regime(distance) != regime(further):
        return
    if regime(distance) == 1 and max(height_a, height_b) < 21.0:
        return
    if regime(distance) == 2 and max(height_a, height_b) < 20.0:
        return
    if regime(distance) == 1:
        wavelength, above = PAPER.wavelength_m, (max(height_a, height_b) - 20.0) ** 2
        if (wavelength * distance**2 < 80 * above) != (wavelength * further**2 < 80 * above):
            return
    assert loss(further, height_a, height_b) >= loss(distance, height_a, height_b) - 1e-9


@given(HEIGHTS, HEIGHTS, st.floats(10.0, 5000.0), st.sampled_from([PAPER, AT_5_GHZ]))
def test_loss_is_continuous_within_a_model(
    height_a: float, height_b: float, distance: float, around: Surroundings
) -> None:
    """Continuous except at 200 m, at 1 km, and at the change of formula over the roofs."""
    near, far = distance, distance * (1 + 1e-9)
    above = (max(height_a, height_b) - 20.0) ** 2 * 80
    switch = (around.wavelength_m * near**2 < above) != (around.wavelength_m * far**2 < above)
    if switch or any(near <= limit <= far for limit in (200.0, 1000.0)):
        return
    assert loss(far, height_a, height_b, around) == pytest.approx(loss(near, height_a, height_b, around), abs=1e-5)


def test_the_jump_at_a_kilometre() -> None:
    """A known discontinuity: the models of streets and of cells do not agree. Between low radios there is none."""
    assert loss(1000.0, 10.0, 50.0) == pytest.approx(131.454, abs=1e-3)
    assert loss(1000.001, 10.0, 50.0) == pytest.approx(125.146, abs=1e-3)
    assert loss(1000.0, 30.0, 50.0) == pytest.approx(99.089, abs=1e-3)
    assert loss(1000.001, 30.0, 50.0) == pytest.approx(118.097, abs=1e-3)
    assert loss(1000.001, 10.0, 15.0) == pytest.approx(loss(1000.0, 10.0, 15.0), abs=1e-3)


@given(HEIGHTS, HEIGHTS, st.floats(1.0, 199.0))
def test_in_line_of_sight_the_order_does_not_matter(height_a: float, height_b: float, distance: float) -> None:
    assert loss(distance, height_a, height_b) == pytest.approx(loss(distance, height_b, height_a), abs=1e-12)


def test_whole_arrays_are_the_rows_one_by_one() -> None:
    random = np.random.default_rng(1)
    distance = np.exp(random.uniform(0, 9, 500))
    heights = random.uniform(1, 60, (2, 500))
    together = path_loss(distance, *heights)
    assert together.tolist() == [loss(*row) for row in np.stack([distance, *heights], 1).tolist()]


def test_more_than_one_block() -> None:
    distance = np.linspace(10.0, 4000.0, 70_000)
    heights = np.full(70_000, 12.0)
    losses = path_loss(distance, heights, heights)
    assert losses[-1] == loss(4000.0, 12.0, 12.0)
    assert losses[40_000] == loss(float(distance[40_000]), 12.0, 12.0)


def test_loss_is_never_negative() -> None:
    assert loss(0.001, 30.0, 30.0) == 0.0


def rooms(*places: tuple[int, int, int, int]) -> Rooms:
    return Rooms(*(np.array(column) for column in zip(*places, strict=True)))


def indoor_loss(distance: float, one: Rooms, other: Rooms, *buildings: Building) -> Floats:
    height = np.full(1, 10.0)
    return path_loss(np.array([distance]), height, height, PAPER, Indoors(one, other, buildings))


STREET = Rooms.outdoors(1)


def test_within_a_building_by_hand() -> None:
    """P.1238 in an office: 20 log10(2160) + 30 log10(20) + 15 + 4 for two floors, - 28, and 3 walls of 5 dB."""
    by_hand = 20 * math.log10(2160) + 30 * math.log10(20) + 19 - 28 + 15
    made = indoor_loss(20.0, rooms((0, 1, 1, 1)), rooms((0, 3, 3, 2)), Building("office"))
    assert made[0] == pytest.approx(by_hand, abs=1e-9)
    same_room = indoor_loss(20.0, rooms((0, 1, 1, 1)), rooms((0, 1, 1, 1)), Building("residential"))
    assert same_room[0] == pytest.approx(20 * math.log10(2160) + 28 * math.log10(20) - 28, abs=1e-9)


def test_walls_and_floors_by_hand() -> None:
    outside = loss(150.0, 10.0, 10.0)
    third_floor = rooms((0, 3, 1, 1))
    wood, stone = Building(outer_wall="wood"), Building(outer_wall="stone-blocks")
    assert indoor_loss(150.0, third_floor, STREET, wood)[0] == pytest.approx(outside + 4 - 2 * 2)
    assert indoor_loss(150.0, STREET, third_floor, stone)[0] == pytest.approx(outside + 12 - 2 * 2)
    both = indoor_loss(150.0, third_floor, rooms((1, 5, 1, 1)), wood, stone)
    assert both[0] == pytest.approx(outside + 4 + 12)
    assert indoor_loss(150.0, STREET, STREET)[0] == outside


def test_straight_line() -> None:
    assert straight_line(np.array([3.0]), np.array([4.0]), np.array([12.0])).tolist() == [13.0]


def test_over_rooftops_never_beats_free_space() -> None:
    distance = np.linspace(200.0, 1000.0, 100)
    heights = np.linspace(2.0, 80.0, 100)
    free = 32.4 + 20 * np.log10(distance / 1000) + 20 * math.log10(2160)
    assert (over_rooftops(distance, heights, heights[::-1], PAPER) >= free - 1e-9).all()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("frequency_mhz", 0.0, "frequency_mhz = 0.0 is not a positive number"),
        ("frequency_mhz", math.nan, "frequency_mhz = nan"),
        ("rooftop_m", -1.0, "rooftop_m"),
        ("building_separation_m", math.inf, "building_separation_m"),
        ("line_of_sight_limit_m", -5.0, "not a number, 0 or more"),
        ("street_orientation_deg", 91.0, "0..90 degrees"),
        ("environment", "rural", "choose from urban, suburban, open-areas"),
        ("city_size", "huge", "choose from small, medium, large"),
    ],
)
def test_surroundings_are_checked(field: str, value: float | str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        replace(PAPER, **{field: value})


def test_bad_pairs_are_named() -> None:
    one, two = np.array([1.0, 2.0]), np.array([1.0, -2.0])
    with pytest.raises(DataError, match=r"pair 1 has distance -2\.0"):
        path_loss(two, one, one)
    with pytest.raises(DataError, match="pair 1 has height nan"):
        path_loss(one, np.array([1.0, math.nan]), one)
    with pytest.raises(DataError, match="give one of each for every pair"):
        path_loss(one, one[:1], one)


def test_bad_rooms_are_named() -> None:
    with pytest.raises(DataError, match="radio 0 is on floor 0"):
        rooms((0, 0, 1, 1))
    with pytest.raises(DataError, match="building 2 of 1"):
        Indoors(rooms((2, 1, 1, 1)), STREET, [Building()])
    with pytest.raises(DataError, match="columns of shapes"):
        Rooms(np.zeros(2, int), np.ones(1, int), np.ones(1, int), np.ones(1, int))
    with pytest.raises(SettingsError, match="outer_wall = 'glass'"):
        Building(outer_wall="glass")  # type: ignore[arg-type]
