"""Star networks with known delays, and a learner whose results are easy to compute by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import Evaluation, Learner, TrainingJob, TrainingResult
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.maths.targets import Target
from async_hfl.core.topology import feasible_links
from async_hfl.core.weights import Layout, frozen
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.nodes.cloud.aggregation.mix import MixUploads
from async_hfl.nodes.cloud.aggregation.rule import CloudAggregation
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import CloudConfig, GatewayConfig
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.simulation.accounting.byte_counts import Spent
from async_hfl.simulation.simulator import Simulator
from async_hfl.simulation.world import World

Vector = npt.NDArray[np.float64]
SIZE, ALPHA = 5, 0.6


def trained_from(weights: Any, pull: Any) -> Any:
    """Return the result of a device's local training: half-way towards its own optimum."""
    return 0.5 * weights + 0.5 * pull


class Towards:
    """A learner whose result depends on the device and the model it received, and on nothing else."""

    layout = Layout(("w",), ((SIZE,),))
    gradient_size, model_bytes = SIZE, 4 * SIZE
    target = Target("none", 2.0)
    learning_rate = 1.0

    def __init__(self, pulls: Vector, samples: Sequence[int] | None = None) -> None:
        self.pulls = pulls
        self.samples = np.ones(len(pulls), np.int64) if samples is None else np.array(samples)

    def initial_weights(self, seed: int) -> npt.NDArray[np.float32]:
        return frozen(np.random.default_rng(seed).uniform(-1, 1, SIZE).astype(np.float32))

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        results = [trained_from(job.weights, self.pulls[job.device]).astype(np.float32) for job in jobs]
        samples = [int(self.samples[job.device]) for job in jobs]
        return [TrainingResult(frozen(w), n, 1, 0.5, 0.25) for w, n in zip(results, samples, strict=True)]

    def evaluate(self, weights: npt.NDArray[np.float32]) -> Evaluation:
        return Evaluation(0.0, 1.0)


@dataclass
class Star:
    """Delays of a star: download, training and upload of each device, and the backhaul."""

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
    """A journal that keeps all records except those of messages."""

    def write(self, record: Any) -> None:
        self.append(record)

    def write_sent(self, *fields: Any) -> None:
        return

    def note_epoch(self, record: Any, spent: Spent) -> None:
        return


def run_star(
    star: Star,
    learner: Learner,
    seed: int,
    aggregation: Callable[[], GatewayAggregation],
    at_cloud: Callable[[], CloudAggregation] = MixUploads,
    *,
    epochs: int,
    home: Sequence[int] | None = None,
    cloud_rules: dict[str, Any] | None = None,
    gateway_rules: dict[str, Any] | None = None,
) -> tuple[Simulator, Records]:
    """Run a star to its end. `home` is the only gateway of each device; bandwidth is unlimited."""
    devices = len(star.training)
    homes = np.zeros(devices, np.int64) if home is None else np.array(home)
    gateways = int(homes.max()) + 1
    rounds = star.download + star.training + star.upload
    links = feasible_links(devices, gateways, np.arange(devices), homes, rounds)
    cloud = CloudConfig(
        gateways=gateways,
        epochs=epochs,
        epochs_after_target=0,
        mixing_weight=ALPHA,
        staleness=StalenessDiscount(),
        max_staleness=100 * devices,
        delivery="reply",
        evaluate_every=1,
        warmup=False,
        warmup_quorum=0.5,
        warmup_patience=0.0,
        warmup_limit=3600.0,
        association_period=1,
        load_penalty=0.1,
        every_device=True,
        switching_cost=0.0,
        utility_scale="mean",
        max_latency_ratio=float("inf"),
        bandwidth=(1e9,) * gateways,
        model_bytes=learner.model_bytes,
        gradient="none",
        gradient_size=learner.gradient_size,
        target=learner.target,
        seed=seed,
    )
    gateway = GatewayConfig(
        number=0,
        bandwidth=1e9,
        epochs=1,
        mixing_weight=0.9,
        drag=1.0,
        staleness=StalenessDiscount(),
        max_staleness=None,
        in_flight="carry",
        staleness_clock="both",
        patience_floor=60.0,
        patience_factor=5.0,
        cycle_patience=600.0,
        reply_patience=120.0,
        model_bytes=learner.model_bytes,
        latency_exponent=1.0,
        utility_scale="minmax",
        utility_floor=0.1,
        gradient="none",
        gradient_size=learner.gradient_size,
        learning_rate=1.0,
        seed=seed,
    )
    world = World(
        CloudNode(
            replace(cloud, **(cloud_rules or {})),
            links,
            learner.samples,
            learner.initial_weights(seed),
            at_cloud(),
            revisits=False,
        ),
        [
            GatewayNode(replace(gateway, number=j, **(gateway_rules or {})), RandomSelection(), aggregation())
            for j in range(gateways)
        ],
        [DeviceNode() for _ in range(devices)],
        learner,
        star,
        RandomAssociation(),
        learner.model_bytes,
        seed,
    )
    records = Records()
    simulator = Simulator(world, records)
    simulator.start()
    simulator.run()
    return simulator, records
