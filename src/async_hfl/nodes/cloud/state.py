"""The state of the cloud: plain mutable data, owned by one node and stored in its snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.compression.model_codec import Model
from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.learner import Evaluation
from async_hfl.core.maths.latency_tiers import TierDraws
from async_hfl.core.maths.projection import CountSketch, PcaProjection
from async_hfl.core.maths.targets import TargetProgress
from async_hfl.core.protocol.messages import Lease, Outcome
from async_hfl.core.serialization import plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.core.weights import Weights
from async_hfl.nodes.reliability.number_set import NumberSet

NEVER = float("inf")
CloudPhase = Literal["new", "warmup", "running", "over"]
"""new: waiting for nodes to join. warmup: every device trains once. running: uploads are aggregated. over: finished."""


@plain
@dataclass(slots=True)
class Membership:
    """The cloud's view of one gateway."""

    incarnation: int
    live: bool = True
    suspended: bool = False
    """True if it has been away for so long that its devices were reassigned. Its uploads are still accepted later."""
    revoked: tuple[Lease, ...] = ()
    """Leases that were revoked when it was suspended. It is told when it returns."""
    away: bool = False
    """True if its session is broken; it may reconnect at any moment."""
    fenced: set[int] = field(default_factory=set)
    """Incarnations that were declared lost. A message from one of them is answered with `Fenced`."""
    begun: bool = False
    """True once it was sent its first global model."""
    newest_sent: int = 0
    """Epoch of the newest global model that it was sent."""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """Outcomes of the uploads that may still be resent, by upload number."""
    pending: set[int] = field(default_factory=set)
    """Numbers of uploads that the aggregation rule has received and not decided on."""
    answered_below: int = 0
    """The gateway has the answers to all lower upload numbers: an upload with such a number is a late duplicate."""
    bases: set[int] = field(default_factory=set)
    """Epochs of the models that its uploads may be changes of, if uploads are encoded."""


@plain
@dataclass(slots=True)
class AssociationState:
    """The cloud's knowledge of devices and links, the association, and the leases."""

    latency: Floats
    """Round latency tau_ij by link."""
    measured: Bools
    usable: Bools
    """J_t by link: False while the link is reported lost."""
    samples: Ints
    loss: Floats
    squared_loss: Floats
    gateway_of: Ints
    """The association: the gateway of each device, -1 for none."""
    holder: Ints
    """The gateway that holds each device's lease, -1 for none."""
    lease: Ints
    """Number of each device's last lease."""
    has_basis: Bools
    """True for devices that were sent the basis on which they project their gradients."""
    gradients: GradientTable | None = None
    projection: PcaProjection | CountSketch | None = None
    reported: dict[int, int] = field(default_factory=dict)
    """By link: number of the newest report about it."""
    version: int = 0
    bandwidth: float = 0.0
    """B_j of all gateways, once it is derived from the demand; 0: `CloudConfig.bandwidth` applies."""

    @classmethod
    def empty(
        cls, links: FeasibleLinks, samples: Ints, gradients: GradientTable | None, projection: CountSketch | None
    ) -> AssociationState:
        """Return the state of a new run."""
        devices, count = links.devices, len(links.link_device)
        return cls(
            latency=links.expected_latency.copy(),
            measured=np.zeros(count, bool),
            usable=np.ones(count, bool),
            samples=samples.copy(),
            loss=np.full(devices, np.nan),
            squared_loss=np.full(devices, np.nan),
            gateway_of=np.full(devices, -1, np.int64),
            holder=np.full(devices, -1, np.int64),
            lease=np.zeros(devices, np.int64),
            has_basis=np.zeros(devices, bool),
            gradients=gradients,
            projection=projection,
        )

    def add_link(self, place: int, latency: float, devices: int) -> None:
        """Insert a link at its place among the others, and extend the columns to this number of devices."""
        self.latency = np.insert(self.latency, place, latency)
        self.measured = np.insert(self.measured, place, False)
        self.usable = np.insert(self.usable, place, False)
        self.reported = {link + (link >= place): number for link, number in self.reported.items()}
        extra = devices - len(self.samples)
        if extra == 0:
            return
        empty = {"samples": 0, "loss": np.nan, "squared_loss": np.nan, "gateway_of": -1, "holder": -1, "lease": 0}
        for name, value in (empty | {"has_basis": False}).items():
            column = getattr(self, name)
            setattr(self, name, np.append(column, np.full(extra, value, column.dtype)))
        if self.gradients is not None:
            self.gradients.grow(devices)
            self.gradients.counted[-extra:] = True


