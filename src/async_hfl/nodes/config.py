"""Configuration of the cloud and the gateways, with every "auto", share and unit already resolved to a number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from async_hfl.core.compression.model_codec import PLAIN_MODELS, ModelCodec
from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.maths.projection import CountSketch
from async_hfl.core.maths.server_adam import ServerAdam
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.maths.targets import Target
from async_hfl.core.maths.utility import UtilityScale

GradientKind = Literal["none", "last", "update"]
"""none: no policy uses gradients, so none are kept or sent. last: devices send their last gradient. update: the gateway
computes the mean step from the weights."""

RobustRule = Literal["none", "clip", "trimmed-mean", "median"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Robust:
    """The part of a gateway's configuration that limits what a few harmful devices can do (`aggregation.robust`)."""

    rule: RobustRule = "none"
    window: int = 20
    """Devices whose latest changes are compared."""
    trim: float = 0.3
    """trimmed-mean: the share of them that is left out at each end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """The part of a gateway's configuration that protects single devices (see `aggregation.private`)."""

    clip: float = float("inf")
    """C: the largest norm of a device's change."""
    noise: float = 0.0
    """z, the noise multiplier; 0: no noise."""
    seed: int = 0
    """Seed of the noise; a deployed gateway adds a secret of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeployment:
    """The part of a gateway's configuration that applies if nodes are processes with sessions and disks."""

    cloud_patience: float = float("inf")
    """Seconds without a session to the cloud after which no device is triggered."""
    reconnect_patience: float = 15.0
    """Seconds that devices have to reconnect after a restart of the gateway."""
    track_losses: bool = False
    """Keep track of every acknowledged update, so that lost ones are known (see `cloud.update_ledger`)."""
    failures: int = 0
    """Failures in a row after which a device is set aside (see `gateway.conduct`); 0: never, since simulated devices
    behave well."""
    overdue_factor: float = float("inf")
    """A job that takes more than this many times its device's round latency no longer counts as a load, although its
    device has more time to answer. The traffic itself is held to B_j by the transport."""
    overdue_floor: float = 2.0
    """The least number of seconds before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    number: int
    model_bytes: int
    """M: mean size of a model on the way down and up, for the rate R_ij = M / tau_ij that a job takes."""
    gradient_size: int
    """Numbers of a model that are trained. They come first; the others are running statistics."""
    bandwidth: float = float("inf")
    """B_j, bytes per second."""
    seed: int = 0
    """Seed of the selection policy."""

    epochs: int = 20
    """Z: updates mixed (or periods, or buffers, or rounds) before an upload."""
    mixing_weight: float = 0.9
    """beta."""
    drag: float = 1.0
    staleness: StalenessDiscount = field(default_factory=StalenessDiscount)
    staleness_clock: Literal["both", "gateway"] = "both"
    """Epochs that count towards the staleness of an update: of gateway and cloud, or of the gateway alone."""
    max_staleness: int | None = None
    """None: max(200, 100 x associated devices)."""
    in_flight: Literal["carry", "discard"] = "carry"
    """carry: jobs in flight at an upload continue in the next cycle. discard: they end."""
    during_upload: Literal["wait", "continue"] = "wait"
    """wait: no device is triggered, and nothing aggregated, until an upload is answered. continue: the next cycle
    begins at once, and the answer is adopted within it."""
    period: float = 100.0
    """P, the length of a semi-asynchronous period, in seconds."""
    period_share: float = 0.0
    """The length of a period as a share of the reference latency that the cloud tells; 0: `period` applies."""
    refill: Literal["period", "immediate"] = "period"
    """Devices are triggered when a period begins, or whenever one is idle and the bandwidth allows it."""
    max_change: float = float("inf")
    """The most that one update may change a model, in medians of what devices change (see `gateway.change_bound`)."""
    weighting: Literal["period", "share"] = "period"
    """Weights of the updates of a period: their shares of its samples, or of the samples of all associated devices."""
    gain: float = 1.5
    """g, with weighting = share."""
    round_patience: float = 3.0
    """A synchronous round closes after this many times the round latency of its slowest device."""
    round_deadline: float = float("inf")
    """A synchronous round closes after this many seconds; 0: after the reference latency that the cloud tells."""
    over_selection: float = 1.0
    """A synchronous round closes when one in so many of its devices has answered."""
    participation: float = 0.0
    """The participants of a synchronous round as a share of all devices; 0: as many as the bandwidth allows."""

    buffer_share: float = 0.0
    """K, the updates that make a model where gateways have a buffer, as a share of all devices."""

    patience_floor: float = 60.0
    patience_factor: float = 5.0
    """A device times out after the larger of the floor (seconds) and the factor times its round latency."""
    cycle_patience: float = 600.0
    """Seconds without any device to trigger after which an incomplete cycle is uploaded."""
    reply_patience: float = 120.0
    """Seconds without an answer after which an upload is sent again."""

    latency_exponent: float = 1.0
    """kappa."""
    utility_scale: UtilityScale = "minmax"
    utility_floor: float = 0.1
    min_participation: float = 0.0
    """The least share of its time for which each device takes part; 0: no guarantee."""
    gradient: GradientKind = "none"
    learning_rate: float = 0.01
    """gamma of the devices, for gradients computed from the weights."""
    share_gradients: bool = True
    """True if gradients are sent to the cloud, because its association policy uses them."""
    sketch: CountSketch | None = None
    """The projection of the gradients with compression = sketch."""
    codec: ModelCodec = PLAIN_MODELS

    deployment: GatewayDeployment = GatewayDeployment()
    robust: Robust = Robust()
    privacy: Privacy = Privacy()

    def gradient_table(self, slots: int) -> GradientTable:
        return _table(slots, self.gradient_size, self.sketch, kept=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRules:
    """Conditions for the start of a run and timeouts of gateways, if nodes join at run time (in a deployment)."""

    start_devices: int = 0
    """Number of devices that must have joined before the run starts; 0: all nodes exist from the beginning."""
    start_gateways: int = 0
    """Number of gateways that must have joined before the run starts."""
    start_patience: float = 0.0
    """Seconds after which the run starts with the nodes that have joined so far."""
    gateway_patience: float = 0.0
    """Seconds that a gateway may be without a session before its devices are reassigned; 0: it is lost at once."""
    lost_patience: float = 0.0
    """Seconds after that until its updates are recorded as lost."""
    bandwidth_share: float = 0.0
    """B_j as a share of the demand measured in the warm-up; 0: `CloudConfig.bandwidth` applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudConfig:
    gateways: int
    epochs: int
    """H: the number of cloud epochs in a run."""
    target: Target
    bandwidth: tuple[float, ...]
    """B_j of every gateway, or a single number for all of them."""
    model_bytes: int
    gradient: GradientKind
    gradient_size: int
    seed: int
    epochs_after_target: int = 0
    """Evaluations for which a run continues after it has reached its target."""
    mixing_weight: float = 0.9
    """alpha."""
    momentum: float = 0.0
    """mu, of averages."""
    adam: ServerAdam | None = None
    """Adam in place of momentum."""
    staleness: StalenessDiscount = field(default_factory=StalenessDiscount)
    max_staleness: int = 50
    delivery: Literal["reply", "broadcast"] = "reply"
    reference_quantile: float = 0.0
    """The quantile of all round latencies that gateways are told; 0: they need none."""
    tier_rounds: int = 0
    """The number of rounds for which a tier of devices is drawn at each cloud epoch; 0: gateways use no tiers."""
    tier_deadline: float = 0.0
    """T_max, beyond which devices are in no tier, in seconds; 0: the reference latency."""
    evaluate_every: int = 1
    """Without a grid: cloud epochs between two evaluations."""
    warmup: bool = False
    warmup_quorum: float = 0.5
    warmup_patience: float = 0.0
    warmup_limit: float = 3600.0
    association_period: int = 1
    association_patience: float = 60.0
    """Seconds from the first device without a working gateway until the association is solved again."""
    load_penalty: float = 0.1
    """phi."""
    every_device: bool = True
    switching_cost: float = 0.0
    utility_scale: Literal["mean", "raw"] = "mean"
    max_latency_ratio: float = float("inf")
    """A link slower than this many times the device's best link is not used."""
    sketch: CountSketch | None = None
    codec: ModelCodec = PLAIN_MODELS
    demand_model_bytes: int = 0
    """Size of a model, usually as float32, to which B_j as a share of the demand refers; 0: `model_bytes`."""
    components: int = 0
    """Components of the projection that is fitted to the warm-up gradients; 0: no projection."""
    evaluating_devices: int = 0
    """Devices that evaluate a model where the cloud has no test set; 0: the cloud evaluates."""
    device_evaluation_period: int = 1
    """Cloud epochs between evaluations by devices."""
    device_evaluation_timeout: float = 60.0
    evaluation_grid: float = 0.0
    """Seconds between the times at which a changed model is evaluated; 0: after every `evaluate_every` epochs."""
    time_limit: float = float("inf")
    """Seconds after which a run ends, whatever the number of its epochs."""
    membership: MembershipRules = field(default_factory=MembershipRules)

    def gradient_table(self, slots: int) -> GradientTable:
        return _table(slots, self.gradient_size, self.sketch, kept=False)


def _table(slots: int, size: int, sketch: CountSketch | None, *, kept: bool) -> GradientTable:
    size = size if sketch is None else sketch.size
    return GradientTable.empty(slots, size, compressed=sketch is not None, keep_sum=kept)
