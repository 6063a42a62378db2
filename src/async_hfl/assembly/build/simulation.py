"""The composition root of a simulation: builds the nodes, the network and the learner that the settings describe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from async_hfl.assembly.build.bandwidth import Bandwidth, resolve_bandwidth
from async_hfl.assembly.build.evaluation_clock import EvaluationClock, simulated_clock
from async_hfl.assembly.build.fleet import build_fleet
from async_hfl.assembly.build.networks import build_network
from async_hfl.assembly.build.nodes import (
    check_privacy,
    check_sketch,
    cloud_node,
    demand_model_bytes,
    device_node,
    gateway_node,
    method_of,
    rated_model_bytes,
)
from async_hfl.assembly.build.outage_plan import build_outage_plan
from async_hfl.assembly.build.task import EngineSharing, build_learner, vectors_of
from async_hfl.assembly.build.wire import wire_facts
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.learner import Accelerated, Learner
from async_hfl.core.vectors import to_host
from async_hfl.core.weights import Weights
from async_hfl.decisions.association.fixed import FixedAssociation
from async_hfl.decisions.timing import DecisionTimes, TimedAssociation, TimedSelection
from async_hfl.network.bandwidth import demand
from async_hfl.network.description import NetworkDescription
from async_hfl.simulation.world import World


@dataclass(frozen=True, slots=True)
class BuiltSimulation:
    world: World
    network: NetworkDescription
    bandwidth: Bandwidth
    clock: EvaluationClock


def build(
    settings: Settings,
    seed: int,
    *,
    start_from: Callable[[Learner], Weights] | None = None,
    sharing: EngineSharing | None = None,
) -> BuiltSimulation:
    """Build a simulation. `start_from` returns the initial model, which is otherwise drawn at random."""
    method = method_of(settings, seed)
    times = DecisionTimes()
    timed = replace(method, selection=TimedSelection(method.selection, times.selection))
    learner = build_learner(settings, seed, method.gradient, sharing=sharing, vectors=vectors_of(settings))
    check_sketch(method, learner.gradient_size)
    check_privacy(settings, learner.layout.size, learner.gradient_size)
    weights = start_from(learner) if start_from is not None else learner.initial_weights(seed)
    if isinstance(learner, Accelerated):
        weights = learner.to_device(to_host(weights))
    wire = wire_facts(
        settings,
        model_size=learner.layout.size,
        gradient_size=learner.gradient_size,
        learning_rate=learner.learning_rate,
        seed=seed,
        simulated=True,
    )
    network = build_network(settings, wire.model_bytes, seed)
    devices, gateways = network.links.devices, network.links.gateways
    if isinstance(method.association, FixedAssociation):
        method.association.check(devices, gateways)
    plain = network if wire.model_bytes == wire.float32_bytes else build_network(settings, wire.float32_bytes, seed)
    whole = demand(plain.links, demand_model_bytes(settings, wire))
    bandwidth = resolve_bandwidth(settings.gateway.bandwidth, network.links, rated_model_bytes(settings, wire), whole)
    clock = simulated_clock(settings, plain.links)
    cloud = cloud_node(
        settings,
        method,
        wire,
        target=learner.target,
        links=network.links,
        samples=learner.samples,
        weights=weights,
        bandwidth=(bandwidth.rate,) * gateways,
        clock=clock,
        seed=seed,
    )
    world = World(
        cloud=cloud,
        gateways=[
            gateway_node(settings, timed, wire, number=number, bandwidth=bandwidth.rate, seed=seed)
            for number in range(gateways)
        ],
        devices=[device_node(method, wire) for _ in range(devices)],
        learner=learner,
        delays=network.delays,
        association=TimedAssociation(method.association, times.association),
        model_bytes=wire.model_bytes,
        seed=seed,
        batching=settings.simulation.batching == "on",
        solver_seconds=settings.simulation.solver_seconds,
        air=network.air,
        outages=build_outage_plan(settings.outages, network.links, seed),
        fleet=build_fleet(settings, devices, seed),
        decision_times=times,
        codec=wire.codec,
    )
    return BuiltSimulation(world, network, bandwidth, clock)
