"""The composition root: settings in, a world of nodes out. Nobody else chooses a policy or a learner."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from async_hfl.assembly.loading import bandwidth_share
from async_hfl.assembly.network_building import build_network
from async_hfl.assembly.own_learner import own_learner
from async_hfl.assembly.settings import Settings
from async_hfl.assembly.user_code import is_user_code, load_function
from async_hfl.core.errors import SettingsError
from async_hfl.core.learner import Learner
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy
from async_hfl.core.randomness import stream_seed
from async_hfl.core.staleness import StalenessDiscount
from async_hfl.core.weights import Weights
from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.association.own import OwnAssociation
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.selection.own import OwnSelection
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.learning.null import NullLearner
from async_hfl.learning.recipe import Recipe
from async_hfl.learning.tasks import TaskOptions, build_task
from async_hfl.learning.trainer import EngineOptions, Trainer
from async_hfl.network.bandwidth import share_of_demand
from async_hfl.network.description import NetworkDescription
from async_hfl.nodes.cloud import CloudNode
from async_hfl.nodes.cloud_mixing import MixUploads
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway import GatewayAggregation, GatewayNode
from async_hfl.nodes.gateway_mixing import MixOnArrival
from async_hfl.nodes.gateway_relaying import Relay
from async_hfl.nodes.rules import CloudRules, GatewayRules, GradientKind
from async_hfl.simulation.simulator import World

_SELECTION: dict[str, Callable[[], SelectionPolicy]] = {
    "utility-knapsack": UtilityKnapsack,
    "random": RandomSelection,
}
Share: TypeAlias = Callable[[Hashable, Callable[[], Trainer]], Trainer]
"""Gives the engine of that key, which several runs may share, or has it made."""
_AGGREGATION: dict[str, Callable[[], GatewayAggregation]] = {"mix": MixOnArrival, "relay": Relay}


@dataclass(frozen=True, slots=True)
class Built:
    world: World
    network: NetworkDescription
    bandwidth: float
    """B_j as resolved, bytes per second."""


def build(
    settings: Settings,
    seed: int,
    start_from: Callable[[Learner], Weights] | None = None,
    share: Share | None = None,
) -> Built:
    """`start_from` gives the initial model where it is not drawn by the seed; `share` lets runs share an engine."""
    selection = selection_policy(settings)
    association = association_policy(settings)
    gradient: GradientKind = settings.utility.gradient if selection.needs or association.needs else "none"
    shared = bool(association.needs)
    learner = build_learner(settings, seed, gradient, share)
    network = build_network(settings, learner.model_bytes, seed)
    weights = start_from(learner) if start_from is not None else learner.initial_weights(seed)
    bandwidth = _bandwidth(settings, network, _rated(settings, learner))
    gateways = network.links.gateways
    staleness = StalenessDiscount(
        settings.staleness.kind,
        settings.staleness.exponent,
        settings.staleness.slope,
        settings.staleness.offset,
        settings.staleness.rate,
    )
    cloud = CloudNode(
        _cloud_rules(settings, network, learner, bandwidth, staleness, gradient if shared else "none", seed),
        network.links,
        learner.samples,
        weights,
        MixUploads(),
        revisits=association.revisits,
    )
    nodes = [
        GatewayNode(
            _gateway_rules(settings, number, learner, bandwidth, staleness, gradient, shared, seed),
            selection,
            _AGGREGATION[settings.gateway.aggregation](),
        )
        for number in range(gateways)
    ]
    world = World(
        cloud,
        nodes,
        [DeviceNode() for _ in range(network.links.devices)],
        learner,
        network.delays,
        association,
        learner.model_bytes,
        seed,
        settings.simulation.batching == "on",
        settings.simulation.charge_solver,
    )
    return Built(world, network, bandwidth)


def selection_policy(settings: Settings) -> SelectionPolicy:
    name = settings.selection.policy
    if is_user_code(name):
        return OwnSelection(load_function("selection.policy", name), name)
    if name not in _SELECTION:
        raise SettingsError(
            f"selection.policy = {name!r}: there is {', '.join(_SELECTION)}, or FILE.py:FUNCTION of your own"
        )
    return _SELECTION[name]()


def association_policy(settings: Settings) -> AssociationPolicy:
    name = settings.association.policy
    if is_user_code(name):
        return OwnAssociation(load_function("association.policy", name), name)
    if name == "balanced-utility":
        return BalancedUtility()
    if name == "random":
        return RandomAssociation(settings.association.redraw)
    raise SettingsError(
        f"association.policy = {name!r}: there is balanced-utility, random, or FILE.py:FUNCTION of your own"
    )


def build_learner(settings: Settings, seed: int, gradient: GradientKind, share: Share | None = None) -> Learner:
    task = settings.task
    if task.name == "null":
        return NullLearner(task.devices, task.model_size, gradient=gradient == "last", threshold=task.target)
    if is_user_code(task.name):
        return own_learner(
            task.name,
            task.devices,
            seed,
            recipe(settings, gradient=gradient == "last"),
            engine_options(settings),
            threshold=task.target,
            refresh=task.refresh,
        )
    from async_hfl.learning.task_learner import TaskLearner, engine_for  # brings JAX: the null task does without

    dealt = build_task(task.name, task.devices, seed, task_options(settings))
    how = recipe(settings, gradient=gradient == "last")
    options = engine_options(settings)
    trainer = None
    if share is not None:
        # What is compiled in or lies on the device; all else comes with each job.
        same = (task.name, task.layers, task.normalisation, task.interval, how.shape, options)
        trainer = share(same, lambda: engine_for(dealt, how, options))
    return TaskLearner(dealt, how, options, trainer)


def task_options(settings: Settings) -> TaskOptions:
    task = settings.task
    return TaskOptions(
        target=task.target,
        partition=task.partition,
        partition_settings=msgspec.structs.asdict(task),
        refresh=task.refresh,
        layers=task.layers,
        normalisation=task.normalisation,
        interval=task.interval,
    )


def recipe(settings: Settings, *, gradient: bool) -> Recipe:
    device = settings.device
    return Recipe(
        device.epochs,
        device.batch_size,
        device.learning_rate,
        device.momentum,
        device.weight_decay,
        device.proximal_weight,
        gradient,
    )


def engine_options(settings: Settings) -> EngineOptions:
    return EngineOptions(memory=settings.engine.memory, precision=settings.engine.precision)


def _rated(settings: Settings, learner: Learner) -> int:
    rated = settings.gateway.rated_model_bytes
    return learner.model_bytes if rated == "auto" else rated


def _bandwidth(settings: Settings, network: NetworkDescription, model_bytes: int) -> float:
    share = bandwidth_share(settings.gateway.bandwidth)
    if share is None:
        return float(settings.gateway.bandwidth)
    return share_of_demand(network.links, model_bytes, share)


def _gateway_rules(
    settings: Settings,
    number: int,
    learner: Learner,
    bandwidth: float,
    staleness: StalenessDiscount,
    gradient: GradientKind,
    shared: bool,
    seed: int,
) -> GatewayRules:
    gateway, selection = settings.gateway, settings.selection
    return GatewayRules(
        number=number,
        bandwidth=bandwidth,
        epochs=gateway.epochs,
        mixing_weight=gateway.mixing_weight,
        drag=gateway.drag,
        staleness=staleness,
        max_staleness=None if gateway.max_staleness == "auto" else gateway.max_staleness,
        in_flight=gateway.in_flight,
        carry_staleness=gateway.carry_staleness,
        patience_floor=gateway.patience_floor,
        patience_factor=gateway.patience_factor,
        cycle_patience=gateway.cycle_patience,
        reply_patience=gateway.reply_patience,
        model_bytes=_rated(settings, learner),
        latency_exponent=selection.latency_exponent,
        utility_scale=selection.utility_scale,
        utility_floor=selection.utility_floor,
        gradient=gradient,
        gradient_size=learner.gradient_size,
        share_gradients=shared,
        learning_rate=learner.learning_rate,
        seed=stream_seed(seed, "selection", number),
    )


def _cloud_rules(
    settings: Settings,
    network: NetworkDescription,
    learner: Learner,
    bandwidth: float,
    staleness: StalenessDiscount,
    gradient: GradientKind,
    seed: int,
) -> CloudRules:
    cloud, association, warmup = settings.cloud, settings.association, settings.warmup
    gateways, devices = network.links.gateways, network.links.devices
    if cloud.max_staleness != "auto":
        limit = cloud.max_staleness
    elif settings.gateway.aggregation == "relay":
        limit = 100 * devices
    else:
        limit = max(50, 10 * gateways)
    return CloudRules(
        gateways=gateways,
        epochs=cloud.epochs,
        epochs_after_target=cloud.epochs_after_target,
        mixing_weight=cloud.mixing_weight,
        staleness=staleness,
        max_staleness=limit,
        delivery=cloud.delivery,
        evaluate_every=cloud.evaluate_every,
        warmup=warmup.enabled,
        warmup_quorum=warmup.quorum,
        warmup_patience=warmup.patience,
        warmup_limit=warmup.limit,
        association_period=gateways if association.period == "auto" else association.period,
        load_penalty=association.load_penalty,
        every_device=association.every_device,
        switching_cost=association.switching_cost,
        utility_scale=association.utility_scale,
        link_stretch=association.link_stretch,
        bandwidth=(bandwidth,) * gateways,
        model_bytes=_rated(settings, learner),
        gradient=gradient,
        gradient_size=learner.gradient_size,
        target=learner.target,
        seed=stream_seed(seed, "association"),
    )
