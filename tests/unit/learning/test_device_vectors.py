"""Vectors on an accelerator (here a host device): operations on them agree with numpy, except for rounding."""

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

from async_hfl.core.errors import InternalError
from async_hfl.core.maths.aggregation import add_changes, average, carried_over, mix, mix_with_drag, with_momentum
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.core.vectors import DeviceVector, HostVector, Vector, to_host
from async_hfl.core.weights import digest, frozen, is_finite, mean_step
from async_hfl.journal.checkpoint import load, save
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device.jax_vectors import _MOST_TERMS, BLOCK, DeviceOps, JaxVector
from async_hfl.learning.engine.trainer import LiveGradients

ROUNDING = 1e-6
"""Tolerance relative to the largest numbers that are added: about eight float32 roundings."""
sizes = st.sampled_from([1, 5, 5000])
coefficients = st.floats(-2, 2)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def ops() -> DeviceOps:
    return DeviceOps(jax.local_devices()[0])


def floats(*values: float) -> HostVector:
    return frozen(np.array(values, np.float32))


def normal(count: int, size: int, seed: int = 1) -> list[HostVector]:
    random = np.random.default_rng(seed)
    return [frozen(random.standard_normal(size).astype(np.float32)) for _ in range(count)]


def some_on_device(ops: DeviceOps, vectors: Sequence[HostVector], placed: Sequence[bool]) -> list[Vector]:
    return [ops.place(vector) if there else vector for vector, there in zip(vectors, placed, strict=True)]


def on_device(ops: DeviceOps, vectors: Sequence[HostVector]) -> list[JaxVector]:
    """Place copies, so that nothing is known about them, whatever was placed before."""
    return [ops.place(vector.copy()) for vector in vectors]


def which(count: int) -> st.SearchStrategy[list[bool]]:
    """Draw which of the vectors are on the device, at least one of them."""
    return st.lists(st.booleans(), min_size=count, max_size=count).filter(any)


def agree(found: Vector, expected: npt.ArrayLike, largest: float) -> None:
    assert isinstance(found, DeviceVector)
    np.testing.assert_allclose(found.to_host(), expected, rtol=0, atol=ROUNDING * largest)


def greatest(vectors: Sequence[HostVector]) -> float:
    return max(float(np.abs(vector).max()) for vector in vectors)


# Mixing ----------------------------------------------------------------------------------------------------------


@given(sizes, seeds, coefficients, which(2))
@settings(max_examples=40)
def test_mixing_agrees_with_numpy(ops: DeviceOps, size: int, seed: int, weight: float, far: list[bool]) -> None:
    vectors = normal(2, size, seed)
    found = mix(*some_on_device(ops, vectors, far), weight)  # type: ignore[call-arg]
    agree(found, mix(*vectors, weight), (1 + 2 * abs(weight)) * greatest(vectors))  # type: ignore[call-arg]


@given(sizes, seeds, coefficients, st.one_of(st.sampled_from([0.0, 1.0]), coefficients), which(3))
@settings(max_examples=60)
def test_mixing_with_drag_agrees_with_numpy(
    ops: DeviceOps, size: int, seed: int, weight: float, drag: float, far: list[bool]
) -> None:
    if drag == 1.0 and far == [False, False, True]:
        far = [True, False, True]  # the sent model is not used then, and the others would be on the host
    vectors = normal(3, size, seed)
    current, received, sent = some_on_device(ops, vectors, far)
    largest = (1 + 2 * abs(weight) + 2 * abs(weight * drag)) * greatest(vectors)
    agree(mix_with_drag(current, received, sent, weight, drag), mix_with_drag(*vectors, weight, drag), largest)  # type: ignore[call-arg]


