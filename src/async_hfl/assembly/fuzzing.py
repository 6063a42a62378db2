"""Scenarios for the fault simulation: a small world drawn from one seed, every method's parts in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from async_hfl.core.identifiers import CLOUD, Address, device_address, gateway_address
from async_hfl.core.learner import Learner
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy
from async_hfl.core.randomness import stream, stream_seed
from async_hfl.core.staleness import StalenessDiscount
from async_hfl.core.topology import FeasibleLinks, feasible_links
from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.learning.null import NullLearner
from async_hfl.nodes.cloud import CloudNode
from async_hfl.nodes.cloud_mixing import MixUploads
from async_hfl.nodes.delivery import Node, ReliableNode
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway import GatewayNode
from async_hfl.nodes.gateway_mixing import MixOnArrival
from async_hfl.nodes.gateway_relaying import Relay
from async_hfl.nodes.recovery import DurableNode
from async_hfl.nodes.rules import CloudRules, GatewayRules, GradientKind
from async_hfl.simulation.faults import FaultSimulator, Host, MemoryDisk, Outcome, Weather

MODEL_SIZE = 3


def fuzz(seed: int) -> Outcome:
    """One scenario to its end; raises InvariantViolation when a promise is broken."""
    rng = stream(seed, "scenario")
    gateways, devices = int(rng.integers(1, 4)), int(rng.integers(2, 9))
    weather = _weather(seed, rng)
    relays = bool(rng.random() < 0.25)
    utility = bool(rng.random() < 0.5) and not relays
    selection: SelectionPolicy = UtilityKnapsack() if utility else RandomSelection()
    # Redrawing moves devices all the time, which is what the hand-over of rights must survive.
    association: AssociationPolicy = BalancedUtility() if utility and rng.random() < 0.5 else RandomAssociation(True)
    learner = NullLearner(devices, MODEL_SIZE, gradient=utility and bool(rng.random() < 0.5))
    links = _links(rng, devices, gateways, weather)
    gateway_rules, cloud_rules = _rules(rng, learner, links, seed, relays=relays, utility=utility)
    weights = learner.initial_weights(seed)

    def cloud() -> Node:
        return CloudNode(cloud_rules, links, learner.samples, weights, MixUploads(), revisits=association.revisits)

    def gateway(number: int) -> Node:
        rules = replace(gateway_rules, number=number, seed=stream_seed(seed, "selection", number))
        return GatewayNode(rules, selection, Relay() if relays else MixOnArrival())

    hosts = [_host(CLOUD, cloud, seed)]
    hosts += [_host(gateway_address(j), partial(gateway, j), seed) for j in range(gateways)]
    hosts += [_host(device_address(i), DeviceNode, seed) for i in range(devices)]
    return FaultSimulator(hosts, learner, association, weather).run()


def _host(address: Address, make: Callable[[], Node], run: int) -> Host:
    return Host(address, DurableNode(lambda: ReliableNode(make(), run), MemoryDisk()))


def _weather(seed: int, rng: np.random.Generator) -> Weather:
    return Weather(
        seed=seed,
        loss=float(rng.choice([0.0, 0.05, 0.3])),
        duplication=float(rng.choice([0.0, 0.1])),
        mean_delay_s=float(rng.uniform(0.2, 4.0)),
        mean_compute_s=float(rng.uniform(5.0, 40.0)),
        crash_every_s=float(rng.choice([150.0, 400.0, 1e9], p=[0.4, 0.4, 0.2])),
        mean_downtime_s=float(rng.choice([5.0, 60.0, 400.0])),
        false_alarms=float(rng.choice([0.0, 0.5])),
        detection_s=float(rng.choice([20.0, 90.0])),
        calm_after=float(rng.uniform(300.0, 1200.0)),
        snapshot_every=int(rng.integers(3, 60)),
    )


def _links(rng: np.random.Generator, devices: int, gateways: int, weather: Weather) -> FeasibleLinks:
    feasible = rng.random((devices, gateways)) < 0.7
    feasible[np.arange(devices), rng.integers(0, gateways, devices)] = True
    device, gateway = np.nonzero(feasible)
    latency = (weather.mean_compute_s + 4 * weather.mean_delay_s) * rng.uniform(0.5, 2.0, len(device))
    return feasible_links(devices, gateways, device, gateway, latency)


def _rules(
    rng: np.random.Generator, learner: Learner, links: FeasibleLinks, seed: int, *, relays: bool, utility: bool
) -> tuple[GatewayRules, CloudRules]:
    demand = float((learner.model_bytes / links.expected_latency).sum()) / links.gateways
    bandwidth = demand * float(rng.choice([0.1, 0.5, 2.0]))
    staleness = StalenessDiscount()
    gradient: GradientKind = "none" if not utility else "last" if rng.random() < 0.5 else "update"
    shared = gradient != "none" and bool(rng.random() < 0.8)
    tight = bool(rng.random() < 0.2)
    gateway = GatewayRules(
        number=0,
        bandwidth=bandwidth,
        epochs=int(rng.integers(1, 5)),
        mixing_weight=0.9,
        drag=float(rng.choice([0.0, 0.5, 1.0])),
        staleness=staleness,
        max_staleness=3 if tight else None,
        in_flight="discard" if rng.random() < 0.15 else "carry",
        carry_staleness="both" if rng.random() < 0.8 else "gateway",
        patience_floor=float(rng.choice([20.0, 60.0])),
        patience_factor=float(rng.choice([1.5, 5.0])),
        cycle_patience=100.0,
        reply_patience=float(rng.choice([10.0, 120.0])),
        model_bytes=learner.model_bytes,
        latency_exponent=1.0,
        utility_scale="rank" if rng.random() < 0.5 else "minmax",
        utility_floor=0.1,
        gradient=gradient,
        gradient_size=MODEL_SIZE,
        share_gradients=shared,
        learning_rate=0.1,
        seed=0,
    )
    evaluate_every = 5 if relays else 1
    cloud = CloudRules(
        gateways=links.gateways,
        epochs=int(rng.integers(8, 25)),
        epochs_after_target=0,
        mixing_weight=0.9,
        staleness=staleness,
        max_staleness=2 if tight else 50 * links.devices,
        delivery="broadcast" if rng.random() < 0.3 else "reply",
        evaluate_every=evaluate_every,
        warmup=bool(rng.random() < 0.6),
        warmup_quorum=float(rng.choice([0.5, 1.0])),
        warmup_patience=float(rng.choice([0.0, 30.0])),
        warmup_limit=300.0,
        association_period=int(rng.integers(1, 4)),
        load_penalty=0.1,
        every_device=True,
        switching_cost=0.0,
        utility_scale="mean",
        link_stretch=float(rng.choice([2.0, np.inf])),
        bandwidth=(bandwidth,) * links.gateways,
        model_bytes=learner.model_bytes,
        gradient=gradient if shared else "none",
        gradient_size=MODEL_SIZE,
        target=learner.target,
        seed=stream_seed(seed, "association"),
    )
    return gateway, cloud
