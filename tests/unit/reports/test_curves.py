"""Curves: thinning, and the state at which a target is reached."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from async_hfl.core.maths.milestones import Reached
from async_hfl.reports.data.curves import Curve, target_of, thinned


def curve(*metrics: float) -> Curve:
    steps = np.arange(1.0, len(metrics) + 1)
    columns = (10.0 * steps, 100 * steps, 50 * steps, steps, steps.astype(np.int64), np.array(metrics), steps)
    return Curve(*columns, end=Reached(10.0 * len(metrics) + 5, 1000, 500, 10))


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


def manifest(direction: str, **more: object) -> dict[str, object]:
    return {"settings": {"task": {"target": 0.9}}, "metric": {"name": "m", "direction": direction, "window": 3}, **more}


def test_a_run_of_a_former_release_held_its_target_over_three_evaluations() -> None:
    """(0.85 + 0.93 + 0.95) / 3 = 0.91; before, 0.76 and less."""
    noisy, target = curve(0.5, 0.95, 0.5, 0.85, 0.93, 0.95), target_of(manifest("at_least"))
    assert (target.threshold, target.window) == (0.9, None)
    found = noisy.milestones(target)
    assert (found.held, found.first) == (Reached(60.0, 600, 300, 6), Reached(20.0, 200, 100, 2))
    assert noisy.milestones(target_of(manifest("at_least"), 0.96)).first is None
    assert curve(0.95, 0.95).milestones(target).held is None


def test_a_window_of_time_and_an_error_that_shall_be_small() -> None:
    target = target_of(manifest("at_most", evaluation={"window_s": 20.0}), 0.2)
    found = curve(0.4, 0.25, 0.15, 0.1).milestones(target)
    # Until 40 s: 0.25 for 10 s and 0.15 for 10 s have a mean of exactly 0.2.
    assert (found.held, found.first) == (Reached(30.0, 300, 150, 3), Reached(30.0, 300, 150, 3))
