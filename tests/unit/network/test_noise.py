"""Noise that depends on nothing but its name and its number."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import stream_seed
from async_hfl.network.noise import NoiseFactors


def test_mean_one_and_the_asked_spread() -> None:
    factors = NoiseFactors(1, "up", 1, 0.5).peek(
        np.arange(400, dtype=np.uint64)[:, None], np.arange(500, dtype=np.uint64)
    )
    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    assert np.log(factors).std() == pytest.approx(0.5, abs=0.005)
    assert np.quantile(np.log(factors), 0.5) == pytest.approx(-0.125, abs=0.01)


def test_the_order_of_other_draws_does_not_matter() -> None:
    one, other = NoiseFactors(7, "up", 3, 0.4), NoiseFactors(7, "up", 3, 0.4)
    first = [one.next(0), one.next(0), one.next(2)]
    assert [other.next(2), other.next(0), other.next(0)] == [first[2], first[0], first[1]]
    assert len(set(first)) == 3
    assert NoiseFactors(7, "down", 3, 0.4).next(0) != first[0]
    assert NoiseFactors(8, "up", 3, 0.4).next(0) != first[0]


def test_one_by_one_is_the_same_as_all_at_once() -> None:
    noise = NoiseFactors(3, "up", 4, 0.7)
    drawn = [[noise.next(source) for _ in range(5)] for source in range(4)]
    ahead = noise.peek(np.arange(4, dtype=np.uint64)[:, None], np.arange(5, dtype=np.uint64))
    assert np.asarray(drawn) == pytest.approx(ahead, rel=1e-12)


def test_a_checkpoint_needs_only_the_counters() -> None:
    noise = NoiseFactors(3, "up", 2, 0.7)
    noise.next(1)
    kept = noise.snapshot()
    assert kept.tolist() == [0, 1]
    after = [noise.next(1), noise.next(0)]
    again = NoiseFactors(3, "up", 2, 0.7)
    again.restore(kept)
    assert [again.next(1), again.next(0)] == after


def test_without_spread_nothing_changes() -> None:
    noise = NoiseFactors(3, "up", 1, 0.0)
    assert [noise.next(0) for _ in range(3)] == [1.0] * 3


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_a_spread_is_a_number(sigma: float) -> None:
    with pytest.raises(SettingsError, match="sigma"):
        NoiseFactors(1, "up", 1, sigma)


def test_named_streams() -> None:
    assert stream_seed(1, "noise", "up") != stream_seed(1, "noise", "down")
