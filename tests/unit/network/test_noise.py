"""Noise: each factor depends only on the seed, the name, the source and the number of its draw."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import InvariantViolation, SettingsError
from async_hfl.core.randomness import stream_seed
from async_hfl.core.topology import feasible_links
from async_hfl.network.delays.noise import NoiseFactors
from async_hfl.network.delays.noisy import NoiseSpread, NoisyDelays
from async_hfl.network.delays.rates import RateDelays
from async_hfl.network.description import DelayModel
from async_hfl.network.link_lookup import LinkLookup, compact


def test_the_mean_is_one_and_the_spread_is_sigma() -> None:
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


def test_peek_returns_the_same_factors_as_next() -> None:
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


def test_without_spread_every_factor_is_one() -> None:
    noise = NoiseFactors(3, "up", 1, 0.0)
    assert [noise.next(0) for _ in range(3)] == [1.0] * 3


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_sigma_must_be_a_finite_number(sigma: float) -> None:
    with pytest.raises(SettingsError, match="sigma"):
        NoiseFactors(1, "up", 1, sigma)


def test_streams_of_other_names_differ() -> None:
    assert stream_seed(1, "noise", "up") != stream_seed(1, "noise", "down")


LINKS = feasible_links(2, 2, np.array([0, 0, 1]), np.array([0, 1, 1]), np.ones(3))
RATES = RateDelays(
    LinkLookup.of(LINKS),
    compact(np.array([1000.0, 2000.0, 4000.0])),
    compact(np.array([100.0, 200.0, 400.0])),
    0.0,
    compact(np.array([30.0, 60.0])),
    compact(np.array([10.0, 20.0])),
    0.0,
)


def all_kinds(delays: DelayModel) -> list[float]:
    return [
        delays.to_device(1, 0, 1000),
        delays.to_gateway(0, 1, 1000),
        delays.compute(1),
        delays.gateway_to_cloud(1, 1000),
        delays.cloud_to_gateway(1, 1000),
    ]


def test_noise_does_not_change_the_mean_delays() -> None:
    noisy = NoisyDelays.around(RATES, LINKS, NoiseSpread(0.3, 0.2, 0.1), 5)
    drawn = np.array([all_kinds(noisy) for _ in range(4000)])
    assert drawn.mean(axis=0) == pytest.approx(all_kinds(RATES), rel=0.02)
    assert np.log(drawn).std(axis=0) == pytest.approx([0.3, 0.3, 0.2, 0.1, 0.1], rel=0.05)


def test_without_spread_the_delays_are_unchanged() -> None:
    assert all_kinds(NoisyDelays.around(RATES, LINKS, NoiseSpread(0.0), 5)) == all_kinds(RATES)


def test_restored_noisy_delays_continue_alike() -> None:
    noisy = NoisyDelays.around(RATES, LINKS, NoiseSpread(0.3, 0.2, 0.1), 5)
    all_kinds(noisy)
    kept = noisy.snapshot()
    after = all_kinds(noisy)
    again = NoisyDelays.around(RATES, LINKS, NoiseSpread(0.3, 0.2, 0.1), 5)
    assert all_kinds(again) != after
    again.restore(kept)
    assert all_kinds(again) == after


def test_noise_needs_a_link() -> None:
    with pytest.raises(InvariantViolation, match="no link"):
        NoisyDelays.around(RATES, LINKS, NoiseSpread(), 5).to_device(0, 1, 10)
