"""Staleness discounts, mixing and latencies, compared with numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from async_hfl.core.maths.aggregation import add_changes, average, mix, mix_with_drag, shares, with_momentum
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.weights import frozen


@pytest.mark.parametrize(
    ("discount", "values"),
    [
        (StalenessDiscount(), {0: 1.0, 1: 0.7071067811865475, 3: 0.5, 8: 1 / 3, 99: 0.1}),
        (StalenessDiscount("polynomial", 1.0), {0: 1.0, 1: 0.5, 9: 0.1}),
        (StalenessDiscount("polynomial", 0.0), {0: 1.0, 50: 1.0}),
        (StalenessDiscount("constant"), {0: 1.0, 1: 1.0, 1000: 1.0}),
        # 1 up to b = 4, then 1 / (10 (x - 4) + 1).
        (StalenessDiscount("hinge"), {0: 1.0, 4: 1.0, 5: 1 / 11, 6: 1 / 21, 14: 1 / 101}),
        (StalenessDiscount("hinge", slope=1.0, offset=0.0), {0: 1.0, 1: 0.5, 3: 0.25}),
        (StalenessDiscount("exponential"), {0: 1.0, 1: math.exp(-0.1), 10: math.exp(-1)}),
        (StalenessDiscount("exponential", rate=math.log(2)), {1: 0.5, 3: 0.125}),
    ],
)
def test_staleness_discount(discount: StalenessDiscount, values: dict[int, float]) -> None:
    assert {staleness: discount(staleness) for staleness in values} == pytest.approx(values, rel=1e-12)


def vector(*values: float) -> np.ndarray:
    return frozen(np.array(values, np.float32))


def test_the_papers_rule() -> None:
    # 0.75 (4, 8) + 0.25 (8, -8): powers of two, so exact.
    np.testing.assert_array_equal(mix(vector(4, 8), vector(8, -8), 0.25), vector(5, 4))


@pytest.mark.parametrize(("drag", "expected"), [(0.0, (5.5, 4.0)), (0.5, (5.25, 4.0)), (1.0, (5.0, 4.0))])
def test_drag(drag: float, expected: tuple[float, float]) -> None:
    """w = (4, 8), received (8, -8), sent (2, 8), weight 0.25.

    w + 0.25 (6, -16) + drag 0.25 (-2, 0):   drag 0: (5.5, 4);   drag 0.5: (5.25, 4);   drag 1: (5, 4).
    """
    mixed = mix_with_drag(vector(4, 8), vector(8, -8), vector(2, 8), 0.25, drag)
    np.testing.assert_array_equal(mixed, vector(*expected))


@pytest.mark.parametrize("drag", [0.0, 0.5, 1.0])
def test_mixing_makes_a_new_read_only_float32_vector(drag: float) -> None:
    current, received, sent = vector(1, 2), vector(3, 4), vector(5, 6)
    mixed = mix_with_drag(current, received, sent, 0.3, drag)
    assert mixed.dtype == np.float32
    assert not mixed.flags.writeable
    for given, before in ((current, (1, 2)), (received, (3, 4)), (sent, (5, 6))):
        np.testing.assert_array_equal(given, vector(*before))
        assert not np.shares_memory(mixed, given)


# Averages --------------------------------------------------------------------------------------------------------


def test_shares_are_by_samples() -> None:
    assert shares([30, 10]) == [0.75, 0.25]
    assert shares([7]) == [1.0]
    # Without samples, all shares are equal.
    assert shares([0, 0, 0, 0]) == [0.25] * 4


def test_an_average_by_hand() -> None:
    found = average([floats(1, 2), floats(5, -2)], [0.75, 0.25])
    np.testing.assert_array_equal(found, [2, 1])
    assert (found.dtype, found.flags.writeable) == (np.float32, False)


def test_changes_are_added_to_the_current_model() -> None:
    # (10, 10) + 1/2 ((3, 4) - (1, 1)) + 1/4 ((0, 0) - (4, -8)).
    found = add_changes(floats(10, 10), [floats(3, 4), floats(0, 0)], [floats(1, 1), floats(4, -8)], [0.5, 0.25])
    np.testing.assert_array_equal(found, [10, 13.5])
    assert (found.dtype, found.flags.writeable) == (np.float32, False)
    np.testing.assert_array_equal(add_changes(floats(1, 2), [], [], []), [1, 2])


def test_momentum_is_that_of_a_heavy_ball() -> None:
    """W' = 4 W + 1 in three steps from W = 0, m <- 1/2 m + (W' - W), computed with m; then with the model before."""
    current, previous, step = floats(0, 0), floats(0, 0), np.zeros(2)
    for place in range(4):
        averaged = 4 * current + floats(1, place)
        step = 0.5 * step + (averaged - current)
        moved = with_momentum(averaged, current, previous, 0.5)
        np.testing.assert_allclose(moved, current + step, rtol=1e-6)
        previous, current = current, moved
    assert (current.dtype, current.flags.writeable) == (np.float32, False)


def test_statistics_have_no_momentum() -> None:
    found = with_momentum(vector(3, 0.5), vector(2, 0.25), vector(0, 4), 0.5, trained=1)
    np.testing.assert_array_equal(found, vector(4, 0.5))


# Statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drag", "expected"), [(0.0, 5.5), (0.5, 5.25), (1.0, 5.0)])
def test_statistics_are_mixed_with_drag_one(drag: float, expected: float) -> None:
    """w = 4, s = (1, 4), received 8 and (0.5, 0), sent 2 and (2, 4), weight 0.25."""
    mixed = mix_with_drag(vector(4, 1, 4), vector(8, 0.5, 0), vector(2, 2, 4), 0.25, drag, trained=1)
    np.testing.assert_array_equal(mixed, vector(expected, 0.875, 3))
    assert not mixed.flags.writeable


def test_statistics_are_averaged_where_changes_are_added() -> None:
    current, received, sent = vector(10, 1), [vector(3, 0.5), vector(0, 0)], [vector(1, 2), vector(4, 2)]
    # 10 + 1/2 (3 - 1) + 1/4 (0 - 4), and 1 + 1/2 (0.5 - 1) + 1/4 (0 - 1).
    found = add_changes(current, received, sent, [0.5, 0.25], trained=1)
    np.testing.assert_array_equal(found, vector(10, 0.5))
    # Weights that sum to 2 are halved: 1/2 0.5 + 1/2 0.
    np.testing.assert_array_equal(add_changes(current, received, sent, [1.0, 1.0], trained=1), vector(8, 0.25))
    np.testing.assert_array_equal(add_changes(current, [], [], [], trained=1), current)


def test_rounding_makes_no_variance_negative() -> None:
    """The weights of 20 equal updates sum to more than 1 by rounding, and of 10 to less."""
    zero, one = vector(0, 0), vector(0, 1)
    for count in (10, 20, 43, 61):
        found = add_changes(one, [zero] * count, [one] * count, [1 / count] * count, trained=1)
        assert 0 <= found[1] < 1e-12


def test_sums_are_taken_in_double_precision() -> None:
    """2^24 + 1 does not fit into a float32: adding 1 in single precision would have no effect."""
    models = [floats(2.0**24)] + [floats(1.0)] * 64
    np.testing.assert_array_equal(average(models, [1.0] * 65), [2.0**24 + 64])


def floats(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)
