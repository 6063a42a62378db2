"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from async_hfl.experiments.comparison.outcome import reached_at
from async_hfl.experiments.comparison.statistics import average, paired_ratio, student_below, student_quantile
from async_hfl.reports.data.curves import Curve

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


def curve(*metrics: float) -> Curve:
    steps = np.arange(1.0, len(metrics) + 1)
    return Curve(10.0 * steps, 100 * steps, 50 * steps, steps, steps.astype(np.int64), np.array(metrics), steps)


def test_first_and_held() -> None:
    noisy = curve(0.5, 0.95, 0.5, 0.85, 0.93, 0.95)
    first = reached_at(noisy, 0.9, "at_least", window=1)
    held = reached_at(noisy, 0.9, "at_least", window=3)
    assert first is not None
    assert (first.at, first.bytes_total, first.bytes_models_up) == (20.0, 200, 100)
    assert held is not None
    assert held.at == 60.0  # (0.85 + 0.93 + 0.95) / 3 = 0.91; before: 0.76 and less
    assert reached_at(noisy, 0.96, "at_least", window=1) is None
    assert reached_at(curve(0.95, 0.95), 0.9, "at_least", window=3) is None


def test_smaller_is_better_for_an_error() -> None:
    found = reached_at(curve(0.4, 0.25, 0.19, 0.1), 0.2, "at_most", window=3)
    assert found is not None
    assert found.at == 40.0  # (0.25 + 0.19 + 0.1) / 3 = 0.18