@pytest.mark.parametrize(("drag", "expected"), [(0.0, (5.5, 4.0)), (0.5, (5.25, 4.0)), (1.0, (5.0, 4.0))])
def test_drag_by_hand(ops: DeviceOps, drag: float, expected: tuple[float, float]) -> None:
    """(4, 8) + 0.25 ((8, -8) - (2, 8)) + drag 0.25 ((2, 8) - (4, 8)): powers of two, so exact."""
    current, received, sent = (ops.place(floats(*values)) for values in ((4, 8), (8, -8), (2, 8)))
    np.testing.assert_array_equal(mix_with_drag(current, received, sent, 0.25, drag), expected)


@given(sizes, seeds, st.data())
@settings(max_examples=50)
def test_averages_agree_with_numpy(ops: DeviceOps, size: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 2, 3, 7]))
    parts = data.draw(st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
    weights = [part / sum(parts) for part in parts]
    vectors = normal(count, size, seed)
    models = some_on_device(ops, vectors, data.draw(which(count)))
    agree(average(models, weights), average(vectors, weights), greatest(vectors))


@pytest.mark.parametrize("count", [_MOST_TERMS, _MOST_TERMS + 1, 300])
def test_an_average_of_many_vectors(ops: DeviceOps, count: int) -> None:
    vectors = normal(count, 50)
    agree(average(on_device(ops, vectors), [1 / count] * count), np.mean(vectors, axis=0, dtype=np.float64), 1.0)


@given(sizes, seeds, st.data())
@settings(max_examples=50)
def test_added_changes_agree_with_numpy(ops: DeviceOps, size: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3))
    weights = data.draw(st.lists(coefficients, min_size=count, max_size=count))
    vectors = normal(1 + 2 * count, size, seed)
    models = some_on_device(ops, vectors, data.draw(which(1 + 2 * count)))
    found = add_changes(models[0], models[1 : 1 + count], models[1 + count :], weights)
    expected = add_changes(vectors[0], vectors[1 : 1 + count], vectors[1 + count :], weights)
    agree(found, expected, (1 + 2 * sum(map(abs, weights))) * greatest(vectors))


def test_adding_no_changes_gives_the_same_model(ops: DeviceOps) -> None:
    np.testing.assert_array_equal(add_changes(ops.place(floats(1, 2)), [], [], []), [1, 2])


def test_a_vector_may_occur_several_times_in_a_blend(ops: DeviceOps) -> None:
    one, other = ops.place(floats(4, 8)), ops.place(floats(8, -8))
    np.testing.assert_array_equal(mix(one, one, 0.25), [4, 8])
    # 4 + 1/2 (8 - 4) + 1/4 (8 - 8), likewise with 8 and -8.
    np.testing.assert_array_equal(add_changes(one, [other, other], [one, other], [0.5, 0.25]), [6, 0])
    # 1/4 (3/4 (4, 8) + 1/4 (8, -8)) + 3/4 (8, -8).
    np.testing.assert_array_equal(mix(mix(one, other, 0.25), other, 0.75), [7.25, -5])


@pytest.mark.parametrize(("drag", "expected"), [(0.0, 5.5), (0.5, 5.25), (1.0, 5.0)])
def test_statistics_by_hand(ops: DeviceOps, drag: float, expected: float) -> None:
    """As in test_core_mixing; then the model is mixed and averaged while it is still lazy."""
    current, received, sent = (ops.place(floats(*values)) for values in ((4, 1, 4), (8, 0.5, 0), (2, 2, 4)))
    mixed = mix_with_drag(current, received, sent, 0.25, drag, trained=1)
    again = mix(mixed, received, 0.5)
    averaged = average([current, mixed], [0.5, 0.5])
    assert isinstance(mixed, JaxVector)
    assert mixed.lazy
    np.testing.assert_array_equal(again, [(expected + 8) / 2, 0.6875, 1.5])
    np.testing.assert_array_equal(averaged, [(expected + 4) / 2, 0.9375, 3.5])
    np.testing.assert_array_equal(mixed, [expected, 0.875, 3])
    np.testing.assert_array_equal(mix(mixed, received, 0.5), again)


