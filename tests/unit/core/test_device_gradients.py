"""A table of gradients that lie afar gives the utilities of one that has them here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from async_hfl.core import far_vector
from async_hfl.core.vectors import DeviceVector, HostVector, Vector
from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.maths.projection import CountSketch, fit_pca
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.core.weights import frozen
from async_hfl.journal.checkpoint import load, save
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps
from async_hfl.learning.engine.on_device.jax_vectors import JaxVector
from async_hfl.learning.engine.trainer import LiveGradients

SIZE = 300
"""Long enough to be kept as they come."""
SLOTS = 5
ERROR = 1e-5
"""Of the largest |g|^2."""
numbers = st.floats(-100, 100, width=32)


@pytest.fixture(scope="module")
def card() -> DeviceOps:
    return DeviceOps(jax.local_devices()[0])


def normal(rows: int, size: int = SIZE, seed: int = 3) -> list[HostVector]:
    random = np.random.default_rng(seed)
    return [frozen(random.standard_normal(size).astype(np.float32)) for _ in range(rows)]


def literal_utility(gradients: npt.NDArray[np.float64]) -> list[float]:
    """Eq. 7: g_i . g - 1/(N-1) sum over k != i of g_i . g_k."""
    products, count = gradients @ gradients.T, len(gradients)
    if count == 1:
        return [float(products[0, 0])]
    return [float(products[i].mean() - (products[i].sum() - products[i, i]) / (count - 1)) for i in range(count)]


def table_of(gradients: Sequence[Vector], *, kept: bool = True) -> GradientTable:
    table = GradientTable.empty(len(gradients), len(gradients[0]), kept=kept)
    for slot, gradient in enumerate(gradients):
        table.count_in(slot, True)
        table.put(slot, gradient)
    return table


def afar(card: DeviceOps, gradients: Sequence[HostVector]) -> list[JaxVector]:
    return [card.place(gradient.copy()) for gradient in gradients]


class Both:
    """A table of far gradients, the same of numpy's, and what is in them."""

    def __init__(self, card: DeviceOps, *, kept: bool, counted: int) -> None:
        """The first `counted` slots take part in the mean."""
        self.card = card
        self.far = GradientTable.empty(SLOTS, SIZE, kept=kept)
        self.here = GradientTable.empty(SLOTS, SIZE, kept=kept)
        self.gradients: dict[int, npt.NDArray[np.float64]] = {}
        self.counted: set[int] = set()
        for slot in range(counted):
            self.do("count_in", slot, True)

    def do(self, name: str, slot: int, value: object) -> None:
        if name in ("put", "put here"):
            assert isinstance(value, np.ndarray)
            # The same three numbers again and again, and one place that tells where they stand.
            gradient = np.tile(value, SIZE // 3)
            gradient[slot] += 1
            frozen(gradient)
            self.here.put(slot, gradient)
            self.far.put(slot, self.card.place(gradient) if name == "put" else gradient)
            if np.isfinite(gradient).all():
                self.gradients[slot] = gradient.astype(np.float64)
        elif name == "count_in":
            for table in (self.far, self.here):
                table.count_in(slot, bool(value))
            (self.counted.add if value else self.counted.discard)(slot)
        elif name == "grow":
            for table in (self.far, self.here):
                table.grow(slot)
        elif name == "forget":
            for table in (self.far, self.here):
                table.forget(slot)
            self.gradients.pop(slot, None)
        elif name == "reload":
            self.far = from_plain(to_plain(self.far))
        else:
            self.check()

    def check(self) -> None:
        """Every slot is asked for, whether it has a gradient or not, and some twice."""
        assert self.far.count == self.here.count
        assert self.far.known.tolist() == self.here.known.tolist()
        assert set(np.flatnonzero(self.far.known).tolist()) == self.gradients.keys()
        slots = np.array([*range(len(self.far.row_of)), 2, 0])
        largest = max((float(gradient @ gradient) for gradient in self.gradients.values()), default=0.0)
        found = self.far.utility(slots)
        np.testing.assert_allclose(found, self.here.utility(slots), rtol=0, atol=ERROR * largest)
        members = sorted(self.counted & self.gradients.keys())
        if members:
            literal = literal_utility(np.array([self.gradients[slot] for slot in members]))
            np.testing.assert_allclose(self.far.utility(np.array(members)), literal, rtol=0, atol=ERROR * largest)


def steps(*kinds: str) -> st.SearchStrategy[list[tuple[str, int, object]]]:
    slots, gradients = st.integers(0, SLOTS - 1), hnp.arrays(np.float32, 3, elements=numbers)
    known: dict[str, st.SearchStrategy[tuple[str, int, object]]] = {
        "put": st.tuples(st.just("put"), slots, gradients),
        "put here": st.tuples(st.just("put here"), slots, gradients),
        "put nan": st.tuples(st.just("put"), slots, st.just(np.array([1, np.nan, 2], np.float32))),
        "count_in": st.tuples(st.just("count_in"), slots, st.booleans()),
        "forget": st.tuples(st.just("forget"), slots, st.none()),
        "grow": st.tuples(st.just("grow"), st.integers(1, 8), st.none()),
        "reload": st.tuples(st.just("reload"), st.just(0), st.none()),
        "ask": st.tuples(st.just("ask"), st.just(0), st.none()),
    }
    return st.lists(st.one_of(*(known[kind] for kind in kinds)), min_size=8, max_size=30)


WHOLE_LIFE = ("put", "put nan", "count_in", "forget", "grow", "reload", "ask")


@given(steps(*WHOLE_LIFE), st.booleans(), st.integers(0, SLOTS))
@settings(max_examples=100)
def test_utilities_of_far_gradients_are_those_of_gradients_that_are_here(
    card: DeviceOps, life: list[tuple[str, int, object]], kept: bool, counted: int
) -> None:
    both = Both(card, kept=kept, counted=counted)
    for step in life:
        both.do(*step)
    both.check()


@given(steps(*WHOLE_LIFE, "put here"), st.booleans(), st.integers(0, SLOTS))
@settings(max_examples=200)
def test_a_table_may_hold_both_kinds(
    card: DeviceOps, life: list[tuple[str, int, object]], kept: bool, counted: int
) -> None:
    both = Both(card, kept=kept, counted=counted)
    for step in life:
        both.do(*step)
    both.check()


def test_utility_by_hand(card: DeviceOps) -> None:
    """g = (2, 0), (0, 2), (0, 4), and zeros behind; mean (2/3, 2). u = (|g_i|^2 - g_i . g) / 2."""
    gradients = np.zeros((3, SIZE), np.float32)
    gradients[:, :2] = [[2, 0], [0, 2], [0, 4]]
    for kept in (True, False):
        table = table_of(afar(card, list(gradients)), kept=kept)
        np.testing.assert_allclose(table.utility(np.arange(3)), [4 / 3, 0, 4], atol=1e-6)
        # The third leaves the mean, (1, 1), and is asked for all the same.
        table.count_in(2, False)
        np.testing.assert_allclose(table.utility(np.arange(3)), [2, 2, 12], atol=1e-6)
        # Alone: |g|^2.
        table.count_in(1, False)
        np.testing.assert_array_equal(table.utility(np.arange(3)), [4, 4, 16])


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("count", [7, 70])
def test_many_long_gradients_agree_with_the_literal_formula(card: DeviceOps, count: int, kept: bool) -> None:
    gradients = normal(count, 5000)
    found = table_of(afar(card, gradients), kept=kept).utility(np.arange(count))
    literal = literal_utility(np.array(gradients, np.float64))
    # |g|^2 is about 5000: single precision is good to some 1e-6 of that, divided by N - 1.
    np.testing.assert_allclose(found, literal, rtol=0, atol=2e-6 * 5000 / (count - 1))


def test_short_gradients_are_fetched(card: DeviceOps) -> None:
    gradients = [frozen(np.array(row, np.float32)) for row in ((2, 0), (0, 2), (0, 4))]
    table = table_of(afar(card, gradients))
    np.testing.assert_allclose(table.utility(np.arange(3)), [4 / 3, 0, 4], atol=1e-12)
    np.testing.assert_array_equal(table.gradients(np.arange(3)), gradients)


@pytest.mark.parametrize("kept", [True, False])
def test_huge_gradients_neither_overflow_nor_leave_anything_behind(card: DeviceOps, kept: bool) -> None:
    ordinary, huge = normal(4), np.full(SIZE, 1e25, np.float32)
    table = table_of(afar(card, ordinary), kept=kept)
    expected = table.utility(np.arange(4))
    table.put(2, card.place(huge))
    with_huge = np.array([huge if slot == 2 else ordinary[slot] for slot in range(4)], np.float64)
    found = table.utility(np.arange(4))
    np.testing.assert_allclose(found, literal_utility(with_huge), rtol=0, atol=ERROR * SIZE * 1e50)
    assert found[2] == pytest.approx(0.25 * SIZE * 1e50, rel=1e-3)
    table.put(2, afar(card, ordinary)[2])
    np.testing.assert_array_equal(table.utility(np.arange(4)), expected)


# What is asked for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_gradients_that_know_each_other_cost_no_question(card: DeviceOps, asked: list[int], kept: bool) -> None:
    """Nor where no sum would be kept of such that are here."""
    kin, gradients = LiveGradients(0.1), afar(card, normal(6))
    card.introduce(kin, gradients)
    table = table_of(gradients, kept=kept)
    table.utility(np.arange(6))
    (later,) = afar(card, normal(1, seed=4))
    card.introduce(kin, [later])
    table.put(3, later)
    table.utility(np.arange(6))
    assert asked == []


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which products a table asks its vectors for, and of how many."""
    found: list[tuple[str, int]] = []

    def count(name: str) -> None:
        real = getattr(JaxVector, name)

        def counted(one: JaxVector, others: Sequence[Vector]) -> Any:
            found.append((name, len(others)))
            return real(one, others)

        monkeypatch.setattr(JaxVector, name, counted)

    count("products")
    count("products_among")
    return found


def test_what_is_known_is_not_looked_up_again(card: DeviceOps, looked_up: list[tuple[str, int]]) -> None:
    table = table_of(afar(card, normal(6)))
    table.count_in(5, False)
    assert looked_up == [("products", 1)] * 6, "squares"
    looked_up.clear()
    table.utility(np.arange(4))
    assert looked_up == [("products_among", 5)]
    table.utility(np.array([0, 4, 2]))
    assert len(looked_up) == 1
    # Of the one that does not count, with those that do; then of one that is replaced.
    table.utility(np.array([5]))
    assert looked_up[1:] == [("products_among", 6)]
    table.put(1, *afar(card, normal(1, seed=4)))
    table.utility(np.array([0, 3, 5]))
    table.utility(np.arange(6))
    assert looked_up[2:] == [("products", 1), ("products", 5)]
    assert not np.isnan(table.gram[:6, :6]).any()


def test_what_was_asked_for_is_not_asked_for_again(card: DeviceOps, asked: list[int]) -> None:
    table = table_of(afar(card, normal(4)))
    assert asked == [1] * 4, "squares"
    first = table.utility(np.arange(4))
    np.testing.assert_array_equal(table.utility(np.arange(4)), first)
    # Who leaves the mean or comes back is known as well; who is replaced is asked for once.
    table.count_in(1, False)
    table.utility(np.arange(4))
    table.count_in(1, True)
    np.testing.assert_array_equal(table.utility(np.arange(4)), first)
    assert asked == [1] * 4
    table.put(0, *afar(card, normal(1, seed=4)))
    table.utility(np.array([0]))
    table.utility(np.arange(4))
    assert asked == [1] * 5


def test_a_table_that_grows_keeps_what_it_was_told(card: DeviceOps) -> None:
    gradients = normal(9)
    table = table_of(afar(card, gradients[:4]))
    table.utility(np.arange(4))
    told = table.gram[:4, :4].copy()
    assert not np.isnan(told).any()
    table.grow(9)
    for slot, gradient in enumerate(afar(card, gradients[4:]), 4):
        table.count_in(slot, True)
        table.put(slot, gradient)
    np.testing.assert_array_equal(table.gram[:4, :4], told)
    whole = table_of(afar(card, gradients)).utility(np.arange(9))
    np.testing.assert_array_equal(table.utility(np.arange(4)), whole[:4])


def test_all_that_a_table_has_is_asked_for_at_once_when_it_comes_back(
    card: DeviceOps, asked: list[int], tmp_path: Path
) -> None:
    """From a checkpoint, where nobody knows anybody."""
    gradients = normal(20)
    table = through_a_file(table_of(afar(card, gradients)), tmp_path / "c.msgpack")
    asked.clear()
    found = table.utility(np.arange(20))
    assert asked == [20]
    np.testing.assert_allclose(found, table_of(gradients).utility(np.arange(20)), rtol=0, atol=ERROR * SIZE)


# NaN -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_far_gradient_that_is_not_finite_is_let_go(card: DeviceOps, bad: float, kept: bool) -> None:
    gradients = normal(4)
    broken = gradients[3].copy()
    broken[7] = bad
    table = table_of(afar(card, gradients[:3]), kept=kept)
    table.grow(4)
    expected = table.utility(np.arange(3))
    table.count_in(3, True)
    for slot in (3, 0):
        table.put(slot, card.place(broken))
    assert table.known.tolist() == [True, True, True, False]
    assert table.count == 3
    np.testing.assert_array_equal(table.utility(np.arange(3)), expected)


@pytest.mark.parametrize("kept", [True, False])
def test_a_far_gradient_that_is_let_go_changes_nothing_for_those_that_are_here(card: DeviceOps, kept: bool) -> None:
    gradients = normal(3)
    table = table_of(gradients, kept=kept)
    expected = table.utility(np.arange(3))
    table.put(1, card.place(np.full(SIZE, np.nan, np.float32)))
    np.testing.assert_allclose(table.utility(np.arange(3)), expected, rtol=0, atol=ERROR * SIZE)


# Stored ----------------------------------------------------------------------------------------------------------


def through_a_file(table: GradientTable, path: Path) -> GradientTable:
    save(path, [("table", to_plain(table))])
    (found,) = load(path)["table"]
    loaded: GradientTable = from_plain(found)
    return loaded


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("asked_before", [True, False])
def test_a_stored_table_goes_on_with_the_same_bits(
    card: DeviceOps, tmp_path: Path, kept: bool, asked_before: bool
) -> None:
    gradients = normal(6)
    table = table_of(afar(card, gradients[:5]), kept=kept)
    if asked_before:
        table.utility(np.arange(5))
    stored = through_a_file(table, tmp_path / "c.msgpack")
    assert all(isinstance(stored.gradient(slot), DeviceVector) for slot in range(5))
    for one in (table, stored):
        one.forget(1)
        one.count_in(3, False)
        one.put(0, *afar(card, gradients[5:]))
    np.testing.assert_array_equal(stored.utility(np.arange(5)), table.utility(np.arange(5)))
    np.testing.assert_array_equal(stored.gradients(np.arange(5)), table.gradients(np.arange(5)))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("asked_before", [True, False])
def test_a_table_that_was_afar_goes_on_where_nobody_keeps_vectors_afar(
    card: DeviceOps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, asked_before: bool
) -> None:
    """A run that began on an accelerator and goes on on a processor."""
    gradients = normal(6)
    table = table_of(afar(card, gradients[:5]), kept=kept)
    if asked_before:
        table.utility(np.arange(5))
    monkeypatch.setattr(far_vector, "_send_away", None)
    stored = through_a_file(table, tmp_path / "c.msgpack")
    assert all(isinstance(stored.gradient(slot), np.ndarray) for slot in range(5))
    assert stored.afar
    np.testing.assert_allclose(
        stored.utility(np.arange(5)), table_of(gradients[:5]).utility(np.arange(5)), rtol=0, atol=ERROR * SIZE
    )
    stored.put(2, gradients[5])
    expected = table_of([*gradients[:2], gradients[5], *gradients[3:5]])
    np.testing.assert_allclose(stored.utility(np.arange(5)), expected.utility(np.arange(5)), rtol=0, atol=ERROR * SIZE)
    assert not stored.afar, "it sums again"


# Compressed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("size", [64, 280])
def test_far_gradients_are_sketched_as_those_that_are_here(card: DeviceOps, size: int, kept: bool) -> None:
    """To few numbers, kept in a matrix, and to so many that they are kept one by one."""
    gradients, sketch = normal(5), CountSketch(7, size)
    tables = [table_of(some, kept=kept) for some in (afar(card, gradients), gradients)]
    tables[0].utility(np.arange(5))
    for table, last in zip(tables, (card.place(gradients[4]), gradients[4]), strict=True):
        table.forget(4)
        table.compress(sketch.size, sketch)
        assert (table.size, table.compressed, table.count) == (size, True, 4)
        # One that comes whole later is sketched too.
        table.offer(4, last, False, sketch)
    far, here = tables
    np.testing.assert_array_equal(far.gradients(np.arange(5)), np.array([sketch.project(g) for g in gradients]))
    np.testing.assert_array_equal(far.utility(np.arange(5)), here.utility(np.arange(5)))
    assert far.known.all()


def test_far_gradients_are_projected_on_components(card: DeviceOps) -> None:
    gradients = normal(4)
    projection = fit_pca(np.array(gradients), 3)
    for gradient, placed in zip(gradients, afar(card, gradients), strict=True):
        np.testing.assert_array_equal(projection.project(placed), projection.project(gradient))


def test_without_a_basis_far_gradients_are_forgotten(card: DeviceOps) -> None:
    table = table_of(afar(card, normal(3)))
    table.utility(np.arange(3))
    table.offer(1, frozen(np.ones(64, np.float32)), True, None)
    assert (table.size, table.known.tolist()) == (64, [False, True, False])
    np.testing.assert_array_equal(table.utility(np.arange(3)), [0, 64, 0])
