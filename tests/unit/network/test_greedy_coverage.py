"""The choice of gateways by greedy coverage, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import InvariantViolation
from async_hfl.network.topologies.nycmesh import greedy_cover, service


def test_service_by_hand() -> None:
    assert service(np.array([0.0, 9.0, 10.0, 50.0, 100.0]), 10.0).tolist() == [0.0, 0.0, 0.55, 0.75, 1.0]
    assert service(np.array([1.0, 2.0]), 10.0).tolist() == [0.0, 0.0]


def test_the_hub_that_adds_most_comes_next() -> None:
    worth = np.array(
        [
            [1.0, 1.0, 1.0, 0.0, 0.0, 0.0],  # three sites
            [0.0, 1.0, 1.0, 1.0, 0.0, 0.0],  # three, but two of them are the first one's
            [0.0, 0.0, 0.0, 0.0, 1.0, 1.0],  # two new ones
            [0.5, 0.5, 0.5, 0.5, 0.0, 0.0],  # less than the first
        ]
    )
    assert greedy_cover(worth, 4).tolist() == [0, 2, 1, 3]
    assert greedy_cover(worth, 2).tolist() == [0, 2], "a shorter list is the beginning of a longer one"
    assert greedy_cover(worth, 1, served=np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])).tolist() == [2]


def test_equal_gains() -> None:
    worth = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.5]])
    assert greedy_cover(worth, 1).tolist() == [2], "serves more by itself"
    assert greedy_cover(np.ones((3, 2)), 3).tolist() == [0, 1, 2]
    with pytest.raises(InvariantViolation, match="4 of 3 hubs"):
        greedy_cover(np.ones((3, 2)), 4)