@pytest.mark.parametrize("drag", [0.0, 0.5, 1.0])
def test_many_updates_with_statistics(ops: DeviceOps, drag: float) -> None:
    """The trained part is to the bit that of models without statistics, and the statistics are as in numpy. Some models
    are sent and thereby computed; others become too long to be lazy."""
    vectors = [frozen(np.abs(vector)) for vector in normal(201, 60)]
    placed, trained = on_device(ops, vectors), 50
    on_host, far, whole = ([model] for model in (vectors[0], placed[0], placed[0]))
    for number, (new, there) in enumerate(zip(vectors[1:], placed[1:], strict=True)):
        sent = -1 - number % 3 if number % 3 < len(far) else -1
        weight = 0.01 + 0.001 * number
        if number % 10 == 9:
            on_host.append(add_changes(on_host[-1], [new] * 2, [on_host[sent]] * 2, [weight, 0.1], trained=trained))
            far.append(add_changes(far[-1], [there] * 2, [far[sent]] * 2, [weight, 0.1], trained=trained))
            whole.append(add_changes(whole[-1], [there] * 2, [whole[sent]] * 2, [weight, 0.1]))
        else:
            on_host.append(mix_with_drag(on_host[-1], new, on_host[sent], weight, drag, trained=trained))
            far.append(mix_with_drag(far[-1], there, far[sent], weight, drag, trained=trained))
            whole.append(mix_with_drag(whole[-1], there, whole[sent], weight, drag))
        if number % 80 == 79:
            ops.compute([far[-1], far[-2]])
            ops.compute([whole[-1], whole[-2]])
    for one, other, expected in zip(far[::-7], whole[::-7], on_host[::-7], strict=True):
        found = to_host(one)
        np.testing.assert_array_equal(found[:trained], to_host(other)[:trained])
        np.testing.assert_allclose(found[trained:], expected[trained:], rtol=1e-4)
        assert (found[trained:] >= 0).all()


@given(sizes, seeds, st.data())
@settings(max_examples=30)
def test_statistics_agree_with_numpy(ops: DeviceOps, size: int, seed: int, data: st.DataObject) -> None:
    trained, drag = data.draw(st.integers(0, size)), data.draw(st.sampled_from([0.0, 0.5]))
    vectors = normal(5, size, seed)
    near = some_on_device(ops, vectors, data.draw(which(5)))
    if any(isinstance(vector, DeviceVector) for vector in near[:3]):
        expected = mix_with_drag(*vectors[:3], 0.3, drag, trained=trained)
        agree(mix_with_drag(*near[:3], 0.3, drag, trained=trained), expected, greatest(vectors))
    added = add_changes(near[0], near[1:3], near[3:], [0.25, 0.5], trained=trained)
    agree(
        added, add_changes(vectors[0], vectors[1:3], vectors[3:], [0.25, 0.5], trained=trained), 2 * greatest(vectors)
    )


@given(sizes, seeds, st.floats(0, 0.99), which(3))
def test_momentum_agrees_with_numpy(ops: DeviceOps, size: int, seed: int, momentum: float, placed: list[bool]) -> None:
    models, trained = normal(3, size + 2, seed), size
    averaged, current, previous = some_on_device(ops, models, placed)
    expected = with_momentum(*models, momentum, trained=trained)
    found = to_host(with_momentum(averaged, current, previous, momentum, trained=trained))
    np.testing.assert_allclose(found, expected, atol=ROUNDING * 10)
    np.testing.assert_array_equal(found[trained:], models[0][trained:])


@given(sizes, seeds, which(3))
def test_changes_carried_over_agree_with_numpy(ops: DeviceOps, size: int, seed: int, placed: list[bool]) -> None:
    models = normal(3, size + 2, seed)
    adopted, current, uploaded = some_on_device(ops, models, placed)
    expected = carried_over(*models, trained=size)
    np.testing.assert_allclose(
        to_host(carried_over(adopted, current, uploaded, trained=size)), expected, atol=ROUNDING * 10
    )
    np.testing.assert_allclose(expected[:size], (models[0] + models[1] - models[2])[:size], atol=ROUNDING * 10)


