"""The baselines' selections against numbers worked out by hand from their papers, and their preferences."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from decision_problems import selection_problem

from async_hfl.core.arrays import Floats
from async_hfl.core.maths.latency_tiers import Tiers
from async_hfl.core.policies import Peers, SelectionProblem
from async_hfl.decisions.selection.capacity_fill import FreeBandwidth, weighted_order
from async_hfl.decisions.selection.divfl import DivFl, distances, greedy
from async_hfl.decisions.selection.high_loss import HighLoss
from async_hfl.decisions.selection.longest_idle import LongestIdle
from async_hfl.decisions.selection.oort import Oort
from async_hfl.decisions.selection.short_latency import ShortLatency
from async_hfl.decisions.selection.tifl import Tifl


def known(
    *,
    latency: Sequence[float] | Floats,
    loss: Sequence[float] | Floats | None = None,
    squared: Sequence[float] | Floats | None = None,
    samples: Sequence[int] | None = None,
    last_seen: Sequence[int] | None = None,
    capacity: float = 1.0,
    epoch: int = 9,
    seed: int = 7,
) -> SelectionProblem:
    """Devices 10, 12, 14, ... that each take a bandwidth of 1."""
    count = len(latency)
    return replace(
        selection_problem(np.ones(count), capacity, latency=np.array(latency, np.float64), seed=seed),
        loss=np.full(count, np.nan) if loss is None else np.array(loss, np.float64),
        squared_loss=np.full(count, np.nan) if squared is None else np.array(squared, np.float64),
        samples=np.full(count, 100) if samples is None else np.array(samples),
        last_seen=None if last_seen is None else np.array(last_seen),
        gateway_epoch=epoch,
    )


def shares(policy: Oort, problem: SelectionProblem, draws: int) -> dict[int, float]:
    """Count how often each device is the first choice over many seeds."""
    first = [policy.choose(replace(problem, seed=seed)).devices[0] for seed in range(draws)]
    return {device: times / draws for device, times in Counter(first).items()}


class TestOrders:
    def test_high_loss(self) -> None:
        problem = known(latency=[30.0] * 4, loss=[0.5, 2.0, math.nan, 1.0], capacity=3.0)
        assert HighLoss().choose(problem).devices == (14, 12, 16), "the one never heard of, then by loss"

    def test_short_latency(self) -> None:
        problem = known(latency=[30.0, 10.0, 20.0], capacity=2.0)
        assert ShortLatency().choose(problem).devices == (12, 14)

    def test_longest_idle(self) -> None:
        problem = replace(known(latency=[30.0] * 3, capacity=2.0), idle_since=np.array([50.0, 90.0, 10.0]))
        assert LongestIdle().choose(problem).devices == (14, 10)

    @pytest.mark.parametrize("policy", [HighLoss(), ShortLatency(), LongestIdle()], ids=lambda p: type(p).__name__)
    def test_ties_are_drawn(self, policy: HighLoss | ShortLatency | LongestIdle) -> None:
        problem = known(latency=[30.0] * 4, loss=[1.0] * 4)
        first = Counter(policy.choose(replace(problem, seed=seed)).devices[0] for seed in range(400))
        assert sorted(first) == [10, 12, 14, 16]
        assert max(first.values()) < 150

    def test_devices_that_do_not_fit_are_skipped(self) -> None:
        problem = replace(known(latency=[10.0, 20.0, 30.0], capacity=2.0), data_rate=np.array([1.5, 1.0, 0.5]))
        assert ShortLatency().choose(problem).devices == (10, 14)


def test_capacity_is_exact_to_the_last_digit() -> None:
    rates = [0.1, 0.2, 0.3, 0.4, 0.7, 0.6]
    for order in itertools.permutations(rates):
        room = FreeBandwidth(math.fsum(rates))
        assert all(room.take(rate) for rate in order)
        assert not room.take(1e-12)


def test_an_order_drawn_by_weight() -> None:
    """Weights 1, 2, 5: the first place goes to each in proportion; the second to one of the others in proportion."""
    rng = np.random.default_rng(0)
    orders = Counter(tuple(weighted_order(np.array([1.0, 2.0, 5.0]), 1.0 - rng.random(3))) for _ in range(20_000))
    for order, wanted in (((0, 1, 2), 1 / 8 * 2 / 7), ((2, 1, 0), 5 / 8 * 2 / 3), ((1, 2, 0), 2 / 8 * 5 / 6)):
        assert orders[order] / 20_000 == pytest.approx(wanted, abs=0.015)
    assert weighted_order(np.array([0.0, 1.0]), np.array([0.9, 0.01])) == [1, 0], "nothing is last"


class TestOort:
    """Lai et al., OSDI 2021."""

    # S = n sqrt(mean squared loss): 100 x 2, 100 x 1, 50 x 8 = 200, 100, 400; scaled to 1/3, 0, 1.
    # Age in round 10: sqrt(0.1 ln 10 / L) with L = 5, 2, 9, the rounds in which they were last seen.
    # T = 10, the 30th percentile of 10, 20, 40; so the penalties are 1, (10/20)^2, (10/40)^2.
    PROBLEM = known(
        latency=[10.0, 20.0, 40.0], squared=[4.0, 1.0, 64.0], samples=[100, 100, 50], last_seen=[5, 2, 9], epoch=9
    )
    UTILITY = (1 / 3 + 0.21459655, 0.33930693 / 4, (1 + 0.15995073) / 16)

    def test_utility_by_hand(self) -> None:
        policy, seen = Oort(), np.ones(3, bool)
        assert policy.preferred_latency(self.PROBLEM, 30.0) == 10.0
        assert policy.utility(self.PROBLEM, seen, 10.0) == pytest.approx(self.UTILITY, rel=1e-6)

    def test_the_percentile_of_latency_counts_busy_devices(self) -> None:
        busy = replace(self.PROBLEM, peers=Peers(np.full(7, 5.0), np.ones(7)))
        assert Oort().preferred_latency(busy, 30.0) == 5.0
        assert Oort().preferred_latency(busy, 75.0) == 10.0
        assert Oort().preferred_latency(busy, 100.0) == math.inf

    def test_utility_is_clipped_at_the_98th_percentile(self) -> None:
        """The 99th of 100 values: devices whose loss explodes count no more than the next."""
        squared = np.append(np.arange(1.0, 100.0) ** 2, 1e12)
        problem = known(latency=np.full(100, 10.0), squared=squared, last_seen=[1] * 100, epoch=0)
        utility = Oort().utility(problem, np.ones(100, bool), math.inf)
        assert utility[-1] == utility[-2] == pytest.approx(1.0), "round 1: ln 1 = 0, no age"
        assert utility[49] == pytest.approx(49.0 / 98.0)

    def test_a_draw_in_proportion_to_utility_above_the_cut_off(self) -> None:
        """Capacity for one device: the second best, 0.085, sets the cut-off, 0.059; the third has 0.072."""
        found = shares(Oort(), self.PROBLEM, 4000)
        total = sum(self.UTILITY)
        assert [found[10], found[12], found[14]] == pytest.approx([one / total for one in self.UTILITY], abs=0.03)
        # Utilities 1, 0.5 and 0.3 (with the same small age bonus): 0.7 of the second best is more than the third has.
        problem = known(latency=[10.0] * 4, squared=[1.0, 0.36, 0.1936, 0.04], last_seen=[10**9] * 4, epoch=9)
        found = shares(Oort(), problem, 4000)
        assert set(found) == {10, 12}
        assert found[10] == pytest.approx(1.0 / 1.5, abs=0.03)

    def test_a_number_of_participants(self) -> None:
        """Twenty seen, twenty unseen, room for all: with ten participants two are exploited in round 10 (a share of
        0.9 x 0.95^10 = 0.54 explores), and the other unseen ones are never more than five times as many as needed."""
        squared = np.where(np.arange(40) < 20, 1.0 + np.arange(40), np.nan)
        samples = [100] * 20 + [1000] * 5 + [1] * 15
        problem = known(latency=[10.0] * 40, squared=squared, samples=samples, last_seen=[1] * 40, capacity=99.0)
        for most, exploited in ((10, 4), (2, 0)):
            chosen = Oort().choose(replace(problem, most=most)).devices
            assert len(chosen) == most
            assert sum(device < 50 for device in chosen) == exploited
        only = [Oort().choose(replace(problem, most=1, seed=seed)).devices for seed in range(40)]
        assert {device for (device,) in only} == {50, 52, 54, 56, 58}, "the window: the five with the most samples"

    def test_places_left_over_are_filled(self) -> None:
        """Nobody is unseen, and only two are above the cut-off: the third place is filled at random."""
        problem = known(latency=[10.0] * 9, squared=[9.0, 9.0] + [0.01] * 7, last_seen=[10**9] * 9, capacity=99.0)
        third = {Oort().choose(replace(problem, most=3, seed=seed)).devices[2] for seed in range(60)}
        assert len(third) > 4

    def test_a_slow_device_that_always_fits_does_not_set_the_cut_off(self) -> None:
        """Rates M / tau and capacity for three and a half of ten fast devices. The eleventh is 100 times slower, so it
        would fit into the remaining half fifty times. Losses of the fast ones are 10, 9, ... 1: utilities 1, 8/9,
        7/9 and so on."""
        latency = np.append(np.full(10, 10.0), 1000.0)
        squared = np.append(np.arange(10.0, 0.0, -1.0), 10.0) ** 2
        problem = replace(
            known(latency=latency, squared=squared, last_seen=[10**9] * 11, capacity=35.0), data_rate=100.0 / latency
        )
        utility = Oort().utility(problem, np.ones(11, bool), 10.0)
        assert utility[:3] == pytest.approx([1.0, 8 / 9, 7 / 9], abs=1e-4)
        assert utility[10] == pytest.approx(1e-4, rel=1e-3)
        # The fourth, 6/9, sets the cut-off 0.467: the first five are drawn, the sixth (4/9) and the slow one never.
        chosen = [Oort().choose(replace(problem, seed=seed)).devices for seed in range(60)]
        assert {device for some in chosen for device in some} == {10, 12, 14, 16, 18}
        assert {len(some) for some in chosen} == {3}

    def test_the_best_device_sets_the_cut_off_if_it_does_not_fit(self) -> None:
        """In round 1 seen devices get a tenth of the capacity, less than any fast one needs. Exploration finds no
        device that fits, so its capacity goes to devices above the cut-off, here the best one; the slow one, which
        would fit the tenth, is not chosen."""
        latency = np.array([10.0, 10.0, 1000.0, 1.0])
        problem = known(latency=latency, squared=[9.0, 1.0, 9.0, math.nan], last_seen=[1] * 4, epoch=0, capacity=25.0)
        problem = replace(problem, data_rate=100.0 / latency)
        assert Oort().choose(problem).devices == (10,)

    def test_a_device_below_the_cut_off_is_better_than_none(self) -> None:
        """The best two need more than is free; the third, with less than 70 % of their utility, fits."""
        problem = known(latency=[10.0] * 3, squared=[9.0, 9.0, 1.0], last_seen=[1] * 3, capacity=1.5)
        assert Oort().choose(replace(problem, data_rate=np.array([2.0, 2.0, 1.0]))).devices == (14,)
        # If one of the two fits, the third is not chosen with it.
        assert Oort().choose(replace(problem, data_rate=np.array([2.0, 1.0, 0.5]))).devices == (12,)

    def test_exploration_decays_to_a_fifth(self) -> None:
        policy = Oort()
        assert policy.exploration_at(1) == pytest.approx(0.9 * 0.95)
        assert policy.exploration_at(11) == pytest.approx(0.9 * 0.95**11)
        assert policy.exploration_at(1000) == 0.2

    def test_unseen_devices_get_their_share_by_samples_and_latency(self) -> None:
        """In round 1 nine tenths go to unseen devices, drawn by samples x penalty: 100 : 300 / 4 with T = 10."""
        problem = known(latency=[10.0, 20.0], samples=[100, 300], epoch=0)
        found = shares(Oort(), replace(problem, peers=Peers(np.full(9, 10.0), np.full(9, 1.0))), 4000)
        assert found[10] == pytest.approx(100 / 175, abs=0.03)

    def test_the_share_of_the_unseen(self) -> None:
        """Twenty seen, twenty unseen, capacity for ten: in round 1 one is exploited, late in the run eight are."""
        squared = np.where(np.arange(40) < 20, 1.0 + np.arange(40), np.nan)
        for epoch, exploited in ((0, 1), (999, 8)):
            problem = known(latency=[10.0] * 40, squared=squared, last_seen=[1] * 40, capacity=10.0, epoch=epoch)
            chosen = Oort().choose(problem).devices
            assert sum(device < 50 for device in chosen) == exploited
            assert len(chosen) == 10

    def test_the_pacer(self) -> None:
        """Utility constant over two windows of 20 rounds: five points more; fivefold: five fewer; else unchanged."""
        policy, device = Oort(), [3.0]
        for losses, wanted in (((1.0, 1.0), 15.0), ((1.0, 49.0), 5.0), ((1.0, 4.0), 10.0)):
            memory = {}
            for epoch in range(40):
                squared = losses[0] if epoch < 20 else losses[1]
                problem = known(latency=device, squared=[squared], last_seen=[max(epoch, 1)], epoch=epoch)
                memory = dict(policy.choose(replace(problem, memory=memory)).memory or {})
                if epoch < 38:
                    assert memory["percentile"] == 10.0
            assert memory["percentile"] == wanted, losses

    def test_the_pacer_stays_within_five_and_a_hundred(self) -> None:
        policy = Oort()
        assert policy._percentile(98.0, 1.0, 1.0) == 100.0
        assert policy._percentile(6.0, 10.0, 1.0) == 5.0

    def test_prefers_fast_devices_with_a_high_loss(self) -> None:
        """A skewed population: high loss and slow, high loss and fast, low loss and fast."""
        latency = [200.0] * 4 + [20.0] * 4 + [19.0] * 4
        squared = [9.0] * 4 + [9.0] * 4 + [0.01] * 4
        problem = known(latency=latency, squared=squared, last_seen=[50] * 12, capacity=4.0, epoch=99)
        chosen = Counter(device for seed in range(200) for device in Oort().choose(replace(problem, seed=seed)).devices)
        # By weight: 0.99 each, against 0.10 (low loss) and 0.01 (slow, below the cut-off).
        assert sum(chosen[device] for device in (18, 20, 22, 24)) > 0.8 * 800
        assert not any(chosen[device] for device in (10, 12, 14, 16))

    def test_a_device_not_seen_for_long_is_chosen_again(self) -> None:
        """Equal in all but age: sqrt(0.1 ln 200 / 1) = 0.73 more than a device seen in the last round."""
        problem = known(latency=[10.0] * 3, squared=[1.0, 1.0, 1.0], last_seen=[199, 1, 199], epoch=199)
        old, new = 1.0 + math.sqrt(0.1 * math.log(200.0)), 1.0 + math.sqrt(0.1 * math.log(200.0) / 199.0)
        assert shares(Oort(), problem, 4000)[12] == pytest.approx(old / (old + 2.0 * new), abs=0.03)


class TestTifl:
    """Chai et al., HPDC 2020: the policy of a gateway. The draws are tested in unit/core/test_latency_tiers.py."""

    LATENCY = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0)
    PROBLEM = known(latency=LATENCY, loss=(1.0, 2.0) * 5, capacity=2.0)

    def drawn(self, *tiers: int, limits: tuple[float, ...] = (20.0, 40.0, 60.0, 80.0, 100.0)) -> SelectionProblem:
        return replace(self.PROBLEM, tiers=Tiers(limits, tiers))

    def test_the_devices_of_the_tier_drawn_for_the_round_and_nobody_else(self) -> None:
        for cycle_round, devices in ((0, [10, 12]), (1, [26, 28]), (2, [18, 20])):
            problem = replace(self.drawn(0, 4, 2), capacity=99.0, cycle_round=cycle_round)
            assert sorted(Tifl().choose(problem).devices) == devices

    def test_every_gateway_takes_the_same_tier(self) -> None:
        """Another seed, other devices: the tier is told, not drawn here."""
        elsewhere = replace(
            known(latency=[55.0, 58.0, 5.0], capacity=9.0, seed=99), tiers=self.drawn(2).tiers, gateway=5
        )
        assert sorted(Tifl().choose(elsewhere).devices) == [10, 12]

    def test_devices_slower_than_the_last_limit_are_excluded(self) -> None:
        problem = self.drawn(4, limits=(20.0, 40.0, 50.0, 60.0, 70.0))
        for seed in range(30):
            assert Tifl().choose(replace(problem, seed=seed, capacity=99.0)).devices == (22,)
        slow = replace(known(latency=[80.0, 90.0], capacity=9.0), tiers=problem.tiers)
        assert Tifl().choose(slow).devices == (), "nobody, although both fit"

    def test_without_a_device_in_the_tier_the_next_faster_one_stands_in(self) -> None:
        tiers = self.drawn(3).tiers
        for latency, devices in (([10.0, 30.0, 90.0], (12,)), ([90.0, 95.0], (10, 12))):
            found = Tifl().choose(replace(known(latency=latency, capacity=9.0), tiers=tiers)).devices
            assert tuple(sorted(found)) == devices
        # A device that does not fit the bandwidth counts as absent.
        heavy = replace(known(latency=[10.0, 70.0], capacity=2.0), tiers=tiers, data_rate=np.array([1.0, 3.0]))
        assert Tifl().choose(heavy).devices == (10,)

    def test_inside_the_tier_at_random_or_high_loss_first(self) -> None:
        problem = known(latency=[10.0] * 6, loss=[1.0, 3.0, 2.0, 5.0, 4.0, 0.0], capacity=2.0)
        problem = replace(problem, tiers=self.drawn(0).tiers)
        assert Tifl("high-loss").choose(problem).devices == (16, 18)
        chosen = {Tifl().choose(replace(problem, seed=seed)).devices for seed in range(60)}
        assert len(chosen) > 10


class TestDivFl:
    """Balakrishnan et al., ICLR 2022."""

    @staticmethod
    def problem(gradients: Sequence[float], capacity: float, rates: Sequence[float] | None = None) -> SelectionProblem:
        found = known(latency=[10.0] * len(gradients), capacity=capacity)
        if rates is not None:
            found = replace(found, data_rate=np.array(rates))
        return replace(found, gradients=np.array(gradients, np.float32)[:, None])

    def test_by_hand(self) -> None:
        """Gradients 0, 1, 10, 11, 30. From the error 30, 29, 20, 19, 30 the gains are 76, 79, 88, 87, 30: 10 is chosen.
        Then the error is 10, 9, 0, 1, 20 and the gains are 18, 18, -, 2, 20: 30 is chosen."""
        problem = self.problem([0.0, 1.0, 10.0, 11.0, 30.0], 2.0)
        selection = DivFl().choose(problem)
        assert selection.devices == (14, 18)
        assert selection.objective == pytest.approx(88.0 + 20.0)

    def test_busy_devices_are_represented_too(self) -> None:
        problem = self.problem([0.0, 1.0, 10.0, 11.0, 30.0], 1.0)
        busy = replace(problem, peers=Peers(np.ones(9), np.ones(9), np.full((9, 1), 31.0, np.float32)))
        assert DivFl().choose(problem).devices == (14,)
        assert DivFl().choose(busy).devices == (18,)

    def test_one_of_each_kind(self) -> None:
        """A skewed population: twenty similar devices, three of another kind, one unique. Random selection would miss
        the rare ones."""
        gradients = [0.0 + 0.01 * k for k in range(20)] + [50.0, 50.1, 50.2] + [-70.0]
        chosen = DivFl().choose(self.problem(gradients, 3.0)).devices
        kinds = ["alone" if device == 10 + 46 else "few" if device >= 50 else "many" for device in chosen]
        assert sorted(kinds) == ["alone", "few", "many"]

    def test_an_expensive_device_does_not_displace_three_cheap_ones(self) -> None:
        """By gain alone the device in the middle (rate 3) is chosen first and leaves no capacity."""
        problem = self.problem([0.0, 40.0, 50.0, 60.0, 100.0], 3.0, [1.0, 3.0, 3.0, 1.0, 1.0])
        assert sorted(DivFl().choose(problem).devices) == [10, 16, 18]

    def test_unknown_devices_first_then_the_capacity_is_filled(self) -> None:
        problem = self.problem([5.0, 5.0, 5.0, 9.0], 3.0)
        problem = replace(problem, gradient_known=np.array([True, True, True, False]))
        chosen = DivFl().choose(problem).devices
        assert chosen[0] == 16
        assert len(chosen) == 3

    def test_lazy_is_as_good_as_plain_greedy_and_near_the_best(self) -> None:
        rng = np.random.default_rng(5)
        for _ in range(60):
            count, size = int(rng.integers(2, 9)), int(rng.integers(1, 4))
            found = replace(
                known(latency=[10.0] * count, capacity=float(size)),
                gradients=rng.normal(size=(count, 3)).astype(np.float32),
            )
            distance = distances(found, np.arange(count))
            exact = np.linalg.norm(found.gradients[:, None] - found.gradients[None], axis=2)
            assert distance == pytest.approx(exact, abs=1e-5)
            covered, chosen = greedy(distance, np.ones(count), float(size), per_rate=False)
            error, plain = distance.max(axis=1), []
            for _ in range(min(size, count)):
                gains = np.maximum(error[:, None] - distance, 0.0).sum(axis=0)
                if gains.max() <= 0.0:
                    break
                plain.append(int(gains.argmax()))
                error = np.minimum(error, distance[:, plain[-1]])
            assert covered == pytest.approx(distance.max(axis=1).sum() - error.sum())
            assert sorted(chosen) == sorted(plain)
            best = max(
                distance.max(axis=1).sum() - distance[:, list(some)].min(axis=1).sum()
                for some in itertools.combinations(range(count), min(size, count))
            )
            assert (1.0 - 1.0 / math.e) * best - 1e-9 <= covered <= best + 1e-9
