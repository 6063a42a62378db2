"""The floor under participation, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.nodes.gateway.selection_step import due_first


def first(waited: list[float], free: float, share: float, latency: list[float] | None = None) -> tuple[list[int], int]:
    taus = np.array([100.0] * len(waited) if latency is None else latency)
    places, awaited = due_first(np.array(waited), taus, 1000 / taus, free, share)
    return places.tolist(), awaited


def test_a_fifth_of_the_time_is_four_rounds_of_waiting() -> None:
    assert first([399.0, 400.0, 401.0, 0.0], 100.0, 0.2) == ([2, 1], -1)


def test_waiting_is_counted_in_own_latencies() -> None:
    # 500 s are five rounds of the one, two and a half of the other.
    assert first([500.0, 500.0], 100.0, 0.25, [100.0, 200.0]) == ([0], -1)


def test_the_longest_waiting_goes_first_and_ties_keep_their_order() -> None:
    assert first([900.0, 1000.0, 900.0], 100.0, 0.5) == ([1, 0, 2], -1)


def test_one_that_does_not_fit_is_waited_for_and_nobody_passes_it() -> None:
    # 10, 40 and 10 bytes/s with 30 free: the second in line needs more than is left, the third would fit.
    assert first([3000.0, 500.0, 1000.0], 30.0, 0.5, [100.0, 25.0, 100.0]) == ([0], 1)


def test_what_fits_exactly_fits() -> None:
    assert first([1000.0] * 3, 30.0, 0.5) == ([0, 1, 2], -1)


@pytest.mark.parametrize("waited", [[], [10.0]])
def test_nobody_is_due(waited: list[float]) -> None:
    assert first(waited, 100.0, 0.5) == ([], -1)


def test_all_the_time_means_everybody_in_the_order_of_waiting() -> None:
    assert first([0.0, 2.0, 1.0], 100.0, 1.0) == ([1, 2, 0], -1)
