"""The knapsack against brute force, and its guarantees for any input."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import InvariantViolation
from async_hfl.decisions.solvers.knapsack import Packing, fits, knapsack

KINDS = ("uniform", "integers", "decimals", "same density", "same weight", "same value", "mixed sign", "zero weight")


def random_items(rng: np.random.Generator, kind: str, count: int) -> tuple[Floats, Floats]:
    value, weight = rng.uniform(0.1, 1.0, count), rng.uniform(0.1, 1.0, count)
    if kind == "integers":
        value, weight = rng.integers(0, 6, count).astype(float), rng.integers(1, 6, count).astype(float)
    elif kind == "decimals":
        value, weight = rng.integers(1, 9, count) / 10, rng.integers(1, 9, count) / 10
    elif kind == "same density":
        value = 0.3 * weight
    elif kind == "same weight":
        weight = np.full(count, 0.7)
    elif kind == "same value":
        value = np.full(count, 0.7)
    elif kind == "mixed sign":
        value = rng.normal(0.0, 1.0, count).round(1)
    elif kind == "zero weight":
        weight[rng.random(count) < 0.3] = 0.0
    return value, weight


def capacities(rng: np.random.Generator, weight: Floats) -> Iterator[float]:
    """Capacities: too small for any item, exactly some subset, in between, enough for all."""
    yield 0.0
    yield float(weight.min()) * 0.99
    yield float(weight[rng.random(len(weight)) < 0.5].sum())
    yield float(weight.sum()) * rng.uniform(0.1, 0.9)
    yield float(weight.sum())


def brute_force(value: Floats, weight: Floats, capacity: float) -> float:
    subsets = (np.arange(1 << len(value))[:, None] >> np.arange(len(value))) & 1
    worth, heavy = subsets @ value, subsets @ weight
    slack = 1e-12 * max(capacity, 0.0)
    for subset in np.argsort(-worth, kind="stable"):
        if heavy[subset] <= capacity - slack or (
            heavy[subset] <= capacity + slack and fits(weight[subsets[subset] == 1], capacity)
        ):
            return float(worth[subset])
    raise AssertionError("the empty set always fits")


def check(packing: Packing, value: Floats, weight: Floats, capacity: float) -> None:
    chosen = packing.chosen
    assert len(set(chosen.tolist())) == len(chosen)
    assert (np.diff(chosen) > 0).all()
    assert (value[chosen] > 0.0).all()
    if len(chosen):
        assert math.fsum(weight[chosen].tolist()) <= capacity
        assert weight[chosen].sum() <= capacity
    assert packing.objective == pytest.approx(value[chosen].sum(), rel=1e-12)
    assert packing.bound >= packing.objective
    assert packing.gap >= 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_optimal_on_small_problems(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for count in (1, 2, 3, 5, 7, 9):
        for _ in range(25):
            value, weight = random_items(rng, kind, count)
            for capacity in capacities(rng, weight):
                packing = knapsack(value, weight, capacity)
                check(packing, value, weight, capacity)
                best = brute_force(value, weight, capacity) if capacity > 0.0 else 0.0
                assert packing.objective == pytest.approx(best, rel=1e-12, abs=1e-12)
                assert packing.bound >= best * (1.0 - 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_optimal_where_the_halves_are_matched(kind: str) -> None:
    rng = np.random.default_rng(100 + KINDS.index(kind))
    for count in (13, 15):
        for _ in range(2):
            value, weight = random_items(rng, kind, count)
            for capacity in capacities(rng, weight):
                packing = knapsack(value, weight, capacity)
                check(packing, value, weight, capacity)
                best = brute_force(value, weight, capacity) if capacity > 0.0 else 0.0
                assert packing.objective == pytest.approx(best, rel=1e-12, abs=1e-12)


def by_whole_weights(value: Floats, weight: Floats, capacity: int) -> float:
    """Dynamic programme over every whole capacity: a reference for sizes beyond brute force."""
    best = np.zeros(capacity + 1)
    for one, heavy in zip(value, weight.astype(int), strict=True):
        best[heavy:] = np.maximum(best[heavy:], best[: capacity + 1 - heavy] + one)
    return float(best[-1])


@pytest.mark.parametrize("relation", ["unrelated", "weakly", "strongly", "inversely"])
@pytest.mark.parametrize("count", [30, 60, 184])
def test_optimal_or_with_a_valid_bound_on_large_problems(relation: str, count: int) -> None:
    """Whole weights, as the table needs, with all correlations that the literature calls hard."""
    rng = np.random.default_rng(count)
    for _ in range(3):
        weight = rng.integers(1, 400, count).astype(float)
        value = {
            "unrelated": rng.uniform(1.0, 400.0, count),
            "weakly": np.maximum(weight + rng.uniform(-40.0, 40.0, count), 1.0),
            "strongly": weight + 40.0,
            "inversely": np.maximum(weight - 40.0, 1.0),
        }[relation]
        capacity = int(weight.sum() * rng.uniform(0.1, 0.6))
        packing = knapsack(value, weight, float(capacity))
        check(packing, value, weight, capacity)
        best = by_whole_weights(value, weight, capacity)
        assert packing.objective <= best * (1.0 + 1e-12) <= packing.bound * (1.0 + 2e-12)
        assert packing.objective >= best * (1.0 - 2e-4)
        if packing.gap == 0.0:
            assert packing.objective == pytest.approx(best, rel=1e-12)
        if relation == "unrelated":
            assert packing.gap == 0.0


def test_a_state_limit_still_gives_a_feasible_answer_with_a_proven_bound() -> None:
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 400, 120).astype(float)
    value = weight + 40.0
    capacity = int(weight.sum() * 0.4)
    best = by_whole_weights(value, weight, capacity)
    bounds = []
    for limit in (0, 5_000, 50_000, 500_000):
        packing = knapsack(value, weight, float(capacity), state_limit=limit)
        check(packing, value, weight, capacity)
        assert packing.objective <= best <= packing.bound * (1.0 + 1e-12)
        bounds.append(packing.bound)
    assert bounds == sorted(bounds, reverse=True)


def test_ten_thousand_items_with_equal_utilities() -> None:
    """All densities are equal at the start of every run, before any gradient is known: a subset sum."""
    weight = 1e5 / np.random.default_rng(2).lognormal(4.0, 0.8, 10_000)
    packing = knapsack(weight * 1e-5, weight, float(weight.sum() * 0.3))
    check(packing, weight * 1e-5, weight, float(weight.sum() * 0.3))
    assert packing.gap <= 1e-7


def test_the_fast_answers() -> None:
    value, weight = np.array([3.0, 1.0, 2.0]), np.array([5.0, 1.0, 2.0])
    assert knapsack(value, weight, 0.5).chosen.tolist() == []
    assert knapsack(value, weight, -1.0).chosen.tolist() == []
    assert knapsack(value, weight, 0.0).chosen.tolist() == []
    assert knapsack(value, weight, math.nan).chosen.tolist() == []
    assert knapsack(value, weight, 1.5).chosen.tolist() == [1]
    assert knapsack(value, weight, 2.5).chosen.tolist() == [2]
    assert knapsack(value, weight, 8.0).chosen.tolist() == [0, 1, 2]
    assert knapsack(value, weight, math.inf).chosen.tolist() == [0, 1, 2]
    assert knapsack(-value, weight, 8.0).chosen.tolist() == []
    assert knapsack(np.empty(0), np.empty(0), 8.0).chosen.tolist() == []


def test_negative_weights_and_infinite_values_are_refused() -> None:
    with pytest.raises(InvariantViolation, match="weights of at least zero"):
        knapsack(np.ones(2), np.array([1.0, -1.0]), 5.0)
    with pytest.raises(InvariantViolation, match="finite values"):
        knapsack(np.array([1.0, np.inf]), np.ones(2), 5.0)


reals = st.floats(min_value=-1e6, max_value=1e6, allow_subnormal=True)
weights = st.floats(min_value=0.0, max_value=1e9, allow_subnormal=True)


@settings(max_examples=300, derandomize=True)
@given(
    items=st.lists(st.tuples(reals, weights), max_size=30),
    share=st.floats(min_value=0.0, max_value=1.2),
    limit=st.sampled_from([0, 2_000, 100_000]),
)
def test_any_numbers_give_a_feasible_deterministic_answer(
    items: list[tuple[float, float]], share: float, limit: int
) -> None:
    value = np.array([item[0] for item in items], np.float64)
    weight = np.array([item[1] for item in items], np.float64)
    capacity = float(weight.sum()) * share
    packing = knapsack(value, weight, capacity, state_limit=limit)
    check(packing, value, weight, capacity)
    again = knapsack(value.copy(), weight.copy(), capacity, state_limit=limit)
    assert again.chosen.tolist() == packing.chosen.tolist()
    # Never worse than the greedy choice by density.
    greedy, room = 0.0, capacity * (1.0 - 1e-9)
    for item in sorted(range(len(items)), key=lambda i: -value[i] / max(weight[i], 1e-30)):
        if value[item] > 0.0 and weight[item] <= room and capacity > 0.0:
            greedy, room = greedy + value[item], room - weight[item]
    assert packing.objective >= greedy * (1.0 - 1e-9) or packing.gap > 0.0
    assert packing.bound >= greedy * (1.0 - 1e-9)


@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(-900, 900), st.integers(-900, 900))
def test_scaling_by_powers_of_two_changes_nothing(seed: int, value_power: int, weight_power: int) -> None:
    rng = np.random.default_rng(seed)
    value, weight = rng.uniform(0.1, 1.0, 40), rng.uniform(0.1, 1.0, 40)
    plain = knapsack(value, weight, 8.0)
    scaled = knapsack(np.ldexp(value, value_power), np.ldexp(weight, weight_power), math.ldexp(8.0, weight_power))
    assert scaled.chosen.tolist() == plain.chosen.tolist()
