"""Curves: thinning, and the evaluation at which a target is reached."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from async_hfl.reports.data.curves import Curve, reached, thinned


def curve(values: list[float]) -> Curve:
    steps = np.arange(1.0, len(values) + 1)
    return Curve(steps, steps, steps, steps, steps.astype(np.int64), np.array(values), steps)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(8, 400))
def test_thinning_keeps_ends_and_extremes(values: list[float], points: int) -> None:
    given_values = np.array(values)
    kept = thinned(given_values, points)
    assert len(kept) <= max(points, 4)
    assert (kept[0], kept[-1]) == (0, len(values) - 1)
    assert (np.diff(kept) > 0).all()
    assert given_values[kept].max() == given_values.max()
    assert given_values[kept].min() == given_values.min()
    assert (kept == thinned(given_values, points)).all()


def test_a_short_curve_is_kept_whole() -> None:
    assert thinned(np.array([3.0, 1.0, 2.0]), 400).tolist() == [0, 1, 2]
    assert thinned(np.array([]), 400).tolist() == []


def test_a_target_is_reached_when_the_mean_of_three_passes() -> None:
    assert reached(curve([0.95, 0.8, 0.92, 0.9, 0.91]), 0.9, "at_least", 3) == 4
    assert reached(curve([0.95, 0.8, 0.92, 0.9, 0.91]), 0.9, "at_least", 1) == 0
    assert reached(curve([0.95, 0.8]), 0.9, "at_least", 3) is None
    assert reached(curve([5.0, 1.0, 1.0, 1.0]), 1.5, "at_most", 3) == 3