def test_arguments_do_not_change(ops: DeviceOps) -> None:
    vectors = [floats(1, 2), floats(3, 4), floats(5, 6)]
    placed = on_device(ops, vectors)
    assert mix_with_drag(*placed, 0.3, 0.5).to_host() is not placed[0].to_host()  # type: ignore[call-arg]
    for vector, before in zip(placed, vectors, strict=True):
        np.testing.assert_array_equal(np.asarray(vector.array), before)
        np.testing.assert_array_equal(vector.to_host(), before)


def test_a_long_chain_of_blends_is_lazy_and_correct(ops: DeviceOps) -> None:
    start, *received = normal(201, 500)
    model: Vector = ops.place(start)
    expected = start.astype(np.float64)
    lazy = 0
    for number, one in enumerate(on_device(ops, received)):
        weight = 0.05 + 0.001 * number
        model = mix(model, one, weight)
        expected += weight * (one.to_host() - expected)
        assert isinstance(model, JaxVector)
        assert len(model.terms) <= _MOST_TERMS
        lazy += model.lazy
    assert lazy >= 200 - 200 // (_MOST_TERMS - 1)
    agree(model, expected, greatest([start, *received]))


def test_a_blend_of_blends_with_too_many_terms_is_computed(ops: DeviceOps) -> None:
    """Ten averages of 40 each; only their mean has too many terms to be lazy."""
    vectors = normal(400, 50)
    placed = on_device(ops, vectors)
    averages = [average(placed[first : first + 40], [1 / 40] * 40) for first in range(0, 400, 40)]
    found = average(averages, [0.1] * 10)
    for one in (*averages, found):
        assert isinstance(one, JaxVector)
        assert len(one.terms) <= _MOST_TERMS
    agree(found, np.mean(vectors, axis=0, dtype=np.float64), 1.0)


