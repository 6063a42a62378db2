"""Random outages: the right means and share down from the start, dependence on (seed, source, number) only."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import SettingsError
from async_hfl.network.outages.on_off import FIRST_DRAW, Distribution, OnOff
from async_hfl.network.outages.plan import Change, OutagePlan

MANY = 4000


@pytest.mark.parametrize(("distribution", "spread"), [("exponential", 1.0), ("log-normal", 0.8)])
def test_means_and_spreads_are_those_of_the_distribution(distribution: Distribution, spread: float) -> None:
    process = OnOff(300.0, 60.0, distribution, spread)
    for up, mean in ((True, 300.0), (False, 60.0)):
        drawn = np.array([process.seconds(up, 7, source, FIRST_DRAW) for source in range(MANY)])
        assert drawn.mean() == pytest.approx(mean, rel=0.06)
        # exponential: equal to the mean; log-normal: mean x sqrt(e^(sigma^2) - 1)
        expected = mean if distribution == "exponential" else mean * np.sqrt(np.expm1(spread**2))
        assert drawn.std() == pytest.approx(expected, rel=0.15)
        assert (drawn > 0).all()


@pytest.mark.parametrize("distribution", ["exponential", "log-normal"])
def test_the_same_share_is_down_at_any_time(distribution: Distribution) -> None:
    """At the start and when the first intervals end: 1000 sources, followed for a while."""
    plan = OutagePlan(3, devices=OnOff(900.0, 100.0, distribution, 1.0))
    waiting = {change.number: change for change in plan.first_changes({"device": 1000, "link": 0, "gateway": 0})}
    shares = []
    for at in (1.0, 50.0, 200.0, 800.0, 3000.0):
        for source, change in waiting.items():
            following = change
            while following.at <= at:
                following = plan.next_change(following)
            waiting[source] = following
        shares.append(np.mean([change.turn == "up" for change in waiting.values()]))
    assert np.array(shares) == pytest.approx(0.1, abs=0.035)
    assert np.mean(shares) == pytest.approx(0.1, abs=0.015)


def test_a_draw_depends_on_nothing_else() -> None:
    process = OnOff(10.0, 1.0)
    assert process.seconds(True, 1, 2, 5) == process.seconds(True, 1, 2, 5)
    others = {process.seconds(True, *which) for which in ((1, 2, 5), (2, 2, 5), (1, 3, 5), (1, 2, 6))}
    assert len(others) == 4
    change = Change(100.0, "gateway", 1, "up", 8)
    plan = OutagePlan(1, gateways=process)
    assert plan.next_change(change) == plan.next_change(change)
    assert (plan.next_change(change).turn, plan.next_change(change).draw) == ("down", 9)


@pytest.mark.parametrize(("up", "down"), [(0.0, 1.0), (1.0, 0.0), (float("inf"), 1.0), (1.0, float("nan"))])
def test_invalid_times(up: float, down: float) -> None:
    with pytest.raises(SettingsError, match="is not a positive number of seconds"):
        OnOff(up, down)
