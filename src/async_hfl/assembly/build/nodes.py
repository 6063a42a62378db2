"""From settings to single nodes: what a simulated world and a deployed process make alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.arrays import Ints
from async_hfl.core.errors import SettingsError
from async_hfl.core.maths.projection import CountSketch
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.maths.targets import Target
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy, needs_gradients
from async_hfl.core.randomness import stream_seed
from async_hfl.core.topology import FeasibleLinks
from async_hfl.core.weights import Weights
from async_hfl.nodes.cloud.aggregation.average import AverageUploads
from async_hfl.nodes.cloud.aggregation.mix import MixUploads
from async_hfl.nodes.cloud.aggregation.protocol import CloudAggregation
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import CloudConfig, GatewayConfig, GatewayDeployment, GradientKind
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.relay import Relay
from async_hfl.nodes.gateway.aggregation.rounds import Rounds
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation
from async_hfl.nodes.gateway.node import GatewayNode

GATEWAY_AGGREGATION: dict[str, Callable[[], GatewayAggregation]] = {
    "mix": MixOnArrival,
    "relay": Relay,
    "periods": Periods,
    "rounds": Rounds,
}
CLOUD_AGGREGATION: dict[str, Callable[[], CloudAggregation]] = {"mix": MixUploads, "average": AverageUploads}
SIMULATED_ASSOCIATION_PATIENCE_S = 60.0
"""Where devices are lost by the minute; in a deployment they are to work again within seconds."""


class Facts(Protocol):
    """What nodes must know of a task; a learner knows it, and so does who was told."""

    @property
    def model_bytes(self) -> int: ...
    @property
    def gradient_size(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...


@dataclass(frozen=True, slots=True)
class MembershipRules:
    """What only a deployed run has: who joins when, and how long one waits for whom."""

    start_devices: int
    start_gateways: int
    start_patience: float
    gateway_patience: float
    bandwidth_share: float
    """0: the settings say bytes per second."""
    lost_patience: float = 0.0
    assessors: int = 0
    """Devices asked to evaluate; 0: the cloud does."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method's choices as resolved, with what follows from them."""

    selection: SelectionPolicy
    association: AssociationPolicy
    gradient: GradientKind
    """none: no decider wants any."""
    shared: bool
    """The cloud wants gradients, too."""
    components: int
    """Of the basis that the cloud fits; 0: none."""
    sketch: CountSketch | None


def method_of(settings: Settings, seed: int, selection: SelectionPolicy, association: AssociationPolicy) -> Method:
    wanted = needs_gradients(selection.needs | association.needs)
    pca = wanted and settings.utility.compression == "pca"
    sketch = None
    if wanted and settings.utility.compression == "sketch":
        sketch = CountSketch(stream_seed(seed, "sketch"), settings.utility.sketch_size)
    return Method(
        selection,
        association,
        settings.utility.gradient if wanted else "none",
        pca or needs_gradients(association.needs),
        settings.utility.components if pca else 0,
        sketch,
    )


def check_sketch(method: Method, facts: Facts) -> None:
    if method.sketch is not None and method.sketch.size >= facts.gradient_size:
        raise SettingsError(
            f"utility.sketch_size = {method.sketch.size}: a gradient has only {facts.gradient_size} numbers; take "
            "fewer, or utility.compression = 'none'"
        )


def rated_model_bytes(settings: Settings, facts: Facts) -> int:
    rated = settings.gateway.rated_model_bytes
    return facts.model_bytes if rated == "auto" else rated


def device_node(method: Method) -> DeviceNode:
    return DeviceNode(method.sketch)