@plain
@dataclass(slots=True)
class WarmUpState:
    started_at: float = 0.0
    outstanding: set[int] = field(default_factory=set)
    answered: int = 0
    total: int = 0
    given_up: int = 0


@plain
@dataclass(slots=True)
class DeviceEvaluation:
    """An evaluation by devices that is in progress."""

    asked: set[int]
    due: float
    answers: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Metric and loss by device; NaN from a device without test samples."""


@plain
@dataclass(slots=True)
class EvaluationState:
    epoch: int = -1
    """Epoch of the newest model whose evaluation was begun; -1: none."""
    at: float = -NEVER
    """Time at which that evaluation was begun."""
    due: float = NEVER
    """Point of the grid at which the next evaluation begins; infinity if the model has not changed."""
    ending: bool = False
    """True if the current model is the last one, although fewer than H were made."""


@plain
@dataclass(slots=True)
class UpdateLedger:
    """The updates that one incarnation of a gateway has acknowledged, as far as the cloud knows; jobs by number."""

    decided: NumberSet = field(default_factory=NumberSet)
    """Jobs named in an upload that the cloud has decided on."""
    claims: dict[int, int] = field(default_factory=dict)
    """Undecided jobs that a device has reported (`Unsettled`), with their device."""
    lost: bool = False
    """True if the incarnation was declared lost."""
    listed: dict[int, int] = field(default_factory=dict)
    """Jobs recorded as lost, with their device."""


@plain
@dataclass(slots=True)
class CloudState:
    weights: Weights
    members: list[Membership]
    association: AssociationState
    phase: CloudPhase = "new"
    epoch: int = 0
    """h, the number of global models made."""
    updates: int = 0
    """Number of device updates in the global model."""
    warmup: WarmUpState = field(default_factory=WarmUpState)
    progress: TargetProgress = field(default_factory=TargetProgress)
    evaluations_after_target: int = 0
    awaiting: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By epoch, models whose evaluation is in progress: number of device updates in the model, time it was made."""
    evaluated: dict[int, Evaluation] = field(default_factory=dict)
    """Evaluations that arrived before that of an earlier epoch."""
    solves: int = 0
    """Number of association problems posed."""
    solving: bool = False
    solve_again: bool = False
    """True if another solution was requested while one was being computed."""
    solve_at: float = NEVER
    """Time at which the association is solved again for devices without a working gateway."""
    revisited_epoch: int = 0
    """Cloud epoch of the last periodic association."""
    memory: dict[str, Any] = field(default_factory=dict)
    """The association policy's memory."""
    ledgers: dict[tuple[int, int], UpdateLedger] = field(default_factory=dict)
    """By (gateway, incarnation)."""
    links: FeasibleLinks | None = None
    """The links so far, if devices have joined at run time; None: those that the node was created with."""
    start_due: bool = False
    """True once the time to wait for more nodes is over."""
    device_evaluations: dict[int, DeviceEvaluation] = field(default_factory=dict)
    """By cloud epoch."""
    suspend_at: dict[int, float] = field(default_factory=dict)
    """By gateway without a session: the time at which it is suspended."""
    declare_lost_at: dict[int, float] = field(default_factory=dict)
    """By suspended gateway: the time at which its updates are recorded as lost."""
    encoded: Model | None = None
    """The global model as it is sent, once it is encoded."""
    bases: dict[int, Weights] = field(default_factory=dict)
    """By cloud epoch: the models, as the gateways have them, that uploads may be changes of."""
    reference_latency: float = 0.0
    """The quantile of the round latencies that gateways are told (see `reference_latency`); 0 if there is none."""
    tiers: TierDraws = field(default_factory=TierDraws)
    """The tiers that gateways are told (see `tier_draws`)."""
    evaluation: EvaluationState = field(default_factory=EvaluationState)
    outdated: set[int] = field(default_factory=set)
    """Gateways that have not been heard since the cloud was restored from an older copy."""
