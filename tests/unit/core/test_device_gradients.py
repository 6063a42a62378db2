"""A table of gradients on an accelerator gives the utilities of one on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.maths.projection import CountSketch, fit_pca
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.core.vectors import DeviceVector, HostVector, Vector
from async_hfl.core.weights import frozen
from async_hfl.journal.checkpoint import load, save
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps, JaxVector
from async_hfl.learning.engine.trainer import LiveGradients

SIZE = 300
"""Long enough to be stored as arrays, not as rows of a matrix."""
SLOTS = 5
ERROR = 1e-5
"""Tolerance relative to the largest |g|^2."""
numbers = st.floats(-100, 100, width=32)


@pytest.fixture(scope="module")
def ops() -> DeviceOps:
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
    table = GradientTable.empty(len(gradients), len(gradients[0]), keep_sum=kept)
    for slot, gradient in enumerate(gradients):
        table.set_counted(slot, True)
        table.put(slot, gradient)
    return table


def on_device(ops: DeviceOps, gradients: Sequence[HostVector]) -> list[JaxVector]:
    return [ops.place(gradient.copy()) for gradient in gradients]


class Both:
    """A table of gradients on the device, one on the host, and the gradients in them."""

    def __init__(self, ops: DeviceOps, *, kept: bool, counted: int) -> None:
        """Create tables whose mean consists of the first `counted` slots."""
        self.ops = ops
        self.device = GradientTable.empty(SLOTS, SIZE, keep_sum=kept)
        self.host = GradientTable.empty(SLOTS, SIZE, keep_sum=kept)
        self.gradients: dict[int, npt.NDArray[np.float64]] = {}
        self.counted: set[int] = set()
        for slot in range(counted):
            self.do("set_counted", slot, True)

    def do(self, name: str, slot: int, value: object) -> None:
        if name in ("put", "put host"):
            assert isinstance(value, np.ndarray)
            # The same three numbers repeated, and one entry that depends on the slot.
            gradient = np.tile(value, SIZE // 3)
            gradient[slot] += 1
            frozen(gradient)
            self.host.put(slot, gradient)
            self.device.put(slot, self.ops.place(gradient) if name == "put" else gradient)
            if np.isfinite(gradient).all():
                self.gradients[slot] = gradient.astype(np.float64)
        elif name == "set_counted":
            for table in (self.device, self.host):
                table.set_counted(slot, bool(value))
            (self.counted.add if value else self.counted.discard)(slot)
        elif name == "grow":
            for table in (self.device, self.host):
                table.grow(slot)
        elif name == "forget":
            for table in (self.device, self.host):
                table.forget(slot)
            self.gradients.pop(slot, None)
        elif name == "reload":
            self.device = from_plain(to_plain(self.device))
        else:
            self.check()

    def check(self) -> None:
        """Compare the utilities of every slot, with a gradient or without, and of some twice."""
        assert self.device.count == self.host.count
        assert self.device.known.tolist() == self.host.known.tolist()
        assert set(np.flatnonzero(self.device.known).tolist()) == self.gradients.keys()
        slots = np.array([*range(len(self.device.row_of)), 2, 0])
        largest = max((float(gradient @ gradient) for gradient in self.gradients.values()), default=0.0)
        found = self.device.utility(slots)
        np.testing.assert_allclose(found, self.host.utility(slots), rtol=0, atol=ERROR * largest)
        members = sorted(self.counted & self.gradients.keys())
        if members:
            literal = literal_utility(np.array([self.gradients[slot] for slot in members]))
            np.testing.assert_allclose(self.device.utility(np.array(members)), literal, rtol=0, atol=ERROR * largest)


def steps(*kinds: str) -> st.SearchStrategy[list[tuple[str, int, object]]]:
    slots, gradients = st.integers(0, SLOTS - 1), hnp.arrays(np.float32, 3, elements=numbers)
    known: dict[str, st.SearchStrategy[tuple[str, int, object]]] = {
        "put": st.tuples(st.just("put"), slots, gradients),
        "put host": st.tuples(st.just("put host"), slots, gradients),
        "put nan": st.tuples(st.just("put"), slots, st.just(np.array([1, np.nan, 2], np.float32))),
        "set_counted": st.tuples(st.just("set_counted"), slots, st.booleans()),
        "forget": st.tuples(st.just("forget"), slots, st.none()),
        "grow": st.tuples(st.just("grow"), st.integers(1, 8), st.none()),
        "reload": st.tuples(st.just("reload"), st.just(0), st.none()),
        "ask": st.tuples(st.just("ask"), st.just(0), st.none()),
    }
    return st.lists(st.one_of(*(known[kind] for kind in kinds)), min_size=8, max_size=30)


ALL_STEPS = ("put", "put nan", "set_counted", "forget", "grow", "reload", "ask")


@given(steps(*ALL_STEPS), st.booleans(), st.integers(0, SLOTS))
@settings(max_examples=100)
def test_utilities_of_gradients_on_the_device_agree_with_those_on_the_host(
    ops: DeviceOps, story: list[tuple[str, int, object]], kept: bool, counted: int
) -> None:
    both = Both(ops, kept=kept, counted=counted)
    for step in story:
        both.do(*step)
    both.check()


@given(steps(*ALL_STEPS, "put host"), st.booleans(), st.integers(0, SLOTS))
@settings(max_examples=200)
def test_a_table_may_contain_both_kinds(
    ops: DeviceOps, story: list[tuple[str, int, object]], kept: bool, counted: int
) -> None:
    both = Both(ops, kept=kept, counted=counted)
    for step in story:
        both.do(*step)
    both.check()


def test_utility_by_hand(ops: DeviceOps) -> None:
    """g = (2, 0), (0, 2), (0, 4), followed by zeros; mean (2/3, 2). u = (|g_i|^2 - g_i . g) / 2."""
    gradients = np.zeros((3, SIZE), np.float32)
    gradients[:, :2] = [[2, 0], [0, 2], [0, 4]]
    for kept in (True, False):
        table = table_of(on_device(ops, list(gradients)), kept=kept)
        np.testing.assert_allclose(table.utility(np.arange(3)), [4 / 3, 0, 4], atol=1e-6)
        # The third leaves the mean, which becomes (1, 1); its utility is still computed.
        table.set_counted(2, False)
        np.testing.assert_allclose(table.utility(np.arange(3)), [2, 2, 12], atol=1e-6)
        # With one device: |g|^2.
        table.set_counted(1, False)
        np.testing.assert_array_equal(table.utility(np.arange(3)), [4, 4, 16])


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("count", [7, 70])
def test_many_long_gradients_agree_with_the_literal_formula(ops: DeviceOps, count: int, kept: bool) -> None:
    gradients = normal(count, 5000)
    found = table_of(on_device(ops, gradients), kept=kept).utility(np.arange(count))
    literal = literal_utility(np.array(gradients, np.float64))
    # |g|^2 is about 5000; single precision has an error of some 1e-6 of that, divided by N - 1.
    np.testing.assert_allclose(found, literal, rtol=0, atol=2e-6 * 5000 / (count - 1))


def test_short_gradients_are_copied_to_the_host(ops: DeviceOps) -> None:
    gradients = [frozen(np.array(row, np.float32)) for row in ((2, 0), (0, 2), (0, 4))]
    table = table_of(on_device(ops, gradients))
    np.testing.assert_allclose(table.utility(np.arange(3)), [4 / 3, 0, 4], atol=1e-12)
    np.testing.assert_array_equal(table.gradients(np.arange(3)), gradients)


@pytest.mark.parametrize("kept", [True, False])
def test_huge_gradients_neither_overflow_nor_leave_an_error_behind(ops: DeviceOps, kept: bool) -> None:
    ordinary, huge = normal(4), np.full(SIZE, 1e25, np.float32)
    table = table_of(on_device(ops, ordinary), kept=kept)
    expected = table.utility(np.arange(4))
    table.put(2, ops.place(huge))
    with_huge = np.array([huge if slot == 2 else ordinary[slot] for slot in range(4)], np.float64)
    found = table.utility(np.arange(4))
    np.testing.assert_allclose(found, literal_utility(with_huge), rtol=0, atol=ERROR * SIZE * 1e50)
    assert found[2] == pytest.approx(0.25 * SIZE * 1e50, rel=1e-3)
    table.put(2, on_device(ops, ordinary)[2])
    np.testing.assert_array_equal(table.utility(np.arange(4)), expected)


# Requested products ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_products_of_live_gradients_are_not_computed_again(ops: DeviceOps, computed: list[int], kept: bool) -> None:
    """In tables that keep a sum of host gradients, and in tables that do not."""
    live, gradients = LiveGradients(0.1), on_device(ops, normal(6))
    ops.multiply(live, gradients)
    table = table_of(gradients, kept=kept)
    table.utility(np.arange(6))
    (later,) = on_device(ops, normal(1, seed=4))
    ops.multiply(live, [later])
    table.put(3, later)
    table.utility(np.arange(6))
    assert computed == []


def test_known_products_are_not_requested_again(ops: DeviceOps, computed: list[int]) -> None:
    table = table_of(on_device(ops, normal(4)))
    assert computed == [1] * 4, "squares"
    first = table.utility(np.arange(4))
    assert sum(computed[4:]) >= 6, "each pair"
    computed.clear()
    np.testing.assert_array_equal(table.utility(np.arange(4)), first)
    # A slot that leaves the mean or returns to it is known; a replaced gradient is multiplied with all others.
    table.set_counted(1, False)
    table.utility(np.arange(4))
    table.set_counted(1, True)
    np.testing.assert_array_equal(table.utility(np.arange(4)), first)
    assert computed == []
    table.put(0, *on_device(ops, normal(1, seed=4)))
    table.utility(np.array([0]))
    assert computed == [1, 3]
    table.utility(np.arange(4))
    assert computed == [1, 3]


def test_a_table_that_grows_keeps_its_products(ops: DeviceOps, computed: list[int]) -> None:
    gradients = normal(9)
    table = table_of(on_device(ops, gradients[:4]))
    table.utility(np.arange(4))
    known = table.gram[:4, :4].copy()
    assert not np.isnan(known).any()
    computed.clear()
    table.grow(9)
    for slot, gradient in enumerate(on_device(ops, gradients[4:]), 4):
        table.set_counted(slot, True)
        table.put(slot, gradient)
    np.testing.assert_array_equal(table.gram[:4, :4], known)
    whole = table_of(on_device(ops, gradients)).utility(np.arange(9))
    computed.clear()
    np.testing.assert_array_equal(table.utility(np.arange(4)), whole[:4])
    assert computed == [5] * 4, "with the new ones only"


def test_the_products_of_a_stored_table_are_computed_again(ops: DeviceOps, tmp_path: Path) -> None:
    gradients = normal(20)
    table = through_a_file(table_of(on_device(ops, gradients)), tmp_path / "c.msgpack", ops)
    found = table.utility(np.arange(20))
    np.testing.assert_allclose(found, table_of(gradients).utility(np.arange(20)), rtol=0, atol=ERROR * SIZE)


# NaN -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_ignored(ops: DeviceOps, bad: float, kept: bool) -> None:
    gradients = normal(4)
    broken = gradients[3].copy()
    broken[7] = bad
    table = table_of(on_device(ops, gradients[:3]), kept=kept)
    table.grow(4)
    expected = table.utility(np.arange(3))
    table.set_counted(3, True)
    for slot in (3, 0):
        table.put(slot, ops.place(broken))
    assert table.known.tolist() == [True, True, True, False]
    assert table.count == 3
    np.testing.assert_array_equal(table.utility(np.arange(3)), expected)


@pytest.mark.parametrize("kept", [True, False])
def test_an_ignored_gradient_does_not_change_a_table_on_the_host(ops: DeviceOps, kept: bool) -> None:
    gradients = normal(3)
    table = table_of(gradients, kept=kept)
    expected = table.utility(np.arange(3))
    table.put(1, ops.place(np.full(SIZE, np.nan, np.float32)))
    np.testing.assert_allclose(table.utility(np.arange(3)), expected, rtol=0, atol=ERROR * SIZE)


# Stored ----------------------------------------------------------------------------------------------------------


def through_a_file(table: GradientTable, path: Path, ops: DeviceOps | None) -> GradientTable:
    save(path, [("table", to_plain(table))])
    (found,) = load(path, None if ops is None else ops.place)["table"]
    loaded: GradientTable = from_plain(found)
    return loaded


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("used_before", [True, False])
def test_a_stored_table_continues_with_the_same_bits(
    ops: DeviceOps, tmp_path: Path, kept: bool, used_before: bool
) -> None:
    gradients = normal(6)
    table = table_of(on_device(ops, gradients[:5]), kept=kept)
    if used_before:
        table.utility(np.arange(5))
    stored = through_a_file(table, tmp_path / "c.msgpack", ops)
    assert all(isinstance(stored.gradient(slot), DeviceVector) for slot in range(5))
    for one in (table, stored):
        one.forget(1)
        one.set_counted(3, False)
        one.put(0, *on_device(ops, gradients[5:]))
    np.testing.assert_array_equal(stored.utility(np.arange(5)), table.utility(np.arange(5)))
    np.testing.assert_array_equal(stored.gradients(np.arange(5)), table.gradients(np.arange(5)))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("used_before", [True, False])
def test_a_table_of_the_device_continues_on_the_host(
    ops: DeviceOps, tmp_path: Path, kept: bool, used_before: bool
) -> None:
    """A run that started on an accelerator and is resumed on a CPU."""
    gradients = normal(6)
    table = table_of(on_device(ops, gradients[:5]), kept=kept)
    if used_before:
        table.utility(np.arange(5))
    stored = through_a_file(table, tmp_path / "c.msgpack", None)
    assert all(isinstance(stored.gradient(slot), np.ndarray) for slot in range(5))
    assert stored.on_device
    np.testing.assert_allclose(
        stored.utility(np.arange(5)), table_of(gradients[:5]).utility(np.arange(5)), rtol=0, atol=ERROR * SIZE
    )
    stored.put(2, gradients[5])
    expected = table_of([*gradients[:2], gradients[5], *gradients[3:5]])
    np.testing.assert_allclose(stored.utility(np.arange(5)), expected.utility(np.arange(5)), rtol=0, atol=ERROR * SIZE)
    assert not stored.on_device, "it keeps a sum again"


# Compressed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("size", [64, 280])
def test_gradients_on_the_device_are_sketched_like_those_on_the_host(ops: DeviceOps, size: int, kept: bool) -> None:
    """To few numbers, stored in a matrix, and to so many that they are stored as arrays."""
    gradients, sketch = normal(5), CountSketch(7, size)
    tables = [table_of(some, kept=kept) for some in (on_device(ops, gradients), gradients)]
    tables[0].utility(np.arange(5))
    for table, last in zip(tables, (ops.place(gradients[4]), gradients[4]), strict=True):
        table.forget(4)
        table.compress(sketch.size, sketch)
        assert (table.size, table.compressed, table.count) == (size, True, 4)
        # A whole gradient that arrives later is sketched, too.
        table.offer(4, last, False, sketch)
    device, host = tables
    np.testing.assert_array_equal(device.gradients(np.arange(5)), np.array([sketch.project(g) for g in gradients]))
    np.testing.assert_array_equal(device.utility(np.arange(5)), host.utility(np.arange(5)))
    assert device.known.all()


def test_gradients_on_the_device_are_projected_on_components(ops: DeviceOps) -> None:
    gradients = normal(4)
    projection = fit_pca(np.array(gradients), 3)
    for gradient, placed in zip(gradients, on_device(ops, gradients), strict=True):
        np.testing.assert_array_equal(projection.project(placed), projection.project(gradient))


def test_without_a_projection_gradients_on_the_device_are_lost(ops: DeviceOps) -> None:
    table = table_of(on_device(ops, normal(3)))
    table.utility(np.arange(3))
    table.offer(1, frozen(np.ones(64, np.float32)), True, None)
    assert (table.size, table.known.tolist()) == (64, [False, True, False])
    np.testing.assert_array_equal(table.utility(np.arange(3)), [0, 64, 0])
