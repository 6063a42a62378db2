"""Two-tier (relaying gateways) on a star is FedAsync (Xie, Koyejo, Gupta: "Asynchronous Federated Optimization", 2019).

The reference is written from that paper, shares no code with the package and works in float64. It has a heap of arrival
times; the server mixes w <- (1 - a) w + a w_i with a = alpha (staleness + 1)^-0.5 and restarts the device at once.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from star_world import ALPHA, SIZE, Star, Towards, Vector, run_star, trained_from

from async_hfl.core.protocol.records import JobRecord, UploadRecord
from async_hfl.nodes.gateway.aggregation.relay import Relay

# FedAsync --------------------------------------------------------------------------------------------------------


@dataclass
class Reference:
    weights: Vector
    devices: list[int]
    """Devices whose updates were mixed, in order."""
    staleness: list[int]
    times: list[float]


def fedasync(start: Vector, round_s: Vector, way_s: float, pulls: Vector, updates: int) -> Reference:
    """`round_s`: download, training and upload of each device; `way_s`: one way between the hub and the server."""
    weights, epoch = start.copy(), 0
    found = Reference(weights, [], [], [])
    heap = []
    for device, duration in enumerate(round_s):
        heapq.heappush(heap, (way_s + duration + way_s, device, epoch, weights))
    while epoch < updates:
        at, device, downloaded, received = heapq.heappop(heap)
        trained = trained_from(received, pulls[device])
        staleness = epoch + 1 - downloaded
        a = ALPHA * (staleness + 1) ** -0.5
        weights = (1 - a) * weights + a * trained
        epoch += 1
        found.devices.append(device)
        found.staleness.append(staleness)
        found.times.append(at)
        heapq.heappush(heap, (at + way_s + round_s[device] + way_s, device, epoch, weights))
    found.weights = weights
    return found


@pytest.mark.parametrize("way_s", [0.0, 1e-4])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("devices", [1, 2, 7])
def test_two_tier_is_fedasync_on_a_star_with_the_same_delays(devices: int, seed: int, way_s: float) -> None:
    random = np.random.default_rng(seed)
    star = Star(random.uniform(1, 5, devices), random.uniform(5, 60, devices), random.uniform(1, 9, devices), way_s)
    learner = Towards(random.uniform(-1, 1, (devices, SIZE)))
    simulator, records = run_star(
        star, learner, seed, Relay, epochs=200, cloud_rules={"evaluate_every": 20, "max_staleness": 100 * devices}
    )

    rounds = star.download + star.training + star.upload
    start = learner.initial_weights(seed).astype(np.float64)
    expected = fedasync(start, rounds, way_s, learner.pulls, updates=200)
    # No other update arrives while an answer is in transit, else the gateway would give that answer's model to both
    # devices; the reference has no gateway.
    assert way_s == 0 or min(later - earlier for earlier, later in pairwise(expected.times)) > 2 * way_s

    uploads = [record for record in records if type(record) is UploadRecord and record.reason == "mixed"]
    assert [record.staleness for record in uploads] == expected.staleness
    # The first model takes the way from cloud to gateway in both.
    np.testing.assert_allclose([record.at for record in uploads], expected.times, rtol=1e-12, atol=1e-9)
    jobs = [record for record in records if type(record) is JobRecord and record.reason == "aggregated"]
    # The last answers may arrive after the end of the run.
    assert len(jobs) >= 199
    assert [job.device for job in jobs] == expected.devices[: len(jobs)]
    assert [job.staleness for job in jobs] == expected.staleness[: len(jobs)]
    np.testing.assert_allclose(simulator.world.cloud.state.weights, expected.weights, rtol=0, atol=1e-6)
    # All devices are always in flight: with several of them, updates become stale.
    assert max(expected.staleness) > (1 if devices > 1 else 0)


def test_the_reference_by_hand() -> None:
    """Two devices of 2 s and 3 s from w = 0, optima 8 and -8, alpha 0.6; a is 0.6 / sqrt(staleness + 1).

    t 2  d0 from 0 (epoch 0) returns 4:     staleness 1, a = 0.42426: w = 1.69706
    t 3  d1 from 0 (epoch 0) returns -4:    staleness 2, a = 0.34641: w = 0.65359 x 1.69706 - 1.38564 = -0.27646
    t 4  d0 from 1.69706 (epoch 1) returns 4.84853: staleness 2, a = 0.34641: w = 1.49889
    """
    found = fedasync(np.zeros(1), np.array([2.0, 3.0]), 0.0, np.array([[8.0], [-8.0]]), updates=3)
    assert (found.devices, found.staleness, found.times) == ([0, 1, 0], [1, 2, 2], [2.0, 3.0, 4.0])
    assert found.weights[0] == pytest.approx(1.49889, abs=2e-5)