def test_lazy_blends_are_computed_together_as_if_alone(ops: DeviceOps) -> None:
    """Blends of different numbers of terms, one of them twice, and a vector that is not lazy."""
    vectors = normal(12, 300)
    placed = on_device(ops, vectors)
    blends = [average(placed[:count], [1 / count] * count) for count in (2, 3, 5, 12)]
    lazy = [blend for blend in blends if isinstance(blend, JaxVector)]
    ops.compute([placed[0], *lazy, lazy[0]])
    for blend, count in zip(lazy, (2, 3, 5, 12), strict=True):
        assert not blend.lazy
        agree(blend, np.mean(vectors[:count], axis=0, dtype=np.float64), 1.0)
    np.testing.assert_array_equal(placed[0], vectors[0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_affects_only_its_own_blends(ops: DeviceOps, bad: float) -> None:
    spoilt = mix(ops.place(floats(1, 1)), ops.place(floats(bad, 1)), 0.5)
    sound = mix(ops.place(floats(2, 2)), ops.place(floats(4, 8)), 0.5)
    assert isinstance(spoilt, JaxVector)
    assert isinstance(sound, JaxVector)
    ops.compute([spoilt, sound])
    assert not is_finite(spoilt)
    np.testing.assert_array_equal(sound, [3, 5])


# Mean steps ------------------------------------------------------------------------------------------------------


def test_a_mean_step_by_hand(ops: DeviceOps) -> None:
    # ((4, 8) - (3, 10)) / 1/4, without the numbers that follow.
    start, end = ops.place(floats(4, 8, 99)), ops.place(floats(3, 10, 7))
    step = mean_step(start, end, 2, np.float32(0.25))
    assert isinstance(step, DeviceVector)
    assert len(step) == 2
    np.testing.assert_array_equal(step, [4, -8])


@given(sizes, seeds, st.floats(2**-10, 100, width=32), st.booleans())
@settings(max_examples=40)
def test_a_mean_step_agrees_with_numpy_except_for_rounding(
    ops: DeviceOps, size: int, seed: int, divisor: float, start_on_device: bool
) -> None:
    start, end = normal(2, size, seed)
    size = max(1, size - 1)
    (sent,) = some_on_device(ops, [start], [start_on_device])
    found = mean_step(sent, ops.place(end), size, np.float32(divisor))
    assert isinstance(found, DeviceVector)
    # XLA multiplies by 1 / divisor: two roundings instead of one.
    np.testing.assert_array_max_ulp(found.to_host(), to_host(mean_step(start, end, size, np.float32(divisor))), 2)


def test_a_mean_step_from_a_device_vector_to_a_host_vector(ops: DeviceOps) -> None:
    step = mean_step(ops.place(floats(4, 8)), floats(3, 10), 2, np.float32(0.25))
    assert isinstance(step, np.ndarray)
    np.testing.assert_array_equal(step, [4, -8])


@pytest.mark.parametrize("start_on_device", [True, False])
def test_a_known_step_is_used_for_its_own_start_and_divisor_only(ops: DeviceOps, start_on_device: bool) -> None:
    (start,) = some_on_device(ops, [floats(4, 8)], [start_on_device])
    end, came = ops.place(floats(3, 10)), ops.place(floats(-1, -1))
    end.set_step(start, np.float32(0.25), came)
    assert mean_step(start, end, 2, np.float32(0.25)) is came
    # Another divisor; then another start vector with the same numbers.
    np.testing.assert_array_equal(mean_step(start, end, 2, np.float32(0.5)), [2, -4])
    np.testing.assert_array_equal(mean_step(to_host(start).copy(), end, 2, np.float32(0.25)), [4, -8])
    assert mean_step(start, end, 2, np.float32(0.25)) is came


def test_a_known_step_does_not_keep_its_start_alive(ops: DeviceOps) -> None:
    start, end = ops.place(np.array([4, 8], np.float32)), ops.place(floats(3, 10))
    end.set_step(start, np.float32(0.25), ops.place(floats(-1, -1)))
    died = weakref.ref(start)
    del start
    gc.collect()
    assert died() is None
    again = ops.place(np.array([4, 8], np.float32))  # perhaps at the same address
    np.testing.assert_array_equal(mean_step(again, end, 2, np.float32(0.25)), [4, -8])


# Products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 300, 4096, 4097, 20_000])
def test_products_agree_with_double_precision(ops: DeviceOps, size: int) -> None:
    vectors = np.array(normal(6, size), np.float64)
    vectors[1] += vectors[0]
    placed = on_device(ops, list(vectors.astype(np.float32)))
    exact = vectors.astype(np.float32).astype(np.float64)
    found = np.array([one.products(placed) for one in placed])
    norms = np.linalg.norm(exact, axis=1)
    # Single precision, in pieces: some 1e-6 of |a| |b|.
    np.testing.assert_array_less(np.abs(found - exact @ exact.T), 2e-6 * np.outer(norms, norms))


def test_products_by_hand(ops: DeviceOps) -> None:
    one, other = ops.place(floats(1, 2, 3)), ops.place(floats(4, -5, 6))
    assert one.products([one, other]) == [14.0, 12.0]
    # With a host vector, a lazy blend, the same vector twice, and none.
    assert one.products([floats(0, 1, 0), mix(one, other, 0.5), other, other]) == [2.0, 13.0, 12.0, 12.0]
    assert one.products([]) == []


@pytest.mark.parametrize("size", [1, 5, 5000])
def test_a_product_does_not_depend_on_the_other_vectors(ops: DeviceOps, size: int) -> None:
    count = BLOCK + 6
    vectors = normal(count, size)
    picked = [0, 1, 2, BLOCK - 1, BLOCK, count - 1]
    pairs = [(i, j) for i in picked for j in picked]

    def all_of(vectors: list[JaxVector]) -> list[float]:
        return [vectors[i].products([vectors[j]])[0] for i, j in pairs]

    alone = [on_device(ops, [vectors[i]])[0].products([vectors[j]])[0] for i, j in pairs]
    assert alone == [alone[pairs.index((j, i))] for i, j in pairs], "symmetric"
    unknown = on_device(ops, vectors)
    assert all_of(unknown) == alone
    assert [product for i in picked for product in np.take(unknown[i].products(unknown), picked)] == alone
    multiplied = on_device(ops, vectors)
    ops.multiply(LiveGradients(0.1), multiplied)
    assert all_of(multiplied) == alone
    # First three, then all the others with them, in reverse order.
    live, late = LiveGradients(0.1), on_device(ops, vectors)
    ops.multiply(live, late[:3])
    ops.multiply(live, late[:2:-1])
    assert all_of(late) == alone
    three = on_device(ops, vectors[:3])
    ops.multiply(LiveGradients(0.1), three)
    assert [three[i].products(three) for i in range(3)] == [
        [alone[pairs.index((i, j))] for j in range(3)] for i in range(3)
    ]


def test_products_of_live_gradients_are_known(ops: DeviceOps, computed: list[int]) -> None:
    live, vectors = LiveGradients(0.1), on_device(ops, normal(BLOCK + 6, 300))
    ops.multiply(live, vectors[:4])
    ops.multiply(live, vectors[4:])
    for one in vectors:
        one.products(vectors)
    assert computed == []
    (other,) = on_device(ops, normal(1, 300))
    vectors[0].products([*vectors, other])
    assert computed == [1]


def test_a_product_does_not_depend_on_the_number_of_blocks(ops: DeviceOps) -> None:
    count = 3 * BLOCK + 6
    numbers = normal(count, 700)
    vectors = on_device(ops, numbers)
    ops.multiply(LiveGradients(0.1), vectors)
    gram = np.array(numbers, np.float64) @ np.array(numbers, np.float64).T
    for i in (0, BLOCK, 3 * BLOCK - 1, 3 * BLOCK, count - 1):
        found = vectors[i].products(vectors)
        np.testing.assert_allclose(found, gram[i], rtol=0, atol=2e-6 * 700)
        for j in (1, 2 * BLOCK, count - 2):
            assert on_device(ops, [numbers[i]])[0].products([numbers[j]]) == [found[j]]
            assert vectors[j].products([vectors[i]]) == [found[j]]


def test_live_gradients_are_those_with_references(ops: DeviceOps) -> None:
    live, vectors = LiveGradients(0.1), on_device(ops, normal(4, 300))
    ops.multiply(live, vectors)
    survivor = vectors.pop(2)
    vectors.clear()
    gc.collect()
    assert live.vectors() == [survivor]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 24), st.integers(0, 60)), min_size=2, max_size=12),
    seeds,
)
@settings(max_examples=40)
def test_products_are_correct_whichever_vectors_are_live(
    ops: DeviceOps, turns: list[tuple[int, int, int]], seed: int
) -> None:
    """In each turn, some vectors join one of two learners or none, some are freed, and all others are multiplied."""
    learners, living, random = [LiveGradients(0.1), LiveGradients(0.1)], [], np.random.default_rng(seed)
    for learner, added, freed in turns:
        new = on_device(ops, normal(added, 7, seed=int(random.integers(1 << 32))))
        if learner < 2:
            ops.multiply(learners[learner], new)
        living += new
        del new
        random.shuffle(living)
        del living[: min(freed, len(living) - 1)]
        check_products(living)


