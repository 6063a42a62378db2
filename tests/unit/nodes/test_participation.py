"""The floor under participation, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.nodes.gateway.selection_step import due_first


def first(waited: list[float], free: float, share: float, latency: list[float] | None = None) -> tuple[list[int], int]:
    taus = np.array([100.0] * len(waited) if latency is None else latency)
    places, blocking = due_first(np.array(waited), taus, 1000 / taus, free, share)
    return places.tolist(), blocking


def test_a_device_is_due_after_four_latencies_for_a_fifth_of_the_time() -> None:
    assert first([399.0, 400.0, 401.0, 0.0], 100.0, 0.2) == ([2, 1], -1)


def test_waiting_is_measured_in_a_devices_own_latencies() -> None:
    # 500 s are five rounds of the one, two and a half of the other.
    assert first([500.0, 500.0], 100.0, 0.25, [100.0, 200.0]) == ([0], -1)


def test_the_device_that_waited_longest_is_first_and_ties_keep_their_order() -> None:
    assert first([900.0, 1000.0, 900.0], 100.0, 0.5) == ([1, 0, 2], -1)


def test_no_device_overtakes_one_that_is_due_and_does_not_fit() -> None:
    # 10, 40 and 10 bytes/s with 30 free: the second in line needs more than is left, the third would fit.
    assert first([3000.0, 500.0, 1000.0], 30.0, 0.5, [100.0, 25.0, 100.0]) == ([0], 1)


def test_a_sum_that_equals_the_bandwidth_fits() -> None:
    assert first([1000.0] * 3, 30.0, 0.5) == ([0, 1, 2], -1)


@pytest.mark.parametrize("waited", [[], [10.0]])
def test_no_device_is_due(waited: list[float]) -> None:
    assert first(waited, 100.0, 0.5) == ([], -1)


def test_a_share_of_one_makes_every_device_due() -> None:
    assert first([0.0, 2.0, 1.0], 100.0, 1.0) == ([1, 2, 0], -1)
