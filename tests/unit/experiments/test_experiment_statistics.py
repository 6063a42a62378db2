"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from async_hfl.experiments.comparison.statistics import (
    Cost,
    average,
    bounded_ratio,
    paired_ratio,
    student_below,
    student_quantile,
)
from async_hfl.experiments.results.measured import lost_gain

# The 97.5 % column of any printed table of Student's t.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("degrees", "quantile"), TABLE.items())
def test_students_quantiles(degrees: int, quantile: float) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(quantile, abs=5e-4)


def test_students_distribution() -> None:
    assert student_below(0.0, 3) == 0.5
    assert student_below(1.0, 1) == pytest.approx(0.75)  # Cauchy: 1/2 + atan(1)/pi
    assert student_below(math.sqrt(2), 2) == pytest.approx(0.5 + math.sqrt(2) / 4)  # 1/2 + t / (2 sqrt(2 + t²))


def test_mean_and_deviation() -> None:
    found = average([2.0, 4.0, 9.0])
    assert found is not None
    assert found.mean == 5.0
    assert found.deviation == pytest.approx(math.sqrt(13))  # (9 + 1 + 16) / 2
    alone = average([3.0])
    assert alone is not None
    assert alone.deviation is None
    assert average([]) is None


def test_a_ratio_is_paired_by_seed() -> None:
    """Ratios 2 and 8: their geometric mean is 4; the logarithms lie ln 2 to either side of it, so s = ln 2 sqrt 2."""
    found = paired_ratio({1: 20.0, 2: 80.0, 3: 5.0}, {2: 10.0, 1: 10.0, 4: 1.0}, seeds=4)
    assert found is not None
    assert found.value == pytest.approx(4.0)
    assert (found.pairs, found.seeds) == (2, 4)
    half = 12.7062 * math.log(2)  # t(1) s / sqrt 2
    assert found.low == pytest.approx(4 * math.exp(-half), rel=1e-4)
    assert found.high == pytest.approx(4 * math.exp(half), rel=1e-4)


def test_equal_ratios_give_an_interval_of_width_zero() -> None:
    found = paired_ratio({1: 3.0, 2: 6.0, 3: 9.0}, {1: 2.0, 2: 4.0, 3: 6.0}, seeds=3)
    assert found is not None
    assert found.low == pytest.approx(1.5)
    assert found.high == pytest.approx(1.5)


def test_a_single_pair_has_no_interval_and_no_pair_has_no_ratio() -> None:
    found = paired_ratio({1: 3.0}, {1: 2.0, 2: 1.0}, seeds=2)
    assert found is not None
    assert (found.value, found.low, found.high, found.pairs) == (1.5, None, None, 1)
    assert paired_ratio({1: 3.0}, {2: 2.0}, seeds=2) is None


def test_a_run_that_never_arrives_counts_as_its_horizon() -> None:
    """Ratios 2 and at least 8: the geometric mean is at least 4."""
    above = {1: Cost(20.0), 2: Cost(80.0, known=False)}
    below = {1: Cost(10.0), 2: Cost(10.0)}
    found = bounded_ratio(above, below, seeds=2)
    assert found is not None
    assert (found.value, found.bound, found.pairs) == (pytest.approx(4.0), ">", 2)
    turned = bounded_ratio(below, above, seeds=2)
    assert turned is not None
    assert (turned.value, turned.bound) == (pytest.approx(0.25), "<")
    known = bounded_ratio({1: Cost(20.0)}, {1: Cost(10.0)}, seeds=1)
    assert known is not None
    assert known.bound == ""


def test_a_seed_with_which_nobody_arrives_says_nothing() -> None:
    never = Cost(50.0, known=False)
    found = bounded_ratio({1: Cost(20.0), 2: never}, {1: Cost(10.0), 2: never}, seeds=2)
    assert found is not None
    assert (found.value, found.bound, found.pairs) == (2.0, "", 1)
    assert bounded_ratio({1: never}, {1: never}, seeds=1) is None
    # At least 5 with one seed, at most 0.2 with the other: together they bound nothing.
    assert bounded_ratio({1: never, 2: Cost(10.0)}, {1: Cost(10.0), 2: never}, seeds=2) is None


def test_the_largest_loss_of_gain() -> None:
    """From 0.1 to 0.9, back to 0.5 and up to 0.9: half of the gain was lost. Falls before half of the gain is made do
    not count: 0.1 after 0.3."""
    assert lost_gain([0.1, 0.3, 0.1, 0.9, 0.5, 0.9], "at_least") == pytest.approx(0.5)
    assert lost_gain([0.9, 0.2, 0.4, 0.1], "at_most") == pytest.approx(0.2 / 0.7)
    assert lost_gain([0.1, 0.2, 0.3], "at_least") == 0.0
    assert lost_gain([0.4], "at_least") == 0.0
