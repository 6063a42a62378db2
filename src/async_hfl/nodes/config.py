"""The numbers a node lives by, resolved: no "auto", no shares, no units left to guess."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.maths.projection import CountSketch
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.maths.targets import Target
from async_hfl.core.maths.utility import UtilityScale

GradientKind = Literal["none", "last", "update"]
PROBE_FIRST_S = 60.0
PROBE_MOST_S = 3600.0


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    number: int
    bandwidth: float
    """B_j, bytes per second."""
    epochs: int
    """Z: updates mixed (or periods, or rounds) before an upload."""
    mixing_weight: float
    """beta."""
    drag: float
    staleness: StalenessDiscount
    max_staleness: int | None
    """None: max(200, 100 x associated devices)."""
    in_flight: Literal["carry", "discard"]
    carry_staleness: Literal["both", "gateway"]
    patience_floor: float
    patience_factor: float
    cycle_patience: float
    reply_patience: float
    model_bytes: int
    latency_exponent: float
    """kappa."""
    utility_scale: UtilityScale
    utility_floor: float
    gradient: GradientKind
    """none: no decider wants gradients, so none are kept or sent."""
    gradient_size: int
    learning_rate: float
    seed: int
    share_gradients: bool = True
    """The cloud wants them too, for the association; without that they stay here."""
    period: float = 100.0
    """P of semi-asynchronous periods, seconds."""
    round_patience: float = 3.0
    """A synchronous round closes after this many times what its slowest was expected to take."""
    min_participation: float = 0.0
    """The least share of its time that a device is to take part; 0: whatever the policy wants."""
    sketch: CountSketch | None = None
    """What gradients are compressed with, where nothing need be learnt for it."""
    cloud_patience: float = float("inf")
    """Seconds without a session to the cloud after which nothing new is triggered."""
    presence_patience: float = 15.0
    """Seconds after a restart within which the devices must be back that were there before."""
    accounts: bool = False
    """Tell cloud and devices which updates are over, so that losses are known by name (see accounts.py)."""

    def gradient_table(self, slots: int) -> GradientTable:
        return _table(slots, self.gradient_size, self.sketch, kept=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRules:
    """When a run starts and how long the cloud waits for gateways, where nodes join at run time (a deployment)."""

    start_devices: int = 0
    """The run starts once so many devices have joined; 0: all nodes are there from the beginning."""
    start_gateways: int = 0
    """The run starts once so many gateways have joined."""
    start_patience: float = 0.0
    """Seconds after which the run starts with the nodes that have joined so far."""
    gateway_patience: float = 0.0
    """Seconds that a gateway without a session may stay away before its devices are given to others; 0: none."""
    lost_patience: float = 0.0
    """Seconds after that until the updates that it holds are recorded as lost, unless it brings them later."""
    bandwidth_share: float = 0.0
    """B_j as a share of the demand that the warm-up showed; 0: `CloudConfig.bandwidth` gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudConfig:
    gateways: int
    epochs: int
    """H: the number of cloud epochs in a run."""
    target: Target
    bandwidth: tuple[float, ...]
    """B_j of every gateway; a single number holds for all of them."""
    model_bytes: int
    gradient: GradientKind
    gradient_size: int
    seed: int
    epochs_after_target: int = 0
    mixing_weight: float = 0.9
    """alpha."""
    staleness: StalenessDiscount = field(default_factory=StalenessDiscount)
    max_staleness: int = 50
    delivery: Literal["reply", "broadcast"] = "reply"
    evaluate_every: int = 1
    """Cloud epochs between evaluations: usually 1, or 20 where gateways relay single device updates."""
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
    components: int = 0
    """Components of the projection that is fitted to the warm-up gradients; 0: no projection."""
    evaluating_devices: int = 0
    """Devices that evaluate a model where the cloud has no test set; 0: the cloud evaluates."""
    device_evaluation_period: int = 1
    """Cloud epochs between evaluations by devices."""
    device_evaluation_timeout: float = 60.0
    membership: MembershipRules = field(default_factory=MembershipRules)

    def gradient_table(self, slots: int) -> GradientTable:
        return _table(slots, self.gradient_size, self.sketch, kept=False)


def _table(slots: int, size: int, sketch: CountSketch | None, *, kept: bool) -> GradientTable:
    if sketch is None:
        return GradientTable.empty(slots, size, kept=kept)
    return GradientTable.empty(slots, sketch.size, compressed=True, kept=kept)
