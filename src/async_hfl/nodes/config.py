"""The numbers a node lives by, resolved: no "auto", no shares, no units left to guess."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class CloudConfig:
    gateways: int
    epochs: int
    """H: the last one."""
    epochs_after_target: int
    mixing_weight: float
    """alpha."""
    staleness: StalenessDiscount
    max_staleness: int
    delivery: Literal["reply", "broadcast"]
    evaluate_every: int
    """Cloud epochs from one evaluation to the next: usually 1, or 20 where gateways relay single device updates."""
    warmup: bool
    warmup_quorum: float
    warmup_patience: float
    warmup_limit: float
    association_period: int
    load_penalty: float
    """phi."""
    every_device: bool
    switching_cost: float
    utility_scale: Literal["mean", "raw"]
    link_stretch: float
    bandwidth: tuple[float, ...]
    """B_j of every gateway; one number: of any that joins."""
    model_bytes: int
    gradient: GradientKind
    gradient_size: int
    target: Target
    seed: int
    sketch: CountSketch | None = None
    components: int = 0
    """Of the projection that is fitted to the warm-up gradients; 0: none is."""
    association_patience: float = 60.0
    """Seconds from the first device without a working gateway to the solution that finds all such ones another."""
    assessors: int = 0
    """Devices asked how good a model is, where the cloud cannot judge by itself; 0: it can."""
    assessment_period: int = 1
    """Evaluations that are due between two that devices are asked for."""
    assessment_patience: float = 60.0
    start_devices: int = 0
    """So many must have joined, through ..."""
    start_gateways: int = 0
    """... so many gateways, before the run begins; 0: everybody is there from the beginning."""
    start_patience: float = 0.0
    """After so many seconds it begins with whoever is there."""
    gateway_patience: float = 0.0
    """Seconds that a gateway whose session broke may stay away before its devices are given to others."""
    lost_patience: float = 0.0
    """Seconds from there on after which what it has is listed as lost, until it brings it after all."""
    bandwidth_share: float = 0.0
    """B_j as a share of the demand that the warm-up showed; 0: `bandwidth` says it."""

    def gradient_table(self, slots: int) -> GradientTable:
        return _table(slots, self.gradient_size, self.sketch, kept=False)


def _table(slots: int, size: int, sketch: CountSketch | None, *, kept: bool) -> GradientTable:
    if sketch is None:
        return GradientTable.empty(slots, size, keep_sum=kept)
    return GradientTable.empty(slots, sketch.size, compressed=True, keep_sum=kept)
