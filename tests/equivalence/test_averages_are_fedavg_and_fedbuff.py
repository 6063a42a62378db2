"""Rounds and periods with an averaging cloud are hierarchical FedAvg and FedBuff in periods.

The references are written from the papers (McMahan et al. 2017; Nguyen et al. 2022, with a timer for its buffer), share
no code with the package, and work in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from star_world import SIZE, Star, Towards, Vector, run_star, trained_from

from async_hfl.core.protocol.records import EpochRecord, JobRecord
from async_hfl.nodes.cloud.aggregation.average import AverageUploads
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.rounds import Rounds

HOME = (0, 1, 0, 2, 1, 0, 2)
SAMPLES = (3, 10, 1, 7, 5, 2, 8)
WAY_S, EPOCHS = 4.0, 6


def own(gateway: int) -> list[int]:
    return [device for device, home in enumerate(HOME) if home == gateway]


def hierarchical_fedavg(start: Vector, round_s: Vector, pulls: Vector, rounds: int) -> tuple[Vector, list[float]]:
    weights, at = start, WAY_S
    times = []
    for _ in range(EPOCHS):
        models, counts, reported = [], [], []
        for gateway in range(3):
            model, clock = weights, at
            for _ in range(rounds):
                total = sum(SAMPLES[i] for i in own(gateway))
                model = sum(SAMPLES[i] * trained_from(model, pulls[i]) for i in own(gateway)) / total
                clock += max(round_s[i] for i in own(gateway))
            models.append(model)
            counts.append(rounds * total)
            reported.append(clock + WAY_S)
        weights = sum(n * model for n, model in zip(counts, models, strict=True)) / sum(counts)
        times.append(max(reported))
        at = times[-1] + WAY_S
    return weights, times


@dataclass
class Late:
    arrives: float
    device: int
    sent: Vector
    period: int


def fedbuff_in_periods(
    start: Vector, round_s: Vector, pulls: Vector, period_s: float, periods: int
) -> tuple[Vector, list[int]]:
    """Return the final model and the ages of updates in the order of use, by gateway."""
    weights, at = start, WAY_S
    out: list[list[Late]] = [[], [], []]
    count, ages = 0, []
    for _ in range(EPOCHS):
        models, counts = [], []
        for gateway in range(3):
            model, samples = weights, 0
            for period in range(periods):
                begins = at + period * period_s
                busy = {late.device for late in out[gateway] if late.arrives > begins}
                held = {late.device for late in out[gateway]} - busy
                for i in own(gateway):
                    if i not in busy:
                        out[gateway].append(Late(begins + round_s[i], i, model, count + period))
                back = [late for late in out[gateway] if late.arrives <= begins + period_s]
                out[gateway] = [late for late in out[gateway] if late.arrives > begins + period_s]
                assert held <= {late.device for late in back}
                total = sum(SAMPLES[late.device] for late in back)
                for late in sorted(back, key=lambda late: late.arrives):
                    age = count + period - late.period
                    ages.append(age)
                    change = trained_from(late.sent, pulls[late.device]) - late.sent
                    model = model + SAMPLES[late.device] * (age + 1) ** -0.5 * change / total
                samples += total
            models.append(model)
            counts.append(samples)
        if sum(counts):
            weights = sum(n * model for n, model in zip(counts, models, strict=True)) / sum(counts)
        count += periods
        at += periods * period_s + 2 * WAY_S
    return weights, ages


def world(seed: int) -> tuple[Star, Towards, Vector, Vector]:
    random = np.random.default_rng(seed)
    count = len(HOME)
    star = Star(random.uniform(1, 5, count), random.uniform(5, 60, count), random.uniform(1, 9, count), WAY_S)
    learner = Towards(random.uniform(-1, 1, (count, SIZE)), SAMPLES)
    return star, learner, star.download + star.training + star.upload, learner.initial_weights(seed).astype(np.float64)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rounds", [1, 5])
def test_rounds_are_hierarchical_fedavg(rounds: int, seed: int) -> None:
    star, learner, round_s, start = world(seed)
    simulator, records = run_star(
        star, learner, seed, Rounds, AverageUploads, epochs=EPOCHS, home=HOME, gateway_rules={"epochs": rounds}
    )
    weights, times = hierarchical_fedavg(start, round_s, learner.pulls, rounds)
    np.testing.assert_allclose(simulator.world.cloud.state.weights, weights, rtol=0, atol=1e-6)
    made = [record.at for record in records if type(record) is EpochRecord]
    np.testing.assert_allclose(made, times, rtol=1e-12)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("period_s", "periods"), [(20.0, 5), (35.0, 2), (200.0, 3)])
def test_periods_are_fedbuff_with_a_timer(period_s: float, periods: int, seed: int) -> None:
    star, learner, round_s, start = world(seed)
    config = {"epochs": periods, "period": period_s}
    simulator, records = run_star(
        star, learner, seed, Periods, AverageUploads, epochs=EPOCHS, home=HOME, gateway_rules=config
    )
    weights, ages = fedbuff_in_periods(start, round_s, learner.pulls, period_s, periods)
    np.testing.assert_allclose(simulator.world.cloud.state.weights, weights, rtol=0, atol=1e-6)
    jobs = [record for record in records if type(record) is JobRecord and record.reason == "aggregated"]
    assert sorted(job.staleness for job in jobs) == sorted(ages)
    # Updates are late in short periods and never in long ones.
    assert (max(ages) > 0) == (period_s < 100)


def test_the_references_by_hand() -> None:
    """One weight, trained from 0 towards 8: a round of all devices goes half-way, for any samples, and two
    go three quarters. Periods in which every device returns are rounds."""
    pulls, start = np.full((7, 1), 8.0), np.zeros(1)
    found, times = hierarchical_fedavg(start, np.full(7, 10.0), pulls, 2)
    np.testing.assert_allclose(found, 8 * (1 - 0.25**EPOCHS))
    assert times[:2] == [4 + 20 + 4, 28 + 4 + 20 + 4]
    same, ages = fedbuff_in_periods(start, np.full(7, 10.0), pulls, 10.0, 2)
    np.testing.assert_allclose(same, found)
    assert set(ages) == {0}
