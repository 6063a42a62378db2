"""The composition root: settings in, a world of nodes out. Nobody else chooses a policy or a learner."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from async_hfl.assembly.fleet import build_fleet
from async_hfl.assembly.life_building import build_life
from async_hfl.assembly.loading import bandwidth_share
from async_hfl.assembly.network_building import build_network
from async_hfl.assembly.own_learner import own_learner
from async_hfl.assembly.settings import AssociationSection, SelectionSection, Settings
from async_hfl.assembly.user_code import is_user_code, load_function
from async_hfl.core.errors import SettingsError
from async_hfl.core.learner import Learner
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy, needs_gradients
from async_hfl.core.projection import CountSketch
from async_hfl.core.randomness import stream_seed
from async_hfl.core.staleness import StalenessDiscount
from async_hfl.core.weights import Weights
from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.association.even import Even
from async_hfl.decisions.association.fixed import FixedAssociation, read_table
from async_hfl.decisions.association.nearest import NearestGateway
from async_hfl.decisions.association.own import OwnAssociation
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.association.reclustering import Reclustering
from async_hfl.decisions.selection.divfl import DivFl
from async_hfl.decisions.selection.high_loss import HighLoss
from async_hfl.decisions.selection.longest_idle import LongestIdle
from async_hfl.decisions.selection.oort import Oort
from async_hfl.decisions.selection.own import OwnSelection
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.decisions.selection.short_latency import ShortLatency
from async_hfl.decisions.selection.tifl import Tifl
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.decisions.timing import DecisionTimes, TimedAssociation, TimedSelection
from async_hfl.learning.null import NullLearner
from async_hfl.learning.recipe import Recipe
from async_hfl.learning.tasks import TaskOptions, build_task
from async_hfl.learning.trainer import EngineOptions, Trainer
from async_hfl.network.bandwidth import share_of_demand
from async_hfl.network.description import NetworkDescription
from async_hfl.nodes.cloud import CloudNode
from async_hfl.nodes.cloud_aggregation import CloudAggregation
from async_hfl.nodes.cloud_averaging import AverageUploads
from async_hfl.nodes.cloud_mixing import MixUploads
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway import GatewayNode
from async_hfl.nodes.gateway_aggregation import GatewayAggregation
from async_hfl.nodes.gateway_mixing import MixOnArrival
from async_hfl.nodes.gateway_periods import Periods
from async_hfl.nodes.gateway_relaying import Relay
from async_hfl.nodes.gateway_rounds import Rounds
from async_hfl.nodes.rules import CloudRules, GatewayRules, GradientKind
from async_hfl.simulation.world import World

SELECTION: dict[str, Callable[[SelectionSection], SelectionPolicy]] = {
    "utility-knapsack": lambda _: UtilityKnapsack(),
    "random": lambda _: RandomSelection(),
    "high-loss": lambda _: HighLoss(),
    "short-latency": lambda _: ShortLatency(),
    "longest-idle": lambda _: LongestIdle(),
    "oort": lambda _: Oort(),
    "tifl": lambda section: Tifl(section.inside_tier),
    "divfl": lambda _: DivFl(),
}
Share: TypeAlias = Callable[[Hashable, Callable[[], Trainer]], Trainer]
"""Gives the engine of that key, which several runs may share, or has it made."""
ASSOCIATION: dict[str, Callable[[AssociationSection], AssociationPolicy]] = {
    "balanced-utility": lambda _: BalancedUtility(),
    "random": lambda section: RandomAssociation(section.redraw),
    "re-clustering": lambda section: Reclustering(_RECLUSTERED if section.period == "auto" else section.period),
    "even": lambda section: Even() if math.isinf(section.link_stretch) else Even(section.link_stretch),
    "nearest": lambda _: NearestGateway(),
    "fixed": lambda section: _fixed(section.file),
}
_RECLUSTERED = 10
"""Cloud epochs between two clusterings, unless `association.period` says otherwise."""
GATEWAY_AGGREGATION: dict[str, Callable[[], GatewayAggregation]] = {
    "mix": MixOnArrival,
    "relay": Relay,
    "periods": Periods,
    "rounds": Rounds,
}
CLOUD_AGGREGATION: dict[str, Callable[[], CloudAggregation]] = {"mix": MixUploads, "average": AverageUploads}


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
    wanted = needs_gradients(selection.needs | association.needs)
    gradient: GradientKind = settings.utility.gradient if wanted else "none"
    pca = wanted and settings.utility.compression == "pca"
    shared = pca or needs_gradients(association.needs)  # the cloud fits the basis
    sketch = None
    if wanted and settings.utility.compression == "sketch":
        sketch = CountSketch(stream_seed(seed, "sketch"), settings.utility.sketch_size)
    learner = build_learner(settings, seed, gradient, share)
    if sketch is not None and sketch.size >= learner.gradient_size:
        raise SettingsError(
            f"utility.sketch_size = {sketch.size}: a gradient has only {learner.gradient_size} numbers; take fewer, or "
            "utility.compression = 'none'"
        )
    network = build_network(settings, learner.model_bytes, seed)
    if isinstance(association, FixedAssociation):
        association.check(network.links.devices, network.links.gateways)
    times = DecisionTimes()
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
        replace(
            _cloud_rules(settings, network, learner, bandwidth, staleness, gradient if shared else "none", seed),
            sketch=sketch,
            components=settings.utility.components if pca else 0,
        ),
        network.links,
        learner.samples,
        weights,
        CLOUD_AGGREGATION[settings.cloud.aggregation](),
        revisits=association.revisits,
    )
    nodes = [
        GatewayNode(
            replace(
                _gateway_rules(settings, number, learner, bandwidth, staleness, gradient, shared, seed), sketch=sketch
            ),
            TimedSelection(selection, times.selection),
            GATEWAY_AGGREGATION[settings.gateway.aggregation](),
        )
        for number in range(gateways)
    ]
    world = World(
        cloud,
        nodes,
        [DeviceNode(sketch) for _ in range(network.links.devices)],
        learner,
        network.delays,
        TimedAssociation(association, times.association),
        learner.model_bytes,
        seed,
        settings.simulation.batching == "on",
        settings.simulation.charge_solver,
        network.air,
        build_life(settings.life, network.links, seed),
        build_fleet(settings, network.links.devices, seed),
        times,
    )
    return Built(world, network, bandwidth)


def selection_policy(settings: Settings) -> SelectionPolicy:
    name = settings.selection.policy
    if is_user_code(name):
        return OwnSelection(load_function("selection.policy", name), name)
    if name not in SELECTION:
        raise SettingsError(
            f"selection.policy = {name!r}: there is {', '.join(SELECTION)}, or FILE.py:FUNCTION of your own"
        )
    return SELECTION[name](settings.selection)


def association_policy(settings: Settings) -> AssociationPolicy:
    name = settings.association.policy
    if is_user_code(name):
        return OwnAssociation(load_function("association.policy", name), name)
    if name not in ASSOCIATION:
        raise SettingsError(
            f"association.policy = {name!r}: there is {', '.join(ASSOCIATION)}, or FILE.py:FUNCTION of your own"
        )
    return ASSOCIATION[name](settings.association)


def _fixed(file: str) -> FixedAssociation:
    if not file:
        raise SettingsError("association.policy = 'fixed' needs association.file: CSV with device,gateway, or JSON")
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"association.file = {file!r}: cannot be read ({error})") from error
    return FixedAssociation(read_table(text, file), file)


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
        period=gateway.period,
        round_patience=gateway.round_patience,
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
        min_participation=selection.min_participation,
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
        warmup_quorum=_quorum(settings) if warmup.quorum == "auto" else warmup.quorum,
        warmup_patience=warmup.patience,
        warmup_limit=warmup.limit,
        association_period=gateways if association.period == "auto" else association.period,
        association_patience=association.patience,
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


def _quorum(settings: Settings) -> float:
    """The basis is fitted once, to what warm-up brought: better to have heard everybody."""
    return 1.0 if settings.utility.compression == "pca" else 0.5
