from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import DataError
from async_hfl.core.topology import feasible_links
from async_hfl.network.delays.rates import RateDelays
from async_hfl.network.description import NetworkDescription
from async_hfl.network.link_lookup import LinkLookup, compact
from async_hfl.network.positions import MapFrame, Positions

LINKS = feasible_links(2, 3, np.array([0, 1, 1]), np.array([2, 0, 1]), np.array([5.0, 6.0, 7.0]))
DELAYS = RateDelays(
    LinkLookup.of(LINKS),
    compact(np.array([10.0, 20.0, 40.0])),
    compact(np.array([1.0, 2.0, 4.0])),
    0.5,
    compact(np.array([3.0, 4.0])),
    compact(np.array([100.0, 200.0, 400.0])),
    0.25,
)


def place(devices: int, gateways: int) -> Positions:
    return Positions(np.zeros(devices), np.zeros(devices), np.zeros(gateways), np.zeros(gateways), estimated=False)


def test_a_description_keeps_its_arguments() -> None:
    network = NetworkDescription("small", LINKS, np.array([3.0, 4.0]), DELAYS, place(2, 3))
    assert network.name == "small"
    assert network.links is LINKS
    assert network.delays.compute(1) == 4.0


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (np.array([1.0]), r"network small: compute times of shape \(1,\) for 2 devices"),
        (np.array([1.0, -1.0]), "network small, device 1: compute time -1.0"),
        (np.array([np.nan, 1.0]), "network small, device 0: compute time nan"),
    ],
)
def test_wrong_compute_times_are_named(compute: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        NetworkDescription("small", LINKS, compute, DELAYS)


@pytest.mark.parametrize(
    ("positions", "message"),
    [(place(3, 3), "3 device positions for 2 devices"), (place(2, 1), "1 gateway positions for 3 gateways")],
)
def test_positions_must_fit_the_network(positions: Positions, message: str) -> None:
    with pytest.raises(DataError, match=message):
        NetworkDescription("small", LINKS, np.ones(2), DELAYS, positions)


def test_positions_come_in_pairs_and_are_finite() -> None:
    with pytest.raises(DataError, match="device positions: x has shape"):
        Positions(np.zeros(2), np.zeros(3), np.zeros(1), np.zeros(1), estimated=False)
    with pytest.raises(DataError, match="gateway 1: position"):
        Positions(np.zeros(1), np.zeros(1), np.zeros(2), np.array([0.0, np.inf]), estimated=False)


def test_coordinates_are_converted_there_and_back() -> None:
    frame = MapFrame(-74.0, 40.7, 85_000.0, 111_000.0)
    x, y = frame.to_metres(np.array([-73.99]), np.array([40.69]))
    np.testing.assert_allclose((x[0], y[0]), (850.0, -1110.0), rtol=1e-9)
    np.testing.assert_allclose(frame.to_degrees(x, y), [[-73.99], [40.69]], rtol=1e-12)