def test_a_lazy_blend_is_computed_to_be_multiplied(ops: DeviceOps) -> None:
    one, other = on_device(ops, [floats(1, 2), floats(3, 4)])
    blend = mix(one, other, 0.5)
    assert isinstance(blend, JaxVector)
    ops.multiply(LiveGradients(0.1), [blend])
    assert not blend.lazy
    assert blend.products([blend]) == [13.0]


def test_vectors_of_different_lengths_are_refused(ops: DeviceOps) -> None:
    live, vectors = LiveGradients(0.1), on_device(ops, normal(3, 300))
    ops.multiply(live, vectors)
    (short,) = on_device(ops, [floats(1, 2)])
    for ask in (lambda: vectors[0].products([short]), lambda: ops.multiply(live, [short])):
        with pytest.raises(InternalError, match="another length"):
            ask()
    assert live.vectors() == vectors
    check_products(vectors)
    assert short.products([short]) == [5.0]


# Overflow and NaN ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", [True, False])
def test_products_that_overflow_single_precision_are_computed_in_double(ops: DeviceOps, live: bool) -> None:
    huge, ordinary = (np.linspace(0.5, 1.5, 300) * 1e25).astype(np.float32), np.linspace(-1, 3, 300, dtype=np.float32)
    vectors = on_device(ops, [huge, ordinary])
    if live:
        ops.multiply(LiveGradients(0.1), vectors)
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
def test_finite(ops: DeviceOps, values: tuple[float, ...], finite: bool) -> None:
    vector = floats(*values)
    placed = ops.place(vector)
    assert is_finite(vector) == is_finite(placed) == placed.finite == finite
    blend = mix(placed, placed, 0.5)
    assert is_finite(blend) == finite
    (squared,) = placed.products([placed])
    assert np.isfinite(squared) == finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_products_with_vectors_that_are_not_finite_are_not_finite_and_do_not_warn(ops: DeviceOps, bad: float) -> None:
    (product,) = ops.place(floats(bad, 1)).products([ops.place(floats(0, 1))])
    assert not np.isfinite(product)


