"""Building of the cloud, gateway and device nodes from settings, for simulations and deployed processes alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from async_hfl.assembly.build.aggregation_rules import cloud_rule, gateway_rule
from async_hfl.assembly.build.evaluation_clock import EvaluationClock
from async_hfl.assembly.build.policies import association_policy, selection_policy
from async_hfl.assembly.settings.loading import latency_quantile, participation_share
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.arrays import Ints
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.errors import SettingsError
from async_hfl.core.extras import check_installed
from async_hfl.core.maths.projection import CountSketch
from async_hfl.core.maths.server_adam import ServerAdam
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.maths.targets import Target
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy, needs_gradients
from async_hfl.core.randomness import stream_seed
from async_hfl.core.topology import FeasibleLinks
from async_hfl.core.weights import Weights
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import (
    CloudConfig,
    GatewayConfig,
    GatewayDeployment,
    GradientKind,
    MembershipRules,
    Privacy,
    Robust,
)
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.node import GatewayNode

_ASSOCIATION_PATIENCE_S = {"simulated": 60.0, "deployed": 0.5}
"""Default of `association.patience`: in a deployment, devices should be back at work within seconds."""

PERIOD_QUANTILE, PERIOD_SHARE = 0.25, 0.5
"""`gateway.period = "auto"`: this share of this quantile of all round latencies. The quick devices set the pace, since
half of the network may take five times as long."""


class ModelFacts(Protocol):
    """Facts about a task's model that nodes need (`WireFacts`); a deployed node is told them."""

    @property
    def codec(self) -> ModelCodec: ...
    @property
    def model_bytes(self) -> int: ...
    @property
    def float32_bytes(self) -> int: ...
    @property
    def gradient_size(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Method:
    """The policies of a method, and the gradients that they need."""

    selection: SelectionPolicy
    association: AssociationPolicy
    gradient: GradientKind
    """none: neither policy needs gradients."""
    shared: bool
    """True if the cloud needs gradients as well."""
    components: int
    """Number of principal components that the cloud fits; 0 for none."""
    sketch: CountSketch | None


def method_of(settings: Settings, seed: int) -> Method:
    """Return the policies that the settings ask for, and the gradients that they need."""
    selection, association = selection_policy(settings), association_policy(settings)
    needed = needs_gradients(selection.needs | association.needs)
    pca = needed and settings.utility.compression == "pca"
    sketch = None
    if needed and settings.utility.compression == "sketch":
        sketch = CountSketch(stream_seed(seed, "sketch"), settings.utility.sketch_size)
    return Method(
        selection=selection,
        association=association,
        gradient=settings.utility.gradient if needed else "none",
        shared=pca or needs_gradients(association.needs),
        components=settings.utility.components if pca else 0,
        sketch=sketch,
    )


def check_sketch(method: Method, gradient_size: int) -> None:
    """Raise SettingsError unless a sketch is smaller than the gradient itself."""
    if method.sketch is not None and method.sketch.size >= gradient_size:
        raise SettingsError(
            f"utility.sketch_size = {method.sketch.size}: a gradient has only {gradient_size} numbers; give a "
            "smaller size, or utility.compression = 'none'"
        )


def check_privacy(settings: Settings, layout_size: int, gradient_size: int) -> None:
    """Raise an error if this model cannot be private, or the library that counts epsilon is missing."""
    if settings.privacy.noise == 0.0:
        return
    if gradient_size < layout_size:
        raise SettingsError(
            f"privacy.noise: the last {layout_size - gradient_size} numbers of this model are running statistics, such "
            "as variances, which noise would make negative; use a model without them (task cifar10: "
            "task.normalisation = 'group')"
        )
    check_installed("privacy", "privacy.noise")


def rated_model_bytes(settings: Settings, facts: ModelFacts) -> int:
    """Return M in R_ij = M / tau_ij."""
    rated = settings.gateway.rated_model_bytes
    return facts.model_bytes if rated == "auto" else rated


def demand_model_bytes(settings: Settings, facts: ModelFacts) -> int:
    """Return the size of a model by which the demand for bandwidth is computed: as float32, whatever the encoding, so
    that lighter updates let more devices take part."""
    rated = settings.gateway.rated_model_bytes
    return facts.float32_bytes if rated == "auto" else rated


def device_node(method: Method, facts: ModelFacts) -> DeviceNode:
    return DeviceNode(method.sketch, facts.codec)


def gateway_node(
    settings: Settings,
    method: Method,
    facts: ModelFacts,
    *,
    number: int,
    bandwidth: float,
    seed: int,
    incarnation: int = 1,
    deployment: GatewayDeployment | None = None,
) -> GatewayNode:
    gateway, selection = settings.gateway, settings.selection
    config = GatewayConfig(
        number=number,
        bandwidth=bandwidth,
        epochs=gateway.epochs,
        period=100.0 if gateway.period == "auto" else gateway.period,
        period_share=PERIOD_SHARE if gateway.period == "auto" else 0.0,
        refill=gateway.refill,
        weighting=gateway.weighting,
        gain=gateway.gain,
        round_patience=gateway.round_patience,
        round_deadline=_round_deadline(settings),
        over_selection=gateway.over_selection,
        buffer_share=gateway.buffer_size / settings.task.devices,
        participation=participation_share(selection.participants, settings.task.devices),
        mixing_weight=gateway.mixing_weight,
        drag=gateway.drag,
        staleness=_staleness(settings),
        max_staleness=None if gateway.max_staleness == "auto" else gateway.max_staleness,
        # With noise, whether an update is used must not depend on the changes of others.
        max_change=inf if settings.privacy.noise > 0.0 else gateway.max_change,
        in_flight=gateway.in_flight,
        during_upload=gateway.during_upload,
        staleness_clock=gateway.staleness_clock,
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
        codec=facts.codec,
        deployment=deployment or GatewayDeployment(),
        robust=Robust(rule=gateway.robust, window=gateway.robust_window, trim=gateway.trim),
        privacy=Privacy(clip=settings.privacy.clip, noise=settings.privacy.noise, seed=stream_seed(seed, "privacy")),
    )
    return GatewayNode(config, method.selection, gateway_rule(gateway.aggregation).make(), incarnation)


def cloud_node(
    settings: Settings,
    method: Method,
    facts: ModelFacts,
    *,
    target: Target,
    links: FeasibleLinks,
    samples: Ints,
    weights: Weights,
    bandwidth: tuple[float, ...],
    clock: EvaluationClock,
    seed: int,
    membership: MembershipRules | None = None,
    evaluating_devices: int = 0,
) -> CloudNode:
    """Return the cloud. Without `membership`, all devices and gateways in `links` are present from the beginning."""
    cloud, association, warmup = settings.cloud, settings.association, settings.warmup
    gateways = links.gateways if membership is None else membership.start_gateways
    devices = links.devices if membership is None else membership.start_devices
    if cloud.max_staleness != "auto":
        limit = cloud.max_staleness
    elif settings.gateway.aggregation == "relay":
        limit = 100 * devices
    else:
        limit = max(50, 10 * gateways)
    patience = _ASSOCIATION_PATIENCE_S["simulated" if membership is None else "deployed"]
    # The basis is fitted once, to the gradients of the warm-up, so every device should be among them.
    quorum = 1.0 if settings.utility.compression == "pca" else 0.5
    config = CloudConfig(
        gateways=links.gateways,
        epochs=settings.last_epoch,
        epochs_after_target=cloud.epochs_after_target,
        mixing_weight=cloud.mixing_weight,
        momentum=cloud.momentum,
        adam=_server_adam(settings),
        staleness=_staleness(settings),
        max_staleness=limit,
        delivery=cloud.delivery,
        evaluate_every=settings.aggregations_per_epoch,
        evaluation_grid=clock.grid_s or 0.0,
        time_limit=cloud.time_limit,
        reference_quantile=_reference_quantile(settings),
        tier_rounds=settings.gateway.epochs if "tiers" in method.selection.needs else 0,
        tier_deadline=_round_deadline(settings),
        warmup=warmup.enabled,
        warmup_quorum=quorum if warmup.quorum == "auto" else warmup.quorum,
        warmup_patience=warmup.patience,
        warmup_limit=warmup.limit,
        association_period=gateways if association.period == "auto" else association.period,
        association_patience=patience if association.patience == "auto" else association.patience,
        load_penalty=association.load_penalty,
        every_device=association.every_device,
        switching_cost=association.switching_cost,
        utility_scale=association.utility_scale,
        max_latency_ratio=association.max_latency_ratio,
        bandwidth=bandwidth,
        model_bytes=rated_model_bytes(settings, facts),
        gradient=method.gradient if method.shared else "none",
        gradient_size=facts.gradient_size,
        target=replace(target, window=clock.window_s),
        seed=stream_seed(seed, "association"),
        sketch=method.sketch,
        codec=facts.codec,
        demand_model_bytes=demand_model_bytes(settings, facts),
        components=method.components,
        evaluating_devices=evaluating_devices,
        device_evaluation_period=settings.evaluation.period,
        device_evaluation_timeout=settings.evaluation.patience,
        membership=membership or MembershipRules(),
    )
    rule = cloud_rule(cloud.aggregation).make()
    return CloudNode(config, links, samples, weights, rule, revisits=method.association.revisits)


def _round_deadline(settings: Settings) -> float:
    """Return the deadline of a synchronous round in seconds; 0 if it is the reference latency."""
    deadline = settings.gateway.round_deadline
    return 0.0 if isinstance(deadline, str) else deadline


def _reference_quantile(settings: Settings) -> float:
    """Return the quantile of all round latencies from which gateways derive a time; 0 if they derive none."""
    gateway = settings.gateway
    if gateway.aggregation == "rounds":
        return latency_quantile(gateway.round_deadline) or 0.0
    return PERIOD_QUANTILE if gateway.period == "auto" else 0.0


def _server_adam(settings: Settings) -> ServerAdam | None:
    cloud = settings.cloud
    if cloud.optimiser != "adam":
        return None
    return ServerAdam(cloud.adam_rate, cloud.adam_beta1, cloud.adam_beta2, cloud.adam_epsilon)


def _staleness(settings: Settings) -> StalenessDiscount:
    how = settings.staleness
    return StalenessDiscount(how.kind, how.exponent, how.slope, how.offset, how.rate)
