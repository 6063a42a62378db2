"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from async_hfl.core.maths.targets import Target
from async_hfl.experiments.comparison.outcome import reached
from async_hfl.experiments.comparison.statistics import average, paired_ratio, student_below, student_quantile

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


def test_three_equal_ratios_leave_no_doubt() -> None:
    found = paired_ratio({1: 3.0, 2: 6.0, 3: 9.0}, {1: 2.0, 2: 4.0, 3: 6.0}, seeds=3)
    assert found is not None
    assert found.low == pytest.approx(1.5)
    assert found.high == pytest.approx(1.5)


def test_one_pair_has_no_interval_and_none_no_ratio() -> None:
    found = paired_ratio({1: 3.0}, {1: 2.0, 2: 1.0}, seeds=2)
    assert found is not None
    assert (found.value, found.low, found.high, found.pairs) == (1.5, None, None, 1)
    assert paired_ratio({1: 3.0}, {2: 2.0}, seeds=2) is None


def rows(*metrics: float) -> list[dict[str, float]]:
    return [
        {"at": 10.0 * n, "metric": metric, "bytes_total": 100 * n, "bytes_models_up": 50 * n, "updates": n}
        for n, metric in enumerate(metrics, 1)
    ]


def test_first_and_held() -> None:
    noisy = rows(0.5, 0.95, 0.5, 0.85, 0.93, 0.95)
    first = reached(noisy, Target("accuracy", 0.9, window=1))
    held = reached(noisy, Target("accuracy", 0.9))
    assert first is not None
    assert (first.at, first.bytes_total, first.bytes_models_up, first.updates) == (20.0, 200, 100, 2)
    assert held is not None
    assert held.at == 60.0  # (0.85 + 0.93 + 0.95) / 3 = 0.91; before: 0.76 and less
    assert reached(noisy, Target("accuracy", 0.96, window=1)) is None
    assert reached(rows(0.95, 0.95), Target("accuracy", 0.9)) is None


def test_smaller_is_better_for_an_error() -> None:
    found = reached(rows(0.4, 0.25, 0.19, 0.1), Target("error", 0.2, "at_most"))
    assert found is not None
    assert found.at == 40.0  # (0.25 + 0.19 + 0.1) / 3 = 0.18
