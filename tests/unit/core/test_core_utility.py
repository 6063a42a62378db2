"""Learning utility compared with Eq. 7 of the paper, running sums with recomputed ones; scaling; projection."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.maths.projection import CountSketch, fit_pca
from async_hfl.core.maths.utility import scaled
from async_hfl.core.serialization import from_plain, to_plain

Matrix = npt.NDArray[np.float32]
numbers = st.floats(-100, 100, width=32)


def literal_utility(gradients: npt.NDArray[np.float64]) -> list[float]:
    """Eq. 7 as printed, O(N^2): eta_i = g_i . g, nu_i = -1/(N-1) sum over k != i of g_i . g_k, u_i = eta_i + nu_i."""
    count = len(gradients)
    if count == 1:
        return [float(gradients[0] @ gradients[0])]
    mean = sum(gradients) / count
    found = []
    for i in range(count):
        affinity = gradients[i] @ mean
        diversity = -sum(gradients[i] @ gradients[k] for k in range(count) if k != i) / (count - 1)
        found.append(float(affinity + diversity))
    return found


def table_of(gradients: Matrix) -> GradientTable:
    table = GradientTable.empty(*gradients.shape)
    for slot, gradient in enumerate(gradients):
        table.set_counted(slot, True)
        table.put(slot, gradient)
    return table


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=numbers))
@settings(max_examples=60)
def test_the_closed_form_agrees_with_the_literal_formula(gradients: Matrix) -> None:
    found = table_of(gradients).utility(np.arange(len(gradients)))
    np.testing.assert_allclose(found, literal_utility(gradients.astype(np.float64)), rtol=1e-9, atol=1e-6)


def test_utility_by_hand() -> None:
    # g = (2, 0), (0, 2), (0, 4); mean (2/3, 2). u = (|g_i|^2 - g_i . g) / 2: (4 - 4/3) / 2, (4 - 4) / 2, (16 - 8) / 2.
    gradients = np.array([[2, 0], [0, 2], [0, 4]], np.float32)
    np.testing.assert_allclose(table_of(gradients).utility(np.arange(3)), [4 / 3, 0.0, 4.0], atol=1e-12)
    # With one device: |g|^2. With none: no division by zero.
    alone = table_of(gradients[:1])
    np.testing.assert_array_equal(alone.utility(np.arange(1)), [4.0])
    alone.set_counted(0, False)
    np.testing.assert_array_equal(alone.utility(np.arange(1)), [4.0])


operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 4), hnp.arrays(np.float32, 3, elements=numbers)),
        st.tuples(st.just("set_counted"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("grow"), st.integers(1, 8), st.none()),
        st.tuples(st.just("forget"), st.integers(0, 4), st.none()),
        st.tuples(st.just("reload"), st.just(0), st.none()),
        st.tuples(st.just("ask"), st.just(0), st.none()),
    ),
    max_size=30,
)


@given(operations, st.booleans(), st.sampled_from([1, 100]))
@settings(max_examples=120)
def test_running_sums_agree_with_recomputed_sums(
    steps: list[tuple[str, int, object]], kept: bool, repeats: int
) -> None:
    """With a sum that is kept or computed when needed, and with short or long gradients (3 numbers, repeated)."""
    table = GradientTable.empty(5, 3 * repeats, keep_sum=kept)
    error = 1e-9 if repeats == 1 else 1e-3  # sums to 500, products to some 1e6: single precision has 1e-7 of these
    gradients: dict[int, npt.NDArray[np.float64]] = {}
    counted: set[int] = set()
    for name, slot, value in steps:
        if name == "put":
            assert isinstance(value, np.ndarray)
            value = np.tile(value, repeats)
            table.put(slot, value)
            gradients[slot] = value.astype(np.float64)
        elif name == "set_counted":
            table.set_counted(slot, bool(value))
            (counted.add if value else counted.discard)(slot)
        elif name == "grow":
            table.grow(slot)
        elif name == "forget":
            table.forget(slot)
            gradients.pop(slot, None)
        elif name == "ask":
            table.utility(np.arange(5))
        else:
            table = from_plain(to_plain(table))
    members = sorted(counted & gradients.keys())
    assert table.count == len(members)
    summed = sum((gradients[i] for i in members), np.zeros(3 * repeats))
    np.testing.assert_allclose(table.total(), summed, rtol=0, atol=error)
    assert set(np.flatnonzero(table.known).tolist()) == gradients.keys()
    assert set(np.flatnonzero(table.counted).tolist()) == counted
    if members:
        found = table.utility(np.array(members))
        literal = literal_utility(np.array([gradients[i] for i in members]))
        largest = max(float(gradients[i] @ gradients[i]) for i in members)
        np.testing.assert_allclose(found, literal, rtol=1e-9, atol=1e-6 * (1.0 if repeats == 1 else 1.0 + largest))


def test_a_table_that_grows_keeps_its_rows() -> None:
    table = GradientTable.empty(1, 2)
    table.set_counted(0, True)
    table.put(0, np.array([1, 2], np.float32))
    table.grow(3)
    table.set_counted(2, True)
    table.put(2, np.array([3, 4], np.float32))
    np.testing.assert_array_equal(table.gradients(np.arange(3)), [[1, 2], [0, 0], [3, 4]])
    np.testing.assert_array_equal(table.total(), [4, 6])


@pytest.mark.parametrize("length", [257, 8192, 20_000])
def test_long_gradients_in_single_precision_agree_with_the_literal_formula(length: int) -> None:
    rng = np.random.default_rng(4)
    gradients = rng.standard_normal((7, length)).astype(np.float32)
    table = GradientTable.empty(7, length)
    for slot, gradient in enumerate(gradients):
        table.set_counted(slot, True)
        table.put(slot, gradient)
    found = table.utility(np.arange(7))
    # |g|^2 is about `length`: single precision is good to some 1e-6 of that, divided by N - 1.
    np.testing.assert_allclose(found, literal_utility(gradients.astype(np.float64)), rtol=0, atol=1e-6 * length / 6)


def test_huge_gradients_neither_overflow_nor_leave_an_error_behind() -> None:
    """A gradient of 1e30 is replaced by an ordinary one. Its rounding error of 1e14 would exceed all the others."""
    ordinary = np.random.default_rng(5).standard_normal((4, 300)).astype(np.float32)
    table = GradientTable.empty(4, 300)
    for slot in range(4):
        table.set_counted(slot, True)
        table.put(slot, ordinary[slot])
    table.put(2, np.full(300, 1e30, np.float32))
    assert np.isfinite(table.utility(np.arange(4))).all()
    table.put(2, ordinary[2])
    np.testing.assert_allclose(table.total(), ordinary.astype(np.float64).sum(axis=0), atol=1e-6)
    # ... and the same where it leaves the mean, or the table.
    table.put(1, np.full(300, 1e30, np.float32))
    table.set_counted(1, False)
    np.testing.assert_allclose(table.total(), ordinary[[0, 2, 3]].astype(np.float64).sum(axis=0), atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 3e38])
def test_gradients_beyond_single_precision_are_summed_in_double(size: float) -> None:
    gradients = (np.random.default_rng(6).uniform(-1, 1, (4, 300)) * size).astype(np.float32)
    table = table_of(gradients)
    exact = gradients.astype(np.float64)
    np.testing.assert_allclose(table.total(), exact.sum(axis=0), rtol=0, atol=1e-6 * size)
    if size > 1e-19:  # below, a square is 0 in single precision
        largest = float((exact**2).sum(axis=1).max())
        np.testing.assert_allclose(table.utility(np.arange(4)), literal_utility(exact), rtol=0, atol=1e-6 * largest)
    # Replaced by ordinary gradients: nothing remains of them.
    ordinary = np.random.default_rng(7).standard_normal((4, 300)).astype(np.float32)
    for slot, gradient in enumerate(ordinary):
        table.put(slot, gradient)
    np.testing.assert_array_equal(table.utility(np.arange(4)), table_of(ordinary).utility(np.arange(4)))


def test_many_long_gradients_are_summed_to_single_precision() -> None:
    gradients = np.random.default_rng(8).standard_normal((400, 300)).astype(np.float32) + np.float32(3)
    table = GradientTable.empty(400, 300, keep_sum=False)
    table.counted[:] = True
    for slot, gradient in enumerate(gradients):
        table.put(slot, gradient)
    np.testing.assert_allclose(table.total(), gradients.sum(axis=0, dtype=np.float64), rtol=5e-7)


def test_the_sum_is_recomputed_before_rounding_errors_build_up() -> None:
    table = GradientTable.empty(2, 1)
    for slot in range(2):
        table.set_counted(slot, True)
        table.put(slot, np.array([0.1], np.float32))
    table.sum += 1.0  # what rounding would have done in some 10^16 changes
    for _ in range(256):
        table.put(0, np.array([0.1], np.float32))
    assert table.total()[0] == 2 * float(np.float32(0.1))


def test_rows_of_devices_that_left_are_reused_and_freed() -> None:
    table = GradientTable.empty(100, 3)
    for slot in range(100):
        table.put(slot, np.full(3, slot, np.float32))
    most = len(table.rows)
    for slot in range(50):
        table.forget(slot)
        table.put(slot, np.full(3, -slot, np.float32))
    assert len(table.rows) == most
    for slot in range(90):
        table.forget(slot)
    assert len(table.rows) <= most / 2
    assert table.gradient(0) is None
    np.testing.assert_array_equal(table.gradients(np.arange(90, 100)), np.arange(90.0, 100.0).repeat(3).reshape(10, 3))
    assert np.flatnonzero(table.known).tolist() == list(range(90, 100))


# Scaling ---------------------------------------------------------------------------------------------------------

ALL = np.ones(4, bool)


@pytest.mark.parametrize(
    ("scale", "utility", "expected"),
    [
        # (-1, 0, 1, 3) lie at 0, 1/4, 1/2, 1 of the range; onto [0.1, 1].
        ("minmax", (-1.0, 0.0, 1.0, 3.0), (0.1, 0.325, 0.55, 1.0)),
        ("rank", (-1.0, 0.0, 1.0, 3.0), (0.1, 0.4, 0.7, 1.0)),
        ("rank", (3.0, -1.0, 1e9, 0.0), (0.7, 0.1, 1.0, 0.4)),
        # Ties get their mean rank: 0, (1 + 2) / 2 twice, 3, of 3.
        ("rank", (5.0, 2.0, 5.0, 9.0), (0.55, 0.1, 0.55, 1.0)),
        ("rank", (5.0, 5.0, 5.0, 9.0), (0.4, 0.4, 0.4, 1.0)),
        ("minmax", (2.0, 2.0, 2.0, 2.0), (1.0, 1.0, 1.0, 1.0)),
        ("rank", (2.0, 2.0, 2.0, 2.0), (1.0, 1.0, 1.0, 1.0)),
    ],
)
def test_scaled(scale: str, utility: tuple[float, ...], expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(scaled(np.array(utility), ALL, scale, 0.1), expected, atol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", ["minmax", "rank"])
def test_scaled_with_few_known_utilities(scale: str) -> None:
    def scale_of(*known: bool) -> list[float]:
        return scaled(np.array([7.0, 3.0, 5.0, -9.0]), np.array(known), scale, 0.1).tolist()  # type: ignore[arg-type]

    assert scale_of(False, False, False, False) == [1, 1, 1, 1]
    assert scale_of(False, True, False, False) == [1, 1, 1, 1]
    # Unknown utilities become 1 and do not change the scale of the others.
    assert scale_of(True, True, True, False) == pytest.approx([1, 0.1, 0.55, 1])
    assert scaled(np.zeros(0), np.zeros(0, bool), scale, 0.1).tolist() == []  # type: ignore[arg-type]
    assert scaled(np.array([4.0]), np.ones(1, bool), scale, 0.1).tolist() == [1.0]  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.floats(-1e30, 1e30), st.booleans()), max_size=12), st.sampled_from(["minmax", "rank"]))
@settings(max_examples=80)
def test_scaled_keeps_the_order_and_the_range(values: list[tuple[float, bool]], scale: str) -> None:
    utility = np.array([value for value, _ in values])
    known = np.array([known for _, known in values], bool)
    found = scaled(utility, known, scale, 0.1)  # type: ignore[arg-type]
    assert np.isfinite(found).all()
    assert ((found >= 0.1 - 1e-12) & (found <= 1 + 1e-12)).all()
    assert (found[~known] == 1).all()
    order = np.argsort(utility[known])
    assert (np.diff(found[known][order]) >= -1e-12).all()


# Projection ------------------------------------------------------------------------------------------------------


def random_matrix(rows: int, columns: int, seed: int = 3) -> Matrix:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize(("rows", "asked", "kept"), [(12, 30, 12), (40, 30, 30), (5, 2, 2), (1, 30, 1)])
def test_pca_components_are_orthonormal(rows: int, asked: int, kept: int) -> None:
    projection = fit_pca(random_matrix(rows, 50), asked)
    assert projection.size == kept
    assert not projection.components.flags.writeable
    np.testing.assert_allclose(projection.components @ projection.components.T, np.eye(kept), atol=1e-5)


def test_more_gradients_than_coordinates() -> None:
    projection = fit_pca(random_matrix(9, 4), 30)
    assert projection.size == 4
    np.testing.assert_allclose(projection.components @ projection.components.T, np.eye(4), atol=1e-5)


def test_inner_products_are_preserved_within_the_span() -> None:
    gradients = random_matrix(6, 40)
    projection = fit_pca(gradients, 30)
    inside = (random_matrix(4, 6, seed=8) @ gradients).astype(np.float32)
    projected = np.array([projection.project(row) for row in inside])
    assert projected.dtype == np.float32
    np.testing.assert_allclose(projected @ projected.T, inside @ inside.T, rtol=1e-3, atol=1e-3)


def test_the_leading_components_explain_the_most() -> None:
    # Not centred: the common direction (1, 1, ...) is the first component, although all rows contain it equally.
    gradients = (10 + 0.1 * random_matrix(8, 20)).astype(np.float32)
    first = fit_pca(gradients, 1).components[0]
    np.testing.assert_allclose(first, np.full(20, 20**-0.5), atol=1e-2)


def test_signs_are_fixed() -> None:
    gradients = random_matrix(6, 10)
    components = fit_pca(gradients, 6).components
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    assert (largest > 0).all()
    # The singular vectors of -G are those of G up to sign.
    np.testing.assert_allclose(fit_pca(-gradients, 6).components, components, atol=1e-6)


def test_a_sketch_by_hand() -> None:
    """Each number goes to one sum with one sign; the sketch is linear and depends on the seed alone."""
    unit = np.eye(6, dtype=np.float32)
    sketch = CountSketch(seed=7, size=3)
    landed = np.array([sketch.project(row) for row in unit])
    assert (np.abs(landed).sum(axis=1) == 1).all()
    assert (np.count_nonzero(landed, axis=1) == 1).all()
    gradient = np.array([1, -2, 3, 0.5, 4, -1], np.float32)
    np.testing.assert_allclose(sketch.project(gradient), gradient @ landed)
    np.testing.assert_array_equal(CountSketch(7, 3).project(gradient), sketch.project(gradient))


def test_sketches_keep_inner_products_in_expectation() -> None:
    one, two = random_matrix(2, 400)
    two = (two + one).astype(np.float32)
    exact = float(one @ two)
    found = [float(s.project(one) @ s.project(two)) for s in (CountSketch(seed, 64) for seed in range(400))]
    # The standard error of one is at most about sqrt(2) |x| |y| / sqrt(64); of the mean of 400 a twentieth of that.
    error = 2**0.5 * float(np.linalg.norm(one) * np.linalg.norm(two)) / 64**0.5 / 20
    assert abs(np.mean(found) - exact) < 4 * error
    assert 0.2 * error < np.std(found) / 20 < 2 * error


def test_the_first_compressed_gradient_converts_the_table() -> None:
    gradients = random_matrix(5, 40)
    projection = fit_pca(gradients[:3], 3)
    table = GradientTable.empty(5, 40)
    for slot in range(3):
        table.set_counted(slot, True)
        table.offer(slot, gradients[slot], False, None)
    whole = table.utility(np.arange(3))
    table.compress(projection.size, projection)
    assert (table.size, table.compressed, table.count) == (3, True, 3)
    # Nothing is lost within the span of the components.
    np.testing.assert_allclose(table.utility(np.arange(3)), whole, rtol=1e-4)
    # A whole gradient that arrives later is projected, or ignored without a projection.
    table.offer(3, gradients[3], False, projection)
    table.offer(4, gradients[4], False, None)
    assert table.known.tolist() == [True, True, True, True, False]
    np.testing.assert_allclose(table.gradient(3), projection.project(gradients[3]))
    # The first compressed gradient, without a projection: the others cannot be compared with it.
    other = GradientTable.empty(2, 40)
    other.offer(0, gradients[0], False, None)
    other.offer(1, projection.project(gradients[1]), True, None)
    assert (other.size, other.known.tolist()) == (3, [False, True])
