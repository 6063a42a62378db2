"""Clipping, trimmed means and medians: numbers by hand, and what a minority of harmful vectors cannot do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from async_hfl.core.maths.robust import (
    clip_factor,
    cut_at_each_end,
    lower_median,
    median,
    moved_by,
    norm,
    trimmed_mean,
)
from async_hfl.core.vectors import HostVector

NUMBERS = st.floats(-1e6, 1e6, width=32)


def vector(*values: float) -> HostVector:
    return np.array(values, np.float32)


def test_a_change_is_cut_to_its_bound() -> None:
    assert norm(vector(3, 4)) == 5.0
    assert (clip_factor(5.0, 2.5), clip_factor(5.0, 5.0), clip_factor(0.0, 0.0)) == (0.5, 1.0, 1.0)
    # (1, 1) + 0.5 (3, 4).
    np.testing.assert_array_equal(moved_by(vector(1, 1), vector(4, 5), 0.5), vector(2.5, 3))
    new = vector(4, 5)
    assert moved_by(vector(1, 1), new, 1.0) is new


def test_medians() -> None:
    assert (lower_median([3.0, 1.0, 2.0]), lower_median([4.0, 1.0, 3.0, 2.0]), lower_median([7.0])) == (2.0, 2.0, 7.0)
    np.testing.assert_array_equal(median([vector(1, 9), vector(2, -9), vector(100, 0)]), vector(2, 0))
    np.testing.assert_array_equal(median([vector(1, 4), vector(3, 2)]), vector(2, 3))
    np.testing.assert_array_equal(median([vector(5, 6)]), vector(5, 6))


def test_trimmed_means() -> None:
    rows = [vector(1), vector(2), vector(3), vector(6), vector(100)]
    np.testing.assert_array_equal(trimmed_mean(rows, 0), vector(22.4))
    np.testing.assert_array_equal(trimmed_mean(rows, 1), vector(11 / 3))
    np.testing.assert_array_equal(trimmed_mean(rows, 2), vector(3))


@pytest.mark.parametrize(
    ("count", "share", "cut"),
    [(1, 0.3, 0), (2, 0.3, 0), (3, 0.3, 1), (10, 0.3, 3), (30, 0.1, 3), (31, 0.1, 4), (4, 0.49, 1)],
)
def test_the_share_that_is_left_out_is_rounded_up(count: int, share: float, cut: int) -> None:
    assert cut_at_each_end(count, share) == cut


@given(
    arrays(np.float32, st.tuples(st.integers(1, 8), st.integers(1, 4)), elements=NUMBERS),
    st.lists(NUMBERS, max_size=7),
    st.randoms(use_true_random=False),
)
def test_a_minority_cannot_leave_the_range_of_the_others(honest: HostVector, wrong: list[float], rng: object) -> None:
    wrong = wrong[: len(honest) - 1]
    rows = [*honest, *(np.full(honest.shape[1], value, np.float32) for value in wrong)]
    rng.shuffle(rows)  # type: ignore[attr-defined]
    low, high = honest.min(axis=0), honest.max(axis=0)
    slack = 1e-6 * np.abs(honest).max()
    for found in (median(rows), trimmed_mean(rows, len(wrong))):
        assert (found >= low - slack).all()
        assert (found <= high + slack).all()


@given(arrays(np.float32, 5, elements=NUMBERS), arrays(np.float32, 5, elements=NUMBERS), st.floats(0.01, 100))
def test_a_clipped_change_is_no_longer_than_its_bound(sent: HostVector, new: HostVector, most: float) -> None:
    length = norm(new.astype(np.float64) - sent)
    clipped = moved_by(sent, new, clip_factor(length, most))
    # Models are single precision: the rounding of the sum may add to the change.
    rounding = 1e-6 * max(norm(sent), norm(new), 1.0)
    assert norm(clipped.astype(np.float64) - sent) <= most * (1 + 1e-6) + rounding