def gateway_node(
    settings: Settings,
    method: Method,
    facts: Facts,
    number: int,
    bandwidth: float,
    seed: int,
    incarnation: int = 1,
    cloud_patience: float = float("inf"),
    accounts: bool = False,
) -> GatewayNode:
    gateway, selection = settings.gateway, settings.selection
    config = GatewayConfig(
        number=number,
        bandwidth=bandwidth,
        epochs=gateway.epochs,
        period=gateway.period,
        round_patience=gateway.round_patience,
        mixing_weight=gateway.mixing_weight,
        drag=gateway.drag,
        staleness=_staleness(settings),
        max_staleness=None if gateway.max_staleness == "auto" else gateway.max_staleness,
        in_flight=gateway.in_flight,
        staleness_clock=gateway.carry_staleness,
        patience_floor=gateway.patience_floor,
        patience_factor=gateway.patience_factor,
        cycle_patience=gateway.cycle_patience,
        reply_patience=gateway.reply_patience,
        model_bytes=rated_model_bytes(settings, facts),
        latency_exponent=selection.latency_exponent,
        utility_scale=selection.utility_scale,
        utility_floor=selection.utility_floor,
        min_participation=selection.min_participation,
        gradient=method.gradient,
        gradient_size=facts.gradient_size,
        share_gradients=method.shared,
        learning_rate=facts.learning_rate,
        seed=stream_seed(seed, "selection", number),
        sketch=method.sketch,
        deployment=GatewayDeployment(cloud_patience=cloud_patience, track_losses=accounts),
    )
    return GatewayNode(config, method.selection, GATEWAY_AGGREGATION[gateway.aggregation](), incarnation)


def cloud_node(
    settings: Settings,
    method: Method,
    facts: Facts,
    target: Target,
    links: FeasibleLinks,
    samples: Ints,
    weights: Weights,
    bandwidth: tuple[float, ...],
    seed: int,
    living: MembershipRules | None = None,
) -> CloudNode:
    """Without `living` everybody in `links` is there from the beginning."""
    cloud, association, warmup = settings.cloud, settings.association, settings.warmup
    gateways = links.gateways if living is None else living.start_gateways
    devices = links.devices if living is None else living.start_devices
    if cloud.max_staleness != "auto":
        limit = cloud.max_staleness
    elif settings.gateway.aggregation == "relay":
        limit = 100 * devices
    else:
        limit = max(50, 10 * gateways)
    patience = SIMULATED_ASSOCIATION_PATIENCE_S if living is None else 0.5
    config = CloudConfig(
        gateways=links.gateways,
        epochs=settings.last_epoch,
        epochs_after_target=cloud.epochs_after_target,
        mixing_weight=cloud.mixing_weight,
        staleness=_staleness(settings),
        max_staleness=limit,
        delivery=cloud.delivery,
        evaluate_every=cloud.evaluate_every,
        warmup=warmup.enabled,
        warmup_quorum=_quorum(settings) if warmup.quorum == "auto" else warmup.quorum,
        warmup_patience=warmup.patience,
        warmup_limit=warmup.limit,
        association_period=gateways if association.period == "auto" else association.period,
        association_patience=patience if association.patience == "auto" else association.patience,
        load_penalty=association.load_penalty,
        every_device=association.every_device,
        switching_cost=association.switching_cost,
        utility_scale=association.utility_scale,
        link_stretch=association.link_stretch,
        bandwidth=bandwidth,
        model_bytes=rated_model_bytes(settings, facts),
        gradient=method.gradient if method.shared else "none",
        gradient_size=facts.gradient_size,
        target=target,
        seed=stream_seed(seed, "association"),
        sketch=method.sketch,
        components=method.components,
        assessors=0 if living is None else living.assessors,
        assessment_period=settings.evaluation.period,
        assessment_patience=settings.evaluation.patience,
        start_devices=0 if living is None else living.start_devices,
        start_gateways=0 if living is None else living.start_gateways,
        start_patience=0.0 if living is None else living.start_patience,
        gateway_patience=0.0 if living is None else living.gateway_patience,
        lost_patience=0.0 if living is None else living.lost_patience,
        bandwidth_share=0.0 if living is None else living.bandwidth_share,
    )
    aggregation = CLOUD_AGGREGATION[cloud.aggregation]()
    return CloudNode(config, links, samples, weights, aggregation, revisits=method.association.revisits)


def _staleness(settings: Settings) -> StalenessDiscount:
    how = settings.staleness
    return StalenessDiscount(how.kind, how.exponent, how.slope, how.offset, how.rate)


def _quorum(settings: Settings) -> float:
    """The basis is fitted once, to what warm-up brought: better to have heard everybody."""
    return 1.0 if settings.utility.compression == "pca" else 0.5
