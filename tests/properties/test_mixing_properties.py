"""Properties of mixing for any weights, in float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from async_hfl.core.maths.aggregation import add_changes, mix, mix_with_drag
from async_hfl.core.maths.aggregation import shares as sample_shares
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.weights import frozen

Vector = npt.NDArray[np.float32]
SIZE = 4
ROUNDING = 8 * np.finfo(np.float32).eps
vectors = hnp.arrays(np.float32, SIZE, elements=st.floats(-1000, 1000, width=32)).map(frozen)
shares = st.floats(0, 1)
models = hnp.arrays(np.float32, SIZE, elements=st.floats(0, 1000, width=32)).map(frozen)
FEW = settings(max_examples=150)


def slack(*given: Vector) -> npt.NDArray[np.float64]:
    """Return a few rounding errors of the largest number involved."""
    return ROUNDING * np.abs(np.array(given, np.float64)).max(axis=0) + 1e-30


@given(vectors, vectors, vectors, shares)
@FEW
def test_with_drag_one_the_model_stays_between_the_two(
    current: Vector, received: Vector, sent: Vector, b: float
) -> None:
    mixed = mix_with_drag(current, received, sent, b, 1.0)
    room = slack(current, received)
    assert (mixed >= np.minimum(current, received) - room).all()
    assert (mixed <= np.maximum(current, received) + room).all()


@given(vectors, st.lists(st.tuples(vectors, vectors, st.integers(1, 50)), min_size=1, max_size=8))
@FEW
def test_a_whole_cycle_with_drag_one_stays_in_the_hull(
    start: Vector, updates: list[tuple[Vector, Vector, int]]
) -> None:
    discount, model = StalenessDiscount(), start
    for received, sent, staleness in updates:
        model = mix_with_drag(model, received, sent, 0.9 * discount(staleness), 1.0)
    models = np.array([start, *(received for received, _, _ in updates)])
    room = len(updates) * slack(*models)
    assert (model >= models.min(axis=0) - room).all()
    assert (model <= models.max(axis=0) + room).all()


@given(vectors, vectors, vectors, shares, shares, st.floats(-1000, 1000, width=32))
@FEW
def test_coefficients_sum_to_one_for_every_drag(
    current: Vector, received: Vector, sent: Vector, b: float, drag: float, shift: float
) -> None:
    """Shifting all vectors by the same amount shifts the result by it."""
    moved = [frozen(given + np.float32(shift)) for given in (current, received, sent)]
    mixed = mix_with_drag(current, received, sent, b, drag).astype(np.float64)
    mixed_there = mix_with_drag(*moved, b, drag).astype(np.float64)
    room = 4 * slack(current, received, sent, *moved, np.full(SIZE, shift, np.float32))
    np.testing.assert_array_less(np.abs(mixed_there - mixed - shift), room)


@given(vectors, vectors, shares, shares)
@FEW
def test_a_device_that_returns_its_model_unchanged_pulls_by_drag_times_weight(
    current: Vector, sent: Vector, b: float, drag: float
) -> None:
    mixed = mix_with_drag(current, sent, sent, b, drag).astype(np.float64)
    expected = current.astype(np.float64) + drag * b * (sent.astype(np.float64) - current)
    np.testing.assert_array_less(np.abs(mixed - expected), slack(current, sent) + 1e-30)


@given(vectors, vectors, shares)
@FEW
def test_without_staleness_the_drag_has_no_effect(current: Vector, received: Vector, b: float) -> None:
    """If w_sent is the current model, every drag gives the paper's rule."""
    paper = mix(current, received, b)
    for drag in (0.0, 0.5, 1.0):
        mixed = mix_with_drag(current, received, current, b, drag)
        assert (np.abs(mixed.astype(np.float64) - paper) <= slack(current, received)).all()


@given(vectors, vectors, vectors, shares, shares)
@FEW
def test_mixing_is_the_formula(current: Vector, received: Vector, sent: Vector, b: float, drag: float) -> None:
    w, w_i, w_s = (given.astype(np.float64) for given in (current, received, sent))
    expected = w + b * (w_i - w_s) + drag * b * (w_s - w)
    mixed = mix_with_drag(current, received, sent, b, drag)
    assert (np.abs(mixed - expected) <= 4 * slack(current, received, sent)).all()


# Statistics ------------------------------------------------------------------------------------------------------

updates = st.lists(st.tuples(models, st.integers(0, 7), st.integers(1, 30)), min_size=1, max_size=8)
"""What a device returns, how many models ago it was sent its own, and its number of samples."""
trained_sizes = st.integers(0, SIZE)


def check(mixed: list[Vector], as_trained: list[Vector], given: list[Vector], trained: int) -> None:
    """Statistics stay within the range of what was mixed, and none is negative. The rest is as without statistics."""
    whole = np.array(given)[:, trained:]
    room = len(mixed) * slack(*whole)
    for model, other in zip(mixed, as_trained, strict=True):
        assert model[:trained].tobytes() == other[:trained].tobytes()
        assert (model[trained:] >= np.maximum(whole.min(axis=0) - room, 0)).all()
        assert (model[trained:] <= whole.max(axis=0) + room).all()


@given(models, updates, trained_sizes, shares, shares)
@FEW
def test_mixed_statistics_stay_in_range_for_every_drag(
    start: Vector, arriving: list[tuple[Vector, int, int]], trained: int, b: float, drag: float
) -> None:
    discount, mixed, as_trained = StalenessDiscount(), [start], [start]
    for received, ago, _ in arriving:
        ago = min(ago, len(mixed) - 1)
        weight = b * discount(1 + ago)
        sent = mixed[-1 - ago]
        as_trained.append(mix_with_drag(mixed[-1], received, sent, weight, drag))
        mixed.append(mix_with_drag(mixed[-1], received, sent, weight, drag, trained=trained))
    check(mixed, as_trained, [start, *(received for received, _, _ in arriving)], trained)


@given(models, st.lists(updates, min_size=1, max_size=4), trained_sizes)
@FEW
def test_statistics_stay_in_range_in_every_period(
    start: Vector, periods: list[list[tuple[Vector, int, int]]], trained: int
) -> None:
    discount, mixed, as_trained = StalenessDiscount(), [start], [start]
    for arriving in periods:
        ages = [min(ago, len(mixed) - 1) for _, ago, _ in arriving]
        parts = sample_shares([samples for _, _, samples in arriving])
        weights = [part * discount(age) for part, age in zip(parts, ages, strict=True)]
        received, sent = [new for new, _, _ in arriving], [mixed[-1 - age] for age in ages]
        as_trained.append(add_changes(mixed[-1], received, sent, weights))
        mixed.append(add_changes(mixed[-1], received, sent, weights, trained=trained))
    check(mixed, as_trained, [start, *(new for arriving in periods for new, _, _ in arriving)], trained)