# On the host -----------------------------------------------------------------------------------------------------


def test_the_numbers_are_read_only_and_one_array(ops: DeviceOps) -> None:
    given_vector = floats(1, 2, 3)
    placed = ops.place(given_vector)
    assert placed.to_host() is given_vector
    for vector, expected in ((placed, [1, 2, 3]), (mix(placed, floats(3, 2, 1), 0.5), [2, 2, 2])):
        assert isinstance(vector, DeviceVector)
        numbers = vector.to_host()
        assert numbers is vector.to_host() is to_host(vector) is np.asarray(vector)
        assert (numbers.dtype, numbers.flags.writeable) == (np.float32, False)
        np.testing.assert_array_equal(numbers, expected)


def test_as_an_array(ops: DeviceOps) -> None:
    vector = ops.place(floats(1, 2, 3))
    double = np.asarray(vector, np.float64)
    assert double.dtype == np.float64
    assert double.tolist() == [1, 2, 3]
    copied = np.array(vector)
    copied[0] = 7
    assert vector.to_host()[0] == 1
    assert np.linalg.norm(vector - floats(0, 0, 1)) == 3.0  # type: ignore[operator]


def test_length_and_bytes_of_a_lazy_blend(ops: DeviceOps) -> None:
    placed = ops.place(floats(1, 2, 3))
    blend = mix(placed, floats(3, 2, 1), 0.5)
    assert isinstance(blend, JaxVector)
    for vector in (placed, blend, mean_step(placed, blend, 3, np.float32(2))):
        assert (len(vector), vector.nbytes) == (3, 12)
    (alone,) = on_device(ops, [floats(1, 2)])
    untouched = mix(alone, floats(3, 4), 0.5)
    assert isinstance(untouched, JaxVector)
    assert (len(untouched), untouched.nbytes, untouched.lazy) == (2, 8, True)


def test_a_digest_depends_on_the_numbers_alone(ops: DeviceOps) -> None:
    assert digest(ops.place(floats(1, 2))) == digest(floats(1, 2)) != digest(floats(2, 1))


# Transfer to the device ------------------------------------------------------------------------------------------


def test_a_read_only_array_is_placed_once(ops: DeviceOps) -> None:
    vector, twin = floats(1, 2), floats(1, 2)
    placed = ops.place(vector)
    assert ops.place(vector) is placed
    assert ops.place(placed) is placed
    assert placed.to_same_device(vector) is placed
    assert ops.place(twin) is not placed, "equal, but not identical"


