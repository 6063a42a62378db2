"""The composition root: settings in, a world of nodes out. Nobody else chooses a policy or a learner."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from async_hfl.assembly.build.fleet import build_fleet
from async_hfl.assembly.build.networks import build_network
from async_hfl.assembly.build.nodes import (
    check_sketch,
    cloud_node,
    device_node,
    gateway_node,
    method_of,
    rated_model_bytes,
)
from async_hfl.assembly.build.outages import build_life
from async_hfl.assembly.build.wire import on_the_wire
from async_hfl.assembly.settings.loading import bandwidth_share, bytes_per_second
from async_hfl.assembly.settings.schema import AssociationSection, SelectionSection, Settings
from async_hfl.assembly.user_code.loading import is_user_code, load_function
from async_hfl.assembly.user_code.user_task import own_learner
from async_hfl.core.errors import SettingsError
from async_hfl.core.learner import Learner
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy
from async_hfl.core.weights import Weights
from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.association.even import Even
from async_hfl.decisions.association.fixed import FixedAssociation, read_table
from async_hfl.decisions.association.nearest import NearestGateway
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.association.reclustering import Reclustering
from async_hfl.decisions.association.user_policy import OwnAssociation
from async_hfl.decisions.selection.divfl import DivFl
from async_hfl.decisions.selection.high_loss import HighLoss
from async_hfl.decisions.selection.longest_idle import LongestIdle
from async_hfl.decisions.selection.oort import Oort
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.decisions.selection.short_latency import ShortLatency
from async_hfl.decisions.selection.tifl import Tifl
from async_hfl.decisions.selection.user_policy import OwnSelection
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.decisions.timing import DecisionTimes, TimedAssociation, TimedSelection
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions, Trainer, VectorsChoice
from async_hfl.learning.tasks.catalogue import TaskOptions, build_task
from async_hfl.learning.tasks.stub_learner import StubLearner
from async_hfl.network.bandwidth import share_of_demand
from async_hfl.network.description import NetworkDescription
from async_hfl.nodes.config import GradientKind
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


@dataclass(frozen=True, slots=True)
class Share:
    """Runs that share an engine."""

    engine: Callable[[Hashable, Callable[[], Trainer]], Trainer]
    """The one of that key, or has it made."""
    runs: int = 1
    """At a time."""


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
    method = method_of(settings, seed, selection_policy(settings), association_policy(settings))
    association = method.association
    times = DecisionTimes()
    timed = replace(method, selection=TimedSelection(method.selection, times.selection))
    learner = build_learner(settings, seed, method.gradient, share, vectors=vectors_of(settings))
    check_sketch(method, learner)
    weights = start_from(learner) if start_from is not None else learner.initial_weights(seed)
    wire = on_the_wire(settings, learner, weights)
    network = build_network(settings, wire.model_bytes, seed)
    if isinstance(association, FixedAssociation):
        association.check(network.links.devices, network.links.gateways)
    bandwidth = _bandwidth(settings, network, rated_model_bytes(settings, wire))
    gateways = network.links.gateways
    cloud = cloud_node(
        settings,
        method,
        wire,
        learner.target,
        network.links,
        learner.samples,
        weights,
        (bandwidth,) * gateways,
        seed,
    )
    nodes = [gateway_node(settings, timed, wire, number, bandwidth, seed) for number in range(gateways)]
    world = World(
        cloud,
        nodes,
        [device_node(method) for _ in range(network.links.devices)],
        learner,
        network.delays,
        TimedAssociation(association, times.association),
        wire.model_bytes,
        seed,
        settings.simulation.batching == "on",
        settings.simulation.charge_solver,
        network.air,
        build_life(settings.life, network.links, seed),
        build_fleet(settings, network.links.devices, seed),
        times,
        wire.encoding,
        wire.share,
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


def build_learner(
    settings: Settings,
    seed: int,
    gradient: GradientKind,
    share: Share | None = None,
    vectors: VectorsChoice = "host",
) -> Learner:
    """`vectors` may stay on an accelerator where nothing but a simulation takes them."""
    task, options = settings.task, replace(engine_options(settings), vectors=vectors)
    runs = 1 if share is None else share.runs
    if task.name == "null":
        return StubLearner(task.devices, task.model_size, gradient=gradient == "last", threshold=task.target)
    if is_user_code(task.name):
        return own_learner(
            task.name,
            task.devices,
            seed,
            recipe(settings, gradient=gradient == "last"),
            options,
            multiplied=gradient != "none",
            runs=runs,
            threshold=task.target,
            refresh=task.refresh,
        )
    from async_hfl.learning.tasks.task_learner import TaskLearner, decide_vectors, engine_for

    dealt = build_task(task.name, task.devices, seed, task_options(settings))
    how = recipe(settings, gradient=gradient == "last")
    options = decide_vectors(dealt, options, runs)
    trainer = None
    if share is not None:
        # What is compiled in or lies on the device; all else comes with each job.
        same = (task.name, task.layers, task.normalisation, task.interval, how.static, options)
        trainer = share.engine(same, lambda: engine_for(dealt, how, options))
    return TaskLearner(dealt, how, options, trainer, needs_products=gradient != "none")


def vectors_of(settings: Settings) -> VectorsChoice:
    """Where every model or gradient is fetched anyway, to be rounded or projected, they had better come together."""
    fetched = settings.transfer.half or settings.utility.compression != "none"
    return "host" if settings.engine.vectors == "auto" and fetched else settings.engine.vectors


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
    engine = settings.engine
    return EngineOptions(memory=engine.memory, precision=engine.precision, prefetch=engine.ahead)


def _bandwidth(settings: Settings, network: NetworkDescription, model_bytes: int) -> float:
    share = bandwidth_share(settings.gateway.bandwidth)
    if share is None:
        return bytes_per_second(settings.gateway.bandwidth)
    return share_of_demand(network.links, model_bytes, share)
