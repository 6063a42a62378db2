"""Scenarios of the fault simulation: a small world, a method and a fault profile, all drawn from one seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from async_hfl.assembly.build.aggregation_rules import (
    GATEWAY_RULES,
    CloudRule,
    GatewayRule,
    cloud_rule,
    gateway_rule,
)
from async_hfl.assembly.build.policies import ASSOCIATION, SELECTION
from async_hfl.assembly.settings.policies import AssociationSection, SelectionSection
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import CLOUD, DEVICE_TIER, Address, device_address, gateway_address
from async_hfl.core.learner import Learner, TrainingJob, TrainingResult
from async_hfl.core.maths.projection import CountSketch
from async_hfl.core.maths.server_adam import ServerAdam
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy, needs_gradients
from async_hfl.core.randomness import stream, stream_seed
from async_hfl.core.topology import FeasibleLinks, feasible_links
from async_hfl.faults.checkers.checker import ModelChecker
from async_hfl.faults.hosts import Host
from async_hfl.faults.profile import FaultProfile, Outcome
from async_hfl.faults.simulator import FaultSimulator
from async_hfl.learning.tasks.stub_learner import StubLearner
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import (
    CloudConfig,
    GatewayConfig,
    GatewayDeployment,
    GradientKind,
    MembershipRules,
    Privacy,
    Robust,
    RobustRule,
)
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import Node, ReliableNode

TRAINED = 3
"""Trained numbers of a model. Half of the scenarios add one that is treated as a running statistic."""
_ADAM_SHARE = 0.5
"""Share of the scenarios without momentum in which a cloud that averages has Adam."""
_QUANTILE = 0.0
"""A round deadline that is a quantile of all round latencies."""
NEED_A_FILE = {"fixed"}
"""Association policies that scenarios cannot have."""


@dataclass(frozen=True, slots=True)
class Method:
    """The rules and policies of a scenario; every combination may occur, not only those of packaged methods."""

    gateway: GatewayRule
    cloud: CloudRule
    selection: SelectionPolicy
    association: AssociationPolicy

    @property
    def gradients(self) -> bool:
        return needs_gradients(self.selection.needs | self.association.needs)


def fuzz(seed: int, gateway: str | None = None, cloud: str | None = None) -> Outcome:
    """Run one scenario to its end; raise InvariantViolation if an invariant is broken.

    `gateway` and `cloud` name aggregation rules, built-in or FILE.py:CLASS; otherwise they are drawn.
    """
    rng = stream(seed, "scenario")
    gateways, devices = int(rng.integers(1, 4)), int(rng.integers(2, 9))
    profile = _profile(seed, rng)
    method = _method(rng, gateway, cloud)
    gradient: GradientKind = "none" if not method.gradients else "last" if rng.random() < 0.5 else "update"
    compression = "none" if gradient == "none" else str(rng.choice(["none", "pca", "sketch"], p=[0.5, 0.3, 0.2]))
    statistics = int(stream(seed, "statistics").random() < 0.5)
    stub = StubLearner(devices, TRAINED + statistics, gradient=gradient == "last", statistics=statistics)
    learner = UnevenLearner(stub)
    links = _links(rng, devices, gateways, profile)
    gateway_config, cloud_config = _configs(rng, learner, links, seed, method, gradient, compression, profile.sessions)
    codec = _codec(seed, learner, compression)
    gateway_config, cloud_config = replace(gateway_config, codec=codec), replace(cloud_config, codec=codec)
    weights = learner.initial_weights(seed)
    association = method.association

    def cloud_node() -> Node:
        rule = method.cloud.make()
        return CloudNode(cloud_config, links, learner.samples, weights, rule, revisits=association.revisits)

    def gateway_node(number: int, incarnation: int) -> Node:
        config = replace(gateway_config, number=number, seed=stream_seed(seed, "selection", number))
        return GatewayNode(config, method.selection, method.gateway.make(), incarnation)

    def host(address: Address, make: Callable[[int], Node]) -> Host:
        def wrapped(incarnation: int) -> ReliableNode:
            node = make(incarnation)
            sessions = profile.sessions
            return ReliableNode(
                node, seed, incarnation, watched=sessions, sessions=sessions, confirms=address.tier == DEVICE_TIER
            )

        return Host(address, wrapped)

    hosts = [host(CLOUD, lambda _: cloud_node())]
    hosts += [host(gateway_address(j), partial(gateway_node, j)) for j in range(gateways)]
    hosts += [host(device_address(i), lambda _: DeviceNode(gateway_config.sketch, codec)) for i in range(devices)]
    pairs = list(zip(links.link_device.tolist(), links.link_gateway.tolist(), strict=True))
    return FaultSimulator(
        hosts, learner, association, profile, pairs, method.gateway.checker, method.cloud.checker, codec
    ).run()


def _codec(seed: int, learner: Learner, compression: str) -> ModelCodec:
    kinds: list[EncodingKind] = ["float32", "float16", "int8", "int4"]
    drawn = stream(seed, "encoding").choice(len(kinds), 2, p=[0.4, 0.1, 0.3, 0.2])
    up, down = (kinds[int(kind)] for kind in drawn)
    size, trained = learner.layout.size, learner.gradient_size
    return ModelCodec(up, down, size=size, trained=trained, seed=seed, encodes_gradients=compression == "none")


def _method(rng: np.random.Generator, gateway: str | None, cloud: str | None) -> Method:
    shares = np.array([rule.checker.scenario_share for rule in GATEWAY_RULES.values()])
    drawn_gateway = str(rng.choice(list(GATEWAY_RULES), p=shares / shares.sum()))
    at_gateway = gateway_rule(gateway or drawn_gateway)
    average_share = at_gateway.checker.cloud_average_share
    drawn_cloud = "average" if average_share > 0 and rng.random() < average_share else "mix"
    selection = str(rng.choice(sorted(set(SELECTION) - {"utility-knapsack"})))
    if rng.random() < 0.4:
        selection = "utility-knapsack"
    # Drawing the association again and again moves devices, which tests the release of leases.
    association = "random"
    if rng.random() < 0.25:
        association = str(rng.choice(sorted(set(ASSOCIATION) - NEED_A_FILE)))
    return Method(
        at_gateway,
        cloud_rule(cloud or drawn_cloud),
        SELECTION[selection](SelectionSection()),
        ASSOCIATION[association](AssociationSection(redraw=True)),
    )


@final
class UnevenLearner:
    """A stub learner whose devices have 1, 2 or 3 samples, so that weighted averages differ from plain ones."""

    def __init__(self, learner: StubLearner) -> None:
        self._learner = learner
        self.layout, self.model_bytes = learner.layout, learner.model_bytes
        self.gradient_size, self.evaluate_by_device = learner.gradient_size, learner.evaluate_by_device
        self.target, self.learning_rate = learner.target, learner.learning_rate
        self.samples = 1 + np.arange(len(learner.samples)) % 3
        self.initial_weights, self.evaluate, self.compile = learner.initial_weights, learner.evaluate, learner.compile

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        results = zip(jobs, self._learner.train_many(jobs), strict=True)
        return [replace(result, samples=int(self.samples[job.device])) for job, result in results]


def _profile(seed: int, rng: np.random.Generator) -> FaultProfile:
    return FaultProfile(
        seed=seed,
        loss=float(rng.choice([0.0, 0.05, 0.3])),
        duplication=float(rng.choice([0.0, 0.1])),
        mean_delay_s=float(rng.uniform(0.2, 4.0)),
        mean_compute_s=float(rng.uniform(5.0, 40.0)),
        crash_every_s=float(rng.choice([150.0, 400.0, 1e9], p=[0.4, 0.4, 0.2])),
        mean_downtime_s=float(rng.choice([5.0, 60.0, 400.0])),
        false_alarms=float(rng.choice([0.0, 0.5])),
        detection_s=float(rng.choice([20.0, 90.0])),
        faults_end_at=float(rng.uniform(300.0, 1200.0)),
        snapshot_every=int(rng.integers(3, 60)),
        sessions=bool(rng.random() < 0.5),
        outage_every_s=float(rng.choice([150.0, 600.0, 1e9], p=[0.3, 0.4, 0.3])),
        mean_outage_s=float(rng.choice([2.0, 30.0, 200.0])),
        disk_loss=float(rng.choice([0.0, 0.1, 0.4], p=[0.5, 0.3, 0.2])),
    )


def _links(rng: np.random.Generator, devices: int, gateways: int, profile: FaultProfile) -> FeasibleLinks:
    feasible = rng.random((devices, gateways)) < 0.7
    feasible[np.arange(devices), rng.integers(0, gateways, devices)] = True
    device, gateway = np.nonzero(feasible)
    latency = (profile.mean_compute_s + 4 * profile.mean_delay_s) * rng.uniform(0.5, 2.0, len(device))
    return feasible_links(devices, gateways, device, gateway, latency)


def _configs(
    rng: np.random.Generator,
    learner: Learner,
    links: FeasibleLinks,
    seed: int,
    method: Method,
    gradient: GradientKind,
    compression: str,
    sessions: bool,
) -> tuple[GatewayConfig, CloudConfig]:
    demand = float((learner.model_bytes / links.expected_latency).sum()) / links.gateways
    bandwidth = demand * float(rng.choice([0.1, 0.5, 2.0]))
    staleness = StalenessDiscount()
    shared = gradient != "none" and (
        needs_gradients(method.association.needs) or compression == "pca" or bool(rng.random() < 0.5)
    )
    sketch = CountSketch(seed, 2) if compression == "sketch" else None
    tight = bool(rng.random() < 0.2)
    gateway = GatewayConfig(
        number=0,
        bandwidth=bandwidth,
        epochs=int(rng.integers(1, 5)),
        mixing_weight=0.9,
        drag=float(rng.choice([0.0, 0.5, 1.0])),
        staleness=staleness,
        max_staleness=3 if tight else None,
        in_flight="discard" if rng.random() < 0.15 else "carry",
        staleness_clock="both" if rng.random() < 0.8 else "gateway",
        patience_floor=float(rng.choice([20.0, 60.0])),
        patience_factor=float(rng.choice([1.5, 5.0])),
        cycle_patience=100.0,
        reply_patience=float(rng.choice([10.0, 120.0])),
        model_bytes=learner.model_bytes,
        latency_exponent=1.0,
        utility_scale="rank" if rng.random() < 0.5 else "minmax",
        utility_floor=0.1,
        gradient=gradient,
        gradient_size=learner.gradient_size,
        share_gradients=shared,
        learning_rate=0.1,
        seed=0,
        period=float(rng.choice([10.0, 40.0, 120.0])),
        refill="immediate" if stream(seed, "refill").random() < 0.5 else "period",
        weighting="share" if stream(seed, "weighting").random() < 0.5 else "period",
        gain=float(stream(seed, "gain").choice([0.5, 2.0])),
        round_patience=float(rng.choice([1.0, 3.0, np.inf])),
        min_participation=float(rng.choice([0.0, 0.3])),
        sketch=sketch,
        deployment=GatewayDeployment(
            cloud_patience=60.0 if sessions and rng.random() < 0.5 else np.inf, track_losses=True
        ),
    )
    if stream(seed, "conduct").random() < 0.5:
        watchful = replace(gateway.deployment, failures=3, overdue_factor=1.5)
        gateway = replace(gateway, deployment=watchful, max_change=1000.0)
    if "during_upload" in method.gateway.reads and stream(seed, "during upload").random() < 0.5:
        gateway = replace(gateway, during_upload="continue", in_flight="carry")
    rounds = stream(seed, "rounds")
    deadline = float(rounds.choice([np.inf, 30.0, _QUANTILE], p=[0.3, 0.3, 0.4]))
    gateway = replace(
        gateway,
        round_deadline=deadline,
        over_selection=float(rounds.choice([1.0, 1.3, 2.0])),
        buffer_share=float(stream(seed, "buffer").choice([0.0, 0.5, 1.0])),
        participation=float(rounds.choice([0.0, 0.5])),
    )
    gateway = _with_defences(gateway, learner, method, seed)
    window = (None, 100.0)[int(stream(seed, "window").integers(2))]
    threshold = learner.target.threshold if stream(seed, "target").random() < 0.8 else 0.9  # never, and after a while
    evaluate_every = 5 if method.gateway is GATEWAY_RULES["relay"] else 1
    momentum = float(stream(seed, "momentum").choice([0.0, 0.3, 0.9]))
    cloud = CloudConfig(
        gateways=links.gateways,
        epochs=int(rng.integers(6, 16)) * evaluate_every,
        epochs_after_target=0,
        mixing_weight=0.9,
        tier_rounds=gateway.epochs if "tiers" in method.selection.needs else 0,
        tier_deadline=deadline,
        reference_quantile=0.75 if deadline == _QUANTILE else 0.0,
        momentum=momentum,
        adam=ServerAdam(0.1, 0.9, 0.99, 1e-3) if not momentum and stream(seed, "adam").random() < _ADAM_SHARE else None,
        staleness=staleness,
        max_staleness=2 if tight else 50 * links.devices,
        delivery="broadcast" if rng.random() < 0.3 else "reply",
        evaluate_every=evaluate_every,
        evaluation_grid=float(stream(seed, "evaluation grid").choice([0.0, 2.0, 60.0])),
        time_limit=float(stream(seed, "time limit").choice([np.inf, 300.0], p=[0.7, 0.3])),
        warmup=bool(rng.random() < 0.6) or compression == "pca",
        warmup_quorum=float(rng.choice([0.5, 1.0])),
        warmup_patience=float(rng.choice([0.0, 30.0])),
        warmup_limit=300.0,
        association_period=int(rng.integers(1, 4)),
        load_penalty=0.1,
        every_device=True,
        switching_cost=0.0,
        utility_scale="mean",
        max_latency_ratio=float(rng.choice([2.0, np.inf])),
        bandwidth=(bandwidth,) * links.gateways,
        model_bytes=learner.model_bytes,
        gradient=gradient if shared else "none",
        gradient_size=learner.gradient_size,
        target=replace(learner.target, threshold=threshold, window=window),
        seed=stream_seed(seed, "association"),
        sketch=sketch,
        components=2 if compression == "pca" else 0,
        membership=MembershipRules(
            gateway_patience=20.0 if sessions and rng.random() < 0.5 else 0.0,
            lost_patience=float(rng.choice([0.0, 60.0, 600.0])),
        ),
    )
    return gateway, cloud


def _with_defences(gateway: GatewayConfig, learner: Learner, method: Method, seed: int) -> GatewayConfig:
    """Make aggregation robust in some scenarios and private in others, if the rule's checker computes models."""
    rng = stream(seed, "defences")
    kind = int(rng.integers(10))
    if not issubclass(method.gateway.checker, ModelChecker) or kind >= 6:
        return gateway
    if kind < 4:
        rules: tuple[RobustRule, ...] = ("clip", "trimmed-mean", "median", "trimmed-mean")
        robust = Robust(rule=rules[kind], window=int(rng.integers(1, 6)), trim=float(rng.choice([0.1, 0.3, 0.49])))
        return replace(gateway, robust=robust)
    noise = float(rng.choice([0.0, 0.5])) if learner.gradient_size == learner.layout.size else 0.0
    return replace(gateway, privacy=Privacy(clip=0.1, noise=noise, seed=stream_seed(seed, "privacy")))
