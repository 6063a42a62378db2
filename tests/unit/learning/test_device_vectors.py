"""Vectors on an accelerator, here on the host's: whoever computes with them gets what numpy gives, but for rounding."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_cases import check_products

from async_hfl.core.vectors import DeviceVector, HostVector, Vector, to_host
from async_hfl.core.errors import InternalError
from async_hfl.core.identifiers import JobId
from async_hfl.core.maths.aggregation import add_changes, average, mix, mix_with_drag
from async_hfl.core.protocol.messages import Update
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.core.weights import digest, frozen, is_finite, mean_step
from async_hfl.encoding.rounding import Encoding, message_as_received
from async_hfl.journal.checkpoint import load, save
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device.jax_vectors import _MOST_TERMS, DeviceOps
from async_hfl.learning.engine.on_device.jax_vectors import JaxVector
from async_hfl.learning.engine.trainer import LiveGradients
from async_hfl.learning.engine.on_device.jax_vectors import _AT_ONCE, BLOCK

ROUNDING = 1e-6
"""Of the largest numbers that are added: some eight times what a float32 can tell apart."""
sizes = st.sampled_from([1, 5, 5000])
coefficients = st.floats(-2, 2)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def card() -> DeviceOps:
    return DeviceOps(jax.local_devices()[0])


def floats(*values: float) -> HostVector:
    return frozen(np.array(values, np.float32))


def normal(count: int, size: int, seed: int = 1) -> list[HostVector]:
    random = np.random.default_rng(seed)
    return [frozen(random.standard_normal(size).astype(np.float32)) for _ in range(count)]


def some_far(card: DeviceOps, vectors: Sequence[HostVector], far: Sequence[bool]) -> list[Vector]:
    return [card.place(vector) if away else vector for vector, away in zip(vectors, far, strict=True)]


def afar(card: DeviceOps, vectors: Sequence[HostVector]) -> list[JaxVector]:
    """New ones, that nobody knows anything of, whatever was placed before."""
    return [card.place(vector.copy()) for vector in vectors]


def which(count: int) -> st.SearchStrategy[list[bool]]:
    """Which of them are far; one at least."""
    return st.lists(st.booleans(), min_size=count, max_size=count).filter(any)


def agree(found: Vector, expected: npt.ArrayLike, largest: float) -> None:
    assert isinstance(found, DeviceVector)
    np.testing.assert_allclose(found.to_host(), expected, rtol=0, atol=ROUNDING * largest)


def greatest(vectors: Sequence[HostVector]) -> float:
    return max(float(np.abs(vector).max()) for vector in vectors)


# Mixing ----------------------------------------------------------------------------------------------------------


@given(sizes, seeds, coefficients, which(2))
@settings(max_examples=40)
def test_mixing_is_numpys(card: DeviceOps, size: int, seed: int, weight: float, far: list[bool]) -> None:
    vectors = normal(2, size, seed)
    found = mix(*some_far(card, vectors, far), weight)  # type: ignore[call-arg]
    agree(found, mix(*vectors, weight), (1 + 2 * abs(weight)) * greatest(vectors))  # type: ignore[call-arg]


@given(sizes, seeds, coefficients, st.one_of(st.sampled_from([0.0, 1.0]), coefficients), which(3))
@settings(max_examples=60)
def test_mixing_with_drag_is_numpys(
    card: DeviceOps, size: int, seed: int, weight: float, drag: float, far: list[bool]
) -> None:
    if drag == 1.0 and far == [False, False, True]:
        far = [True, False, True]  # what was sent then plays no part, and the others are numpy's
    vectors = normal(3, size, seed)
    current, received, sent = some_far(card, vectors, far)
    largest = (1 + 2 * abs(weight) + 2 * abs(weight * drag)) * greatest(vectors)
    agree(mix_with_drag(current, received, sent, weight, drag), mix_with_drag(*vectors, weight, drag), largest)  # type: ignore[call-arg]


@pytest.mark.parametrize(("drag", "expected"), [(0.0, (5.5, 4.0)), (0.5, (5.25, 4.0)), (1.0, (5.0, 4.0))])
def test_drag_by_hand(card: DeviceOps, drag: float, expected: tuple[float, float]) -> None:
    """(4, 8) + 0.25 ((8, -8) - (2, 8)) + drag 0.25 ((2, 8) - (4, 8)): powers of two, so exact."""
    current, received, sent = (card.place(floats(*values)) for values in ((4, 8), (8, -8), (2, 8)))
    np.testing.assert_array_equal(mix_with_drag(current, received, sent, 0.25, drag), expected)


@given(sizes, seeds, st.data())
@settings(max_examples=50)
def test_averages_are_numpys(card: DeviceOps, size: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 2, 3, 7]))
    parts = data.draw(st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
    weights = [part / sum(parts) for part in parts]
    vectors = normal(count, size, seed)
    models = some_far(card, vectors, data.draw(which(count)))
    agree(average(models, weights), average(vectors, weights), greatest(vectors))


@pytest.mark.parametrize("count", [_MOST_TERMS, _MOST_TERMS + 1, 300])
def test_an_average_of_many(card: DeviceOps, count: int) -> None:
    vectors = normal(count, 50)
    agree(average(afar(card, vectors), [1 / count] * count), np.mean(vectors, axis=0, dtype=np.float64), 1.0)


@given(sizes, seeds, st.data())
@settings(max_examples=50)
def test_added_changes_are_numpys(card: DeviceOps, size: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3))
    weights = data.draw(st.lists(coefficients, min_size=count, max_size=count))
    vectors = normal(1 + 2 * count, size, seed)
    models = some_far(card, vectors, data.draw(which(1 + 2 * count)))
    found = add_changes(models[0], models[1 : 1 + count], models[1 + count :], weights)
    expected = add_changes(vectors[0], vectors[1 : 1 + count], vectors[1 + count :], weights)
    agree(found, expected, (1 + 2 * sum(map(abs, weights))) * greatest(vectors))


def test_no_changes_are_the_model(card: DeviceOps) -> None:
    np.testing.assert_array_equal(add_changes(card.place(floats(1, 2)), [], [], []), [1, 2])


def test_a_vector_may_stand_in_several_places(card: DeviceOps) -> None:
    one, other = card.place(floats(4, 8)), card.place(floats(8, -8))
    np.testing.assert_array_equal(mix(one, one, 0.25), [4, 8])
    # 4 + 1/2 (8 - 4) + 1/4 (8 - 8), likewise with 8 and -8.
    np.testing.assert_array_equal(add_changes(one, [other, other], [one, other], [0.5, 0.25]), [6, 0])
    # 1/4 (3/4 (4, 8) + 1/4 (8, -8)) + 3/4 (8, -8).
    np.testing.assert_array_equal(mix(mix(one, other, 0.25), other, 0.75), [7.25, -5])


def test_nothing_that_was_given_changes(card: DeviceOps) -> None:
    vectors = [floats(1, 2), floats(3, 4), floats(5, 6)]
    placed = afar(card, vectors)
    assert mix_with_drag(*placed, 0.3, 0.5).to_host() is not placed[0].to_host()  # type: ignore[call-arg]
    for vector, before in zip(placed, vectors, strict=True):
        np.testing.assert_array_equal(np.asarray(vector.array), before)
        np.testing.assert_array_equal(vector.to_host(), before)


def test_a_long_chain_of_blends_is_only_noted_and_right(card: DeviceOps) -> None:
    start, *received = normal(201, 500)
    model: Vector = card.place(start)
    expected = start.astype(np.float64)
    noted = 0
    for number, one in enumerate(afar(card, received)):
        weight = 0.05 + 0.001 * number
        model = mix(model, one, weight)
        expected += weight * (one.to_host() - expected)
        assert isinstance(model, JaxVector)
        assert len(model.terms) <= _MOST_TERMS
        noted += model.noted
    assert noted >= 200 - 200 // (_MOST_TERMS - 1)
    agree(model, expected, greatest([start, *received]))


def test_a_blend_of_blends_with_too_many_terms_is_computed(card: DeviceOps) -> None:
    """Ten averages of 40 each; only their mean has more terms than are noted."""
    vectors = normal(400, 50)
    placed = afar(card, vectors)
    averages = [average(placed[first : first + 40], [1 / 40] * 40) for first in range(0, 400, 40)]
    found = average(averages, [0.1] * 10)
    for one in (*averages, found):
        assert isinstance(one, JaxVector)
        assert len(one.terms) <= _MOST_TERMS
    agree(found, np.mean(vectors, axis=0, dtype=np.float64), 1.0)


def test_what_was_noted_is_computed_together_and_as_if_alone(card: DeviceOps) -> None:
    """Five, of different numbers of terms, one of them twice and one that is computed already."""
    vectors = normal(12, 300)
    placed = afar(card, vectors)
    blends = [average(placed[:count], [1 / count] * count) for count in (2, 3, 5, 12)]
    noted = [blend for blend in blends if isinstance(blend, JaxVector)]
    card.settle([placed[0], *noted, noted[0]])
    for blend, count in zip(noted, (2, 3, 5, 12), strict=True):
        assert not blend.noted
        agree(blend, np.mean(vectors[:count], axis=0, dtype=np.float64), 1.0)
    np.testing.assert_array_equal(placed[0], vectors[0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_spoils_only_what_it_is_blended_into(card: DeviceOps, bad: float) -> None:
    spoilt = mix(card.place(floats(1, 1)), card.place(floats(bad, 1)), 0.5)
    sound = mix(card.place(floats(2, 2)), card.place(floats(4, 8)), 0.5)
    assert isinstance(spoilt, JaxVector)
    assert isinstance(sound, JaxVector)
    card.settle([spoilt, sound])
    assert not is_finite(spoilt)
    np.testing.assert_array_equal(sound, [3, 5])


# Mean steps ------------------------------------------------------------------------------------------------------


def test_a_mean_step_by_hand(card: DeviceOps) -> None:
    # ((4, 8) - (3, 10)) / 1/4, and nothing of what stands behind.
    start, end = card.place(floats(4, 8, 99)), card.place(floats(3, 10, 7))
    step = mean_step(start, end, 2, np.float32(0.25))
    assert isinstance(step, DeviceVector)
    assert len(step) == 2
    np.testing.assert_array_equal(step, [4, -8])


@given(sizes, seeds, st.floats(2**-10, 100, width=32), st.booleans())
@settings(max_examples=40)
def test_a_mean_step_is_numpys_but_for_rounding(
    card: DeviceOps, size: int, seed: int, divisor: float, far_start: bool
) -> None:
    start, end = normal(2, size, seed)
    size = max(1, size - 1)
    (sent,) = some_far(card, [start], [far_start])
    found = mean_step(sent, card.place(end), size, np.float32(divisor))
    assert isinstance(found, DeviceVector)
    # XLA multiplies by 1 / divisor: two roundings instead of one.
    np.testing.assert_array_max_ulp(found.to_host(), to_host(mean_step(start, end, size, np.float32(divisor))), 2)


def test_a_mean_step_from_a_far_vector_to_one_that_is_here(card: DeviceOps) -> None:
    step = mean_step(card.place(floats(4, 8)), floats(3, 10), 2, np.float32(0.25))
    assert isinstance(step, np.ndarray)
    np.testing.assert_array_equal(step, [4, -8])


@pytest.mark.parametrize("far_start", [True, False])
def test_a_step_that_came_with_its_vector_is_given_for_that_very_start_and_divisor(
    card: DeviceOps, far_start: bool
) -> None:
    (start,) = some_far(card, [floats(4, 8)], [far_start])
    end, came = card.place(floats(3, 10)), card.place(floats(-1, -1))
    end.know_step(start, np.float32(0.25), came)
    assert mean_step(start, end, 2, np.float32(0.25)) is came
    # Another divisor, and another start though its numbers are the same.
    np.testing.assert_array_equal(mean_step(start, end, 2, np.float32(0.5)), [2, -4])
    np.testing.assert_array_equal(mean_step(to_host(start).copy(), end, 2, np.float32(0.25)), [4, -8])
    assert mean_step(start, end, 2, np.float32(0.25)) is came


def test_a_step_that_came_does_not_keep_its_start(card: DeviceOps) -> None:
    start, end = card.place(np.array([4, 8], np.float32)), card.place(floats(3, 10))
    end.know_step(start, np.float32(0.25), card.place(floats(-1, -1)))
    died = weakref.ref(start)
    del start
    gc.collect()
    assert died() is None
    again = card.place(np.array([4, 8], np.float32))  # perhaps where the other lay
    np.testing.assert_array_equal(mean_step(again, end, 2, np.float32(0.25)), [4, -8])


# Products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 300, 4096, 4097, 20_000])
def test_products_are_those_of_double_precision(card: DeviceOps, size: int) -> None:
    vectors = np.array(normal(6, size), np.float64)
    vectors[1] += vectors[0]
    placed = afar(card, list(vectors.astype(np.float32)))
    exact = vectors.astype(np.float32).astype(np.float64)
    found = np.array([one.products(placed) for one in placed])
    norms = np.linalg.norm(exact, axis=1)
    # Single precision, in pieces: some 1e-6 of |a| |b|.
    np.testing.assert_array_less(np.abs(found - exact @ exact.T), 2e-6 * np.outer(norms, norms))


def test_products_by_hand(card: DeviceOps) -> None:
    one, other = card.place(floats(1, 2, 3)), card.place(floats(4, -5, 6))
    assert one.products([one, other]) == [14.0, 12.0]
    # With one that is here, one that is noted only, the same twice, and nobody.
    assert one.products([floats(0, 1, 0), mix(one, other, 0.5), other, other]) == [2.0, 13.0, 12.0, 12.0]
    assert one.products([]) == []


@pytest.mark.parametrize("size", [1, 5, 5000])
def test_a_product_is_the_same_number_in_whatever_company(card: DeviceOps, size: int) -> None:
    count = BLOCK + 6
    vectors = normal(count, size)
    picked = [0, 1, 2, BLOCK - 1, BLOCK, count - 1]
    pairs = [(i, j) for i in picked for j in picked]

    def all_of(vectors: list[JaxVector]) -> list[float]:
        return [vectors[i].products([vectors[j]])[0] for i, j in pairs]

    alone = [afar(card, [vectors[i]])[0].products([vectors[j]])[0] for i, j in pairs]
    assert alone == [alone[pairs.index((j, i))] for i, j in pairs], "from either side"
    strangers = afar(card, vectors)
    assert all_of(strangers) == alone
    assert [product for i in picked for product in np.take(strangers[i].products(strangers), picked)] == alone
    introduced = afar(card, vectors)
    card.introduce(LiveGradients(0.1), introduced)
    assert all_of(introduced) == alone
    # First three, then all the others to them, the last ones first.
    kin, late = LiveGradients(0.1), afar(card, vectors)
    card.introduce(kin, late[:3])
    card.introduce(kin, late[:2:-1])
    assert all_of(late) == alone
    three = afar(card, vectors[:3])
    card.introduce(LiveGradients(0.1), three)
    assert [three[i].products(three) for i in range(3)] == [
        [alone[pairs.index((i, j))] for j in range(3)] for i in range(3)
    ]


def test_a_product_is_the_same_number_on_a_shelf_of_many_blocks(card: DeviceOps) -> None:
    """More than one order names: those of the last are multiplied with all, and lie where they should."""
    count = (_AT_ONCE + 1) * BLOCK + 6
    numbers = normal(count, 700)
    vectors, kin = afar(card, numbers), LiveGradients(0.1)
    card.introduce(kin, vectors)
    assert kin.shelf is not None
    assert len(kin.shelf) == count
    gram = np.array(numbers, np.float64) @ np.array(numbers, np.float64).T
    for i in (0, BLOCK, _AT_ONCE * BLOCK - 1, _AT_ONCE * BLOCK, count - 1):
        found = vectors[i].products(vectors)
        np.testing.assert_allclose(found, gram[i], rtol=0, atol=2e-6 * 700)
        for j in (1, 3 * BLOCK, count - 2):
            assert afar(card, [numbers[i]])[0].products([numbers[j]]) == [found[j]]
            assert vectors[j].products([vectors[i]]) == [found[j]]
        np.testing.assert_array_equal(np.asarray(vectors[i].array), numbers[i])


def test_who_comes_to_a_shelf_from_another_leaves_no_memory_there(card: DeviceOps) -> None:
    kin, guests = LiveGradients(0.1), afar(card, normal(BLOCK + 6, 11))
    guests[0].products(guests)
    assert guests[0].place is not None
    visited = guests[0].place.shelf
    assert (len(visited), len(visited._blocks)) == (BLOCK + 6, 2)
    (one,) = afar(card, normal(1, 11, seed=2))
    card.introduce(kin, [one])
    check_products([one, *guests])
    assert {vector.place.shelf for vector in [one, *guests] if vector.place} == {kin.shelf}
    assert (len(visited), len(visited._blocks)) == (0, 0)
    # It serves again.
    check_products(afar(card, normal(3, 11, seed=3)))


def test_those_that_were_introduced_know_their_products(card: DeviceOps, asked: list[int]) -> None:
    kin, vectors = LiveGradients(0.1), afar(card, normal(BLOCK + 6, 300))
    card.introduce(kin, vectors[:4])
    card.introduce(kin, vectors[4:])
    for one in vectors:
        one.products(vectors)
    assert asked == []
    (stranger,) = afar(card, normal(1, 300))
    vectors[0].products([*vectors, stranger])
    assert asked == [1]


def test_the_place_of_one_that_died_is_taken_by_the_next(card: DeviceOps, asked: list[int]) -> None:
    kin, vectors = LiveGradients(0.1), afar(card, normal(BLOCK, 300))
    card.introduce(kin, vectors)
    assert kin.shelf is not None
    survivors = vectors[::3]
    vectors.clear()
    gc.collect()
    assert len(kin.shelf) == len(survivors)
    # As many as went: none needs a new block, and none is mistaken for who lay there before.
    later = afar(card, normal(BLOCK - len(survivors), 300, seed=2))
    card.introduce(kin, later)
    assert len(kin.shelf) == BLOCK
    assert {vector.place.number for vector in [*survivors, *later] if vector.place} == set(range(BLOCK))
    check_products([*survivors, *later])
    assert asked == []


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 24), st.integers(0, 60)), min_size=2, max_size=12),
    seeds,
)
@settings(max_examples=40)
def test_whoever_comes_and_goes_products_are_right(
    card: DeviceOps, turns: list[tuple[int, int, int]], seed: int
) -> None:
    """Some come to one of two families or to nobody, some go, all are asked."""
    families, living, random = [LiveGradients(0.1), LiveGradients(0.1)], [], np.random.default_rng(seed)
    for family, come, go in turns:
        new = afar(card, normal(come, 7, seed=int(random.integers(1 << 32))))
        if family < 2:
            card.introduce(families[family], new)
        living += new
        del new
        random.shuffle(living)
        del living[: min(go, len(living) - 1)]
        check_products(living)


def test_a_vector_that_lies_on_a_shelf_is_what_it_was(card: DeviceOps) -> None:
    numbers = normal(BLOCK + 6, 5000)
    vectors = afar(card, numbers)
    card.introduce(LiveGradients(0.1), vectors)
    for vector, right in zip(vectors, numbers, strict=True):
        assert (len(vector), vector.noted) == (5000, False)
        np.testing.assert_array_equal(np.asarray(vector.array), right)
    agree(mix(vectors[0], vectors[BLOCK], 0.5), (numbers[0] + numbers[BLOCK]) / 2, greatest(numbers))


def test_what_was_only_noted_is_computed_to_be_multiplied(card: DeviceOps) -> None:
    one, other = afar(card, [floats(1, 2), floats(3, 4)])
    blend = mix(one, other, 0.5)
    assert isinstance(blend, JaxVector)
    card.introduce(LiveGradients(0.1), [blend])
    assert not blend.noted
    assert blend.products([blend]) == [13.0]


def test_vectors_of_different_lengths_are_refused_and_nothing_is_lost(card: DeviceOps) -> None:
    kin, vectors = LiveGradients(0.1), afar(card, normal(3, 300))
    card.introduce(kin, vectors)
    (short,) = afar(card, [floats(1, 2)])
    for ask in (lambda: vectors[0].products([short]), lambda: card.introduce(kin, [short])):
        with pytest.raises(InternalError, match="300 numbers"):
            ask()
    assert kin.shelf is not None
    assert len(kin.shelf) == 3
    check_products(vectors)
    assert short.products([short]) == [5.0]


# Numbers that are not ordinary -----------------------------------------------------------------------------------


@pytest.mark.parametrize("introduced", [True, False])
def test_products_that_overflow_single_precision_are_taken_in_double(card: DeviceOps, introduced: bool) -> None:
    huge, ordinary = (np.linspace(0.5, 1.5, 300) * 1e25).astype(np.float32), np.linspace(-1, 3, 300, dtype=np.float32)
    vectors = afar(card, [huge, ordinary])
    if introduced:
        card.introduce(LiveGradients(0.1), vectors)
    exact = huge.astype(np.float64)
    squared, product = vectors[0].products(vectors)
    assert squared == pytest.approx(float(exact @ exact), rel=1e-12)
    assert product == pytest.approx(float(exact @ ordinary), rel=1e-6)
    assert vectors[1].products([vectors[0]]) == [product]


@pytest.mark.parametrize(
    ("values", "finite"),
    [
        ((1.0, 2.0), True),
        ((1e25, 1e25), True),
        ((3e38, -3e38), True),
        ((0.0, np.nan), False),
        ((np.inf, 0.0), False),
        ((1.0, -np.inf), False),
    ],
)
def test_finite(card: DeviceOps, values: tuple[float, ...], finite: bool) -> None:
    vector = floats(*values)
    placed = card.place(vector)
    assert is_finite(vector) == is_finite(placed) == placed.finite == finite
    computed = mix(placed, placed, 0.5)
    assert is_finite(computed) == finite
    (squared,) = placed.products([placed])
    assert np.isfinite(squared) == finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_products_with_what_is_not_finite_are_not_finite_and_say_nothing(card: DeviceOps, bad: float) -> None:
    (product,) = card.place(floats(bad, 1)).products([card.place(floats(0, 1))])
    assert not np.isfinite(product)


# Here again ------------------------------------------------------------------------------------------------------


def test_the_numbers_are_read_only_and_one_array(card: DeviceOps) -> None:
    given_vector = floats(1, 2, 3)
    placed = card.place(given_vector)
    assert placed.to_host() is given_vector
    for vector, expected in ((placed, [1, 2, 3]), (mix(placed, floats(3, 2, 1), 0.5), [2, 2, 2])):
        assert isinstance(vector, DeviceVector)
        numbers = vector.to_host()
        assert numbers is vector.to_host() is to_host(vector) is np.asarray(vector)
        assert (numbers.dtype, numbers.flags.writeable) == (np.float32, False)
        np.testing.assert_array_equal(numbers, expected)


def test_as_an_array(card: DeviceOps) -> None:
    vector = card.place(floats(1, 2, 3))
    double = np.asarray(vector, np.float64)
    assert double.dtype == np.float64
    assert double.tolist() == [1, 2, 3]
    copied = np.array(vector)
    copied[0] = 7
    assert vector.to_host()[0] == 1
    assert np.linalg.norm(vector - floats(0, 0, 1)) == 3.0  # type: ignore[operator]


def test_length_and_bytes_are_known_of_what_is_only_noted(card: DeviceOps) -> None:
    placed = card.place(floats(1, 2, 3))
    blend = mix(placed, floats(3, 2, 1), 0.5)
    assert isinstance(blend, JaxVector)
    for vector in (placed, blend, mean_step(placed, blend, 3, np.float32(2))):
        assert (len(vector), vector.nbytes) == (3, 12)
    (alone,) = afar(card, [floats(1, 2)])
    untouched = mix(alone, floats(3, 4), 0.5)
    assert isinstance(untouched, JaxVector)
    assert (len(untouched), untouched.nbytes, untouched.noted) == (2, 8, True)


def test_a_digest_is_that_of_the_numbers(card: DeviceOps) -> None:
    assert digest(card.place(floats(1, 2))) == digest(floats(1, 2)) != digest(floats(2, 1))


# Placing ---------------------------------------------------------------------------------------------------------


def test_what_comes_again_is_there_already(card: DeviceOps) -> None:
    vector, twin = floats(1, 2), floats(1, 2)
    placed = card.place(vector)
    assert card.place(vector) is placed
    assert card.place(placed) is placed
    assert placed.beside(vector) is placed
    assert card.place(twin) is not placed, "equal is not the same"


def test_what_may_be_written_is_copied(card: DeviceOps) -> None:
    writable = np.array([1, 2], np.float32)
    placed = card.place(writable)
    writable[0] = 7
    assert card.place(writable) is not placed
    assert placed.to_host().tolist() == np.asarray(placed.array).tolist() == [1, 2]
    assert writable.flags.writeable
    assert card.place(writable).to_host().tolist() == [7, 2]


def test_what_nobody_holds_is_let_go() -> None:
    card = DeviceOps(jax.local_devices()[0])
    vector, other = floats(1, 2), floats(3, 4)
    placed, further = card.place(vector), card.place(other)
    blend = mix(placed, further, 0.5)
    assert len(card._placed) == 2
    del placed, further
    gc.collect()
    assert len(card._placed) == 2, "a blend that is noted needs its terms"
    np.testing.assert_array_equal(blend, [2, 3])
    gc.collect()
    assert len(card._placed) == 0
    assert card.place(vector).to_host() is vector


def test_an_address_that_is_used_again_is_not_mistaken(card: DeviceOps) -> None:
    """Arrays that come and go lie where others lay before."""
    addresses = set()
    for number in range(50):
        vector = floats(number, number)
        addresses.add(id(vector))
        assert np.asarray(card.place(vector).array).tolist() == [number, number]
        del vector
    assert len(addresses) < 50, "else this tests nothing"


# Stored ----------------------------------------------------------------------------------------------------------


def several(card: DeviceOps, size: int) -> list[DeviceVector]:
    """Placed, noted, computed."""
    one, other = normal(2, size)
    noted, computed = mix(card.place(one), other, 0.5), mix(card.place(one), other, 0.25)
    assert isinstance(noted, JaxVector)
    assert isinstance(computed, JaxVector)
    card.settle([computed])
    return [card.place(one), noted, computed]


def there_and_back(tree: object, path: Path, *, file: bool) -> Any:
    if not file:
        return from_plain(to_plain(tree))
    save(path, [("only", to_plain(tree))])
    (found,) = load(path)["only"]
    return from_plain(found)


@pytest.mark.parametrize("file", [False, True])
def test_what_was_afar_comes_back_afar_and_as_one(tmp_path: Path, file: bool) -> None:
    card = DeviceOps(jax.local_devices()[0])  # whoever came last takes them back
    vectors = several(card, 2000)
    numbers = [vector.to_host().tobytes() for vector in vectors]
    tree = {"models": vectors, "of devices": [(vector, "again") for vector in vectors], "here": floats(1, 2)}
    found = there_and_back(tree, tmp_path / "c.msgpack", file=file)
    assert [vector.to_host().tobytes() for vector in found["models"]] == numbers
    for vector, (again, _) in zip(found["models"], found["of devices"], strict=True):
        assert isinstance(vector, JaxVector)
        assert vector.card is card
        assert again is vector
        np.testing.assert_array_equal(np.asarray(vector.array), vector.to_host())
    assert isinstance(found["here"], np.ndarray)


def test_what_came_back_is_multiplied_and_blended_as_before(card: DeviceOps, tmp_path: Path) -> None:
    kin, vectors = LiveGradients(0.1), afar(card, normal(5, 2000))
    card.introduce(kin, vectors)
    found = there_and_back(vectors, tmp_path / "c.msgpack", file=True)
    assert [one.products(found) for one in found] == [one.products(vectors) for one in vectors]
    np.testing.assert_array_equal(average(found, [0.2] * 5), average(vectors, [0.2] * 5))


# Shortened -------------------------------------------------------------------------------------------------------


def update(weights: Vector, gradient: Vector | None) -> Update:
    return Update(JobId(0, 0, 1), weights, 10, 3, 0.5, 0.3, gradient, 1.0, 2.0)


def test_far_vectors_in_a_message_are_shortened_as_others(card: DeviceOps) -> None:
    # 11 bits: 2049 is rounded to even, 1e6 becomes the largest, 1e-9 nothing.
    weights, gradient = floats(1 / 3, 2049, 1e6, 1e-9), floats(-1 / 3, -1e6, 1.0, 0.0)
    sent = update(card.place(weights), card.place(gradient))
    found = message_as_received(sent, Encoding(half=True))
    plain = message_as_received(update(weights, gradient), Encoding(half=True))
    assert found.gradient is not None
    assert plain.gradient is not None
    np.testing.assert_array_equal(found.weights, np.array([1 / 3, 2048, 65504, 0], np.float16).astype(np.float32))
    np.testing.assert_array_equal(found.weights, plain.weights)
    np.testing.assert_array_equal(found.gradient, plain.gradient)
    assert (found.job, found.samples, found.loss) == (sent.job, 10, 0.5)
    np.testing.assert_array_equal(sent.weights, weights)
    without = message_as_received(update(card.place(weights), None), Encoding(half=True))
    assert without.gradient is None


def test_far_vectors_that_are_not_shortened_stay_what_they_are(card: DeviceOps) -> None:
    sent = update(card.place(floats(1 / 3)), card.place(floats(2 / 3)))
    for encoding in (Encoding(), Encoding(zstd=True)):
        found = message_as_received(sent, encoding)
        assert found.weights is sent.weights
        assert found.gradient is sent.gradient
