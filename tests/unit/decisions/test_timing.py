"""Decision times: counted in histogram bins, without effect on the decision."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from async_hfl.decisions.timing import DecisionTimes, Durations, TimedAssociation, TimedSelection


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50))
@example([0, 1, 2, 3, 4])
def test_every_duration_is_in_its_bin(times: list[int]) -> None:
    durations = Durations()
    for one in times:
        durations.add(one)
    classes = list(durations.classes())
    assert sum(number for _, _, number in classes) == len(times) == durations.count
    for low, high, number in classes:
        inside = [one for one in times if low * (1 - 1e-12) <= one * 1e-9 < high * (1 - 1e-12)]
        assert len(inside) == number
        assert high <= low * 1.2500001 or low == 0 or high <= 5e-9 + low
    assert durations.quantile(1.0) == pytest.approx(max(times) * 1e-9, rel=0.26, abs=4e-9)


def test_summary() -> None:
    durations = Durations()
    assert durations.summary() is None
    for _ in range(99):
        durations.add(1000)
    durations.add(5_000_000)
    short = durations.summary()
    assert short is not None
    assert short["count"] == 100
    assert short["mean_s"] == pytest.approx((99 * 1000 + 5_000_000) / 100 * 1e-9)
    assert short["median_s"] == pytest.approx(1e-6, rel=0.2)
    assert short["most_s"] == pytest.approx(5e-3)


class Policy:
    needs = frozenset({"gradients"})
    revisits = True

    def choose(self, problem: object) -> object:
        return ("chosen", problem)

    def solve(self, problem: object) -> object:
        return ("solved", problem)


def test_a_policy_decides_the_same_and_is_timed() -> None:
    times, clock = DecisionTimes(), count(0, 700)
    selection = TimedSelection(Policy(), times.selection, lambda: next(clock))  # type: ignore[arg-type]
    association = TimedAssociation(Policy(), times.association, lambda: next(clock))  # type: ignore[arg-type]
    assert selection.choose(1) == ("chosen", 1)  # type: ignore[arg-type, comparison-overlap]
    assert association.solve(2) == ("solved", 2)  # type: ignore[arg-type, comparison-overlap]
    assert (selection.needs, association.needs, association.revisits) == (Policy.needs, Policy.needs, True)
    assert times.selection.most_ns == times.association.most_ns == 700
    again = DecisionTimes()
    again.restore(times.snapshot())
    assert again.summary() == times.summary()
