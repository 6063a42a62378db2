"""The grid finds the same neighbours as a full table of distances."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import InvariantViolation
from async_hfl.network.radio.spatial_index import GatewayGrid


def by_table(gateway_x: np.ndarray, gateway_y: np.ndarray, x: np.ndarray, y: np.ndarray, count: int) -> np.ndarray:
    distance = np.hypot(x[:, None] - gateway_x, y[:, None] - gateway_y)
    return np.argsort(distance, axis=1, kind="stable")[:, :count]


@pytest.mark.parametrize("shape", ["square", "line", "point", "clusters", "lattice"])
@pytest.mark.parametrize(("gateways", "count"), [(1, 1), (7, 3), (100, 10), (300, 40), (50, 50)])
def test_the_nearest_gateways_are_those_of_a_full_table(shape: str, gateways: int, count: int) -> None:
    random = np.random.default_rng(gateways)
    gateway_x, gateway_y = random.uniform(0, 1000, gateways), random.uniform(0, 500, gateways)
    if shape == "line":
        gateway_y[:] = 3.0
    elif shape == "point":
        gateway_x[:], gateway_y[:] = 5.0, 6.0
    elif shape == "clusters":
        gateway_x[: gateways // 2] += 1e6
    elif shape == "lattice":  # many at the same distance
        gateway_x, gateway_y = np.round(gateway_x, -2), np.round(gateway_y, -2)
    x, y = random.uniform(-2000, 3000, 200), random.uniform(-2000, 3000, 200)
    x[:100], y[:100] = random.uniform(0, 1000, 100), random.uniform(0, 500, 100)
    found = GatewayGrid(gateway_x, gateway_y).nearest(x, y, count)
    assert found.tolist() == by_table(gateway_x, gateway_y, x, y, count).tolist()


def test_invalid_queries() -> None:
    one = np.zeros(1)
    with pytest.raises(InvariantViolation, match="the 2 nearest of 1 gateways"):
        GatewayGrid(one, one).nearest(one, one, 2)
    with pytest.raises(InvariantViolation, match="a grid of 0 x and 0 y"):
        GatewayGrid(np.zeros(0), np.zeros(0))
