"""Two-tier (relaying gateways) on a star is FedAsync (Xie, Koyejo, Gupta: "Asynchronous Federated Optimization", 2019).

The reference is written from that paper, knows nothing of our code, and works in float64: a heap of arrival times;
the server mixes w <- (1 - a) w + a w_i with a = alpha (staleness + 1)^-0.5 and sends the device off again at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.records import JobRecord, UploadRecord
from async_hfl.core.staleness import StalenessDiscount
from async_hfl.core.targets import Target
from async_hfl.core.topology import feasible_links
from async_hfl.core.weights import Layout, frozen
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.nodes.cloud import CloudNode
from async_hfl.nodes.cloud_mixing import MixUploads
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway import GatewayNode
from async_hfl.nodes.gateway_relaying import Relay
from async_hfl.nodes.rules import CloudRules, GatewayRules
from async_hfl.simulation.ledger import Ledger
from async_hfl.simulation.simulator import Simulator, World

Vector = npt.NDArray[np.float64]
SIZE, ALPHA = 5, 0.6


# FedAsync --------------------------------------------------------------------------------------------------------


@dataclass
class Reference:
    weights: Vector
    devices: list[int]
    """Who was mixed, in order."""
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


def trained_from(weights: Any, pull: Any) -> Any:
    """A device's local training: half-way towards its own optimum."""
    return 0.5 * weights + 0.5 * pull


# Ours ------------------------------------------------------------------------------------------------------------


class Towards:
    """A learner whose result depends on the device and the model it received, and on nothing else."""

    layout = Layout(("w",), ((SIZE,),))
    model_bytes = 4 * SIZE
    target = Target("none", 2.0)
    learning_rate = 1.0

    def __init__(self, pulls: Vector) -> None:
        self.pulls = pulls
        self.samples = np.ones(len(pulls), np.int64)

    def initial_weights(self, seed: int) -> npt.NDArray[np.float32]:
        return frozen(np.random.default_rng(seed).uniform(-1, 1, SIZE).astype(np.float32))

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        results = [trained_from(job.weights, self.pulls[job.device]).astype(np.float32) for job in jobs]
        return [TrainingResult(frozen(weights), 1, 1, 0.5, 0.25) for weights in results]

    def evaluate(self, weights: npt.NDArray[np.float32]) -> Evaluation:
        return Evaluation(0.0, 1.0)


@dataclass
class Star:
    """Times of a star: a device's round in three pieces, and the way between gateway and cloud."""

    download: Vector
    training: Vector
    upload: Vector
    way_s: float

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        return float(self.download[device])

    def compute(self, device: int) -> float:
        return float(self.training[device])

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        return float(self.upload[device])

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        return self.way_s

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        return self.way_s

    def snapshot(self) -> None:
        return None

    def restore(self, data: Any) -> None:
        pass


class Records(list[Any]):
    """A journal that keeps records and leaves out what was sent."""

    def write(self, record: Any) -> None:
        self.append(record)

    def write_sent(self, *fields: Any) -> None:
        return

    def epoch(self, record: Any, ledger: Ledger) -> None:
        return


def two_tier(star: Star, learner: Towards, seed: int, evaluations: int) -> tuple[Simulator, Records]:
    devices = len(star.training)
    rounds = star.download + star.training + star.upload
    links = feasible_links(devices, 1, np.arange(devices), np.zeros(devices, np.int64), rounds)
    cloud = CloudRules(
        gateways=1,
        epochs=evaluations,
        epochs_after_target=0,
        mixing_weight=ALPHA,
        staleness=StalenessDiscount(),
        max_staleness=100 * devices,
        delivery="reply",
        evaluate_every=20,
        warmup=False,
        warmup_quorum=0.5,
        warmup_patience=0.0,
        warmup_limit=3600.0,
        association_period=1,
        load_penalty=0.1,
        every_device=True,
        switching_cost=0.0,
        utility_scale="mean",
        link_stretch=float("inf"),
        bandwidth=(1e9,),
        model_bytes=learner.model_bytes,
        gradient="none",
        gradient_size=SIZE,
        target=learner.target,
        seed=seed,
    )
    gateway = GatewayRules(
        number=0,
        bandwidth=1e9,
        epochs=1,
        mixing_weight=0.9,
        drag=1.0,
        staleness=StalenessDiscount(),
        max_staleness=None,
        in_flight="carry",
        carry_staleness="both",
        patience_floor=60.0,
        patience_factor=5.0,
        cycle_patience=600.0,
        reply_patience=120.0,
        model_bytes=learner.model_bytes,
        latency_exponent=1.0,
        utility_scale="minmax",
        utility_floor=0.1,
        gradient="none",
        gradient_size=SIZE,
        learning_rate=1.0,
        seed=seed,
    )
    association = RandomAssociation()
    world = World(
        CloudNode(cloud, links, learner.samples, learner.initial_weights(seed), MixUploads(), revisits=False),
        [GatewayNode(gateway, RandomSelection(), Relay())],
        [DeviceNode() for _ in range(devices)],
        learner,
        star,
        association,
        learner.model_bytes,
        seed,
    )
    records = Records()
    simulator = Simulator(world, records)
    simulator.start()
    simulator.run()
    return simulator, records


@pytest.mark.parametrize("way_s", [0.0, 1e-4])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("devices", [1, 2, 7])
def test_two_tier_is_fedasync_on_a_star_with_the_same_delays(devices: int, seed: int, way_s: float) -> None:
    random = np.random.default_rng(seed)
    star = Star(random.uniform(1, 5, devices), random.uniform(5, 60, devices), random.uniform(1, 9, devices), way_s)
    learner = Towards(random.uniform(-1, 1, (devices, SIZE)))
    simulator, records = two_tier(star, learner, seed, evaluations=10)

    rounds = star.download + star.training + star.upload
    start = learner.initial_weights(seed).astype(np.float64)
    expected = fedasync(start, rounds, way_s, learner.pulls, updates=200)
    # While an answer is on its way back nobody else's update arrives, else the gateway would pass that answer's model
    # to both; the reference has no gateway.
    assert way_s == 0 or min(later - earlier for earlier, later in pairwise(expected.times)) > 2 * way_s

    uploads = [record for record in records if type(record) is UploadRecord and record.reason == "mixed"]
    assert [record.staleness for record in uploads] == expected.staleness
    # Our first model takes its way from cloud to gateway as the reference's does.
    np.testing.assert_allclose([record.at for record in uploads], expected.times, rtol=1e-12, atol=1e-9)
    jobs = [record for record in records if type(record) is JobRecord and record.reason == "aggregated"]
    # The very last answers are overtaken by the end of the run.
    assert len(jobs) >= 199
    assert [job.device for job in jobs] == expected.devices[: len(jobs)]
    assert [job.staleness for job in jobs] == expected.staleness[: len(jobs)]
    np.testing.assert_allclose(simulator.world.cloud.state.weights, expected.weights, rtol=0, atol=1e-6)
    # All devices were always in flight: with several, an update is overtaken by the others' in between.
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