def test_a_writable_array_is_copied(ops: DeviceOps) -> None:
    writable = np.array([1, 2], np.float32)
    placed = ops.place(writable)
    writable[0] = 7
    assert ops.place(writable) is not placed
    assert placed.to_host().tolist() == np.asarray(placed.array).tolist() == [1, 2]
    assert writable.flags.writeable
    assert ops.place(writable).to_host().tolist() == [7, 2]


def test_vectors_without_references_are_freed() -> None:
    ops = DeviceOps(jax.local_devices()[0])
    vector, other = floats(1, 2), floats(3, 4)
    placed, further = ops.place(vector), ops.place(other)
    blend = mix(placed, further, 0.5)
    assert len(ops._placed) == 2
    del placed, further
    gc.collect()
    assert len(ops._placed) == 2, "a lazy blend needs its terms"
    np.testing.assert_array_equal(blend, [2, 3])
    gc.collect()
    assert len(ops._placed) == 0
    assert ops.place(vector).to_host() is vector


def test_a_reused_address_is_not_confused(ops: DeviceOps) -> None:
    """New arrays may have the addresses of arrays that were freed."""
    addresses = set()
    for number in range(50):
        vector = floats(number, number)
        addresses.add(id(vector))
        assert np.asarray(ops.place(vector).array).tolist() == [number, number]
        del vector
    assert len(addresses) < 50, "no address was reused"


# Stored ----------------------------------------------------------------------------------------------------------


def several(ops: DeviceOps, size: int) -> list[DeviceVector]:
    """A placed vector, a lazy blend and a computed blend."""
    one, other = normal(2, size)
    lazy, computed = mix(ops.place(one), other, 0.5), mix(ops.place(one), other, 0.25)
    assert isinstance(lazy, JaxVector)
    assert isinstance(computed, JaxVector)
    ops.compute([computed])
    return [ops.place(one), lazy, computed]


def through_a_file(tree: object, path: Path, ops: DeviceOps | None) -> Any:
    save(path, [("only", to_plain(tree))])
    (found,) = load(path, None if ops is None else ops.place)["only"]
    return from_plain(found)


@pytest.mark.parametrize("file", [False, True])
def test_stored_vectors_return_to_the_device_and_shared_ones_stay_shared(tmp_path: Path, file: bool) -> None:
    ops = DeviceOps(jax.local_devices()[0])
    vectors = several(ops, 2000)
    numbers = [vector.to_host().tobytes() for vector in vectors]
    tree = {"models": vectors, "of devices": [(vector, "again") for vector in vectors], "host": floats(1, 2)}
    found = through_a_file(tree, tmp_path / "c.msgpack", ops) if file else from_plain(to_plain(tree))
    assert [vector.to_host().tobytes() for vector in found["models"]] == numbers
    for vector, (again, _) in zip(found["models"], found["of devices"], strict=True):
        assert isinstance(vector, JaxVector)
        assert vector.ops is ops
        assert again is vector
        np.testing.assert_array_equal(np.asarray(vector.array), vector.to_host())
    assert isinstance(found["host"], np.ndarray)


def test_stored_vectors_can_be_loaded_on_the_host(ops: DeviceOps, tmp_path: Path) -> None:
    vectors = several(ops, 2000)
    for found, vector in zip(through_a_file(vectors, tmp_path / "c.msgpack", None), vectors, strict=True):
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, vector)


def test_stored_vectors_are_multiplied_and_blended_as_before(ops: DeviceOps, tmp_path: Path) -> None:
    vectors = on_device(ops, normal(5, 2000))
    ops.multiply(LiveGradients(0.1), vectors)
    found = through_a_file(vectors, tmp_path / "c.msgpack", ops)
    assert [one.products(found) for one in found] == [one.products(vectors) for one in vectors]
    np.testing.assert_array_equal(average(found, [0.2] * 5), average(vectors, [0.2] * 5))


# Rounded on a link -----------------------------------------------------------------------------------------------
