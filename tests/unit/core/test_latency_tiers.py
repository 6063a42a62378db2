"""TiFL's tiers and the draws of the cloud, by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from async_hfl.core.maths.latency_tiers import TierDraws, Tiers, draw, probabilities, tier_limits, tier_losses

LATENCY = np.arange(10.0, 101.0, 10.0)
LOSS = np.array([1.0, 1.0, 5.0, 5.0, 3.0, 3.0, 2.0, 2.0, 4.0, 4.0])


def told(state: TierDraws, epoch: int, *, rounds: int = 5, loss: np.ndarray = LOSS, seed: int = 1) -> Tiers:
    draw(state, LATENCY, loss, math.inf, rounds, epoch, seed)
    assert state.told is not None
    return state.told


def test_tiers_are_fifths_of_those_that_are_fast_enough() -> None:
    assert tier_limits(LATENCY, math.inf) == (20.0, 40.0, 60.0, 80.0, 100.0)
    assert tier_limits(LATENCY, 50.0) == (10.0, 20.0, 30.0, 40.0, 50.0)
    tiers = Tiers(tier_limits(LATENCY, 50.0), (0,))
    assert tiers.tier_of(LATENCY).tolist() == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5], "5: excluded"
    assert tier_limits(LATENCY, 1.0) == tier_limits(LATENCY, math.inf), "not everybody is excluded"


def test_probabilities_by_rank_of_loss() -> None:
    """Tier losses 1, 5, 3, 2, 4: from worst to best 5/15, 4/15, 3/15, 2/15, 1/15. Excluded devices do not count."""
    tier = np.append(np.arange(10) // 2, 5)
    losses = tier_losses(tier, np.append(LOSS, 99.0))
    assert losses.tolist() == [1.0, 5.0, 3.0, 2.0, 4.0]
    assert probabilities(losses) == pytest.approx([1 / 15, 5 / 15, 3 / 15, 2 / 15, 4 / 15])
    assert probabilities(np.ones(5)) == pytest.approx([0.2] * 5)
    assert tier_losses(np.array([0, 1]), np.array([math.nan, 2.0])).tolist() == [math.inf, 2.0] + [math.inf] * 3


def test_all_tiers_are_equal_at_first_and_by_rank_after_twenty_rounds() -> None:
    state = TierDraws()
    for epoch in range(4):
        told(state, epoch)
        assert state.probabilities == [0.2] * 5
    told(state, 4)
    assert state.probabilities == pytest.approx([1 / 15, 5 / 15, 3 / 15, 2 / 15, 4 / 15])


def test_a_tier_is_drawn_by_its_probability_for_each_round() -> None:
    p = [0.1, 0.4, 0.2, 0.2, 0.1]
    drawn: Counter[int] = Counter()
    for seed in range(1500):
        tiers = told(TierDraws(window=0, probabilities=p, credits=[99] * 5), 0, rounds=2, seed=seed)
        assert len(tiers.drawn) == 2
        drawn.update(tiers.drawn)
    assert [drawn[tier] / 3000 for tier in range(5)] == pytest.approx(p, abs=0.03)


def test_a_tier_without_credit_waits_for_the_next_grant() -> None:
    state = TierDraws(window=0, credits=[0, 0, 1, 0, 0])
    assert told(state, 0, rounds=1).drawn == (2,)
    assert state.credits == [0] * 5
    assert len(told(state, 1, rounds=3).drawn) == 3, "a run never stalls for credits"
    told(state, 4, rounds=5)
    assert sum(state.credits) == 5 * 8 - 5


def test_a_tier_without_devices_is_not_drawn() -> None:
    state = TierDraws()
    latency = np.array([1.0, 1.0, 1.0, 1.0, 9.0])
    draw(state, latency, np.ones(5), math.inf, 50, 0, 1)
    assert state.told is not None
    assert set(state.told.drawn) == set(state.told.tier_of(latency).tolist()) == {0, 4}


def test_no_tier_takes_more_than_two_fifths_of_a_run() -> None:
    """However high the loss of the first tier is."""
    loss, state, drawn = np.array([9.0] * 2 + [0.1] * 8), TierDraws(), Counter[int]()
    for epoch in range(80):
        drawn.update(told(state, epoch, loss=loss).drawn)
    assert drawn[0] == max(drawn.values())
    assert 0.3 * 400 < drawn[0] <= 0.4 * 400
