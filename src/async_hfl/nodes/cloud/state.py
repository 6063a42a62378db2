"""Everything the cloud remembers, as plain mutable data owned by one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.learner import Evaluation
from async_hfl.core.maths.projection import CountSketch, PcaProjection
from async_hfl.core.maths.targets import TargetProgress
from async_hfl.core.protocol.messages import Lease, Outcome
from async_hfl.core.serialization import plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.core.weights import Weights
from async_hfl.nodes.reliability.number_set import NumberSet

NEVER = float("inf")
CloudPhase = Literal["new", "warmup", "running", "over"]


@plain
@dataclass(slots=True)
class Membership:
    """One gateway as the cloud sees it."""

    incarnation: int
    live: bool = True
    suspended: bool = False
    """Absent for so long that its devices were given to other gateways; what it brings later is still accepted."""
    revoked: tuple[Lease, ...] = ()
    """Leases that it lost while it was absent and has not been told about."""
    away: bool = False
    """Its session is broken; it may reconnect at any moment."""
    fenced: set[int] = field(default_factory=set)
    """Incarnations that were declared lost. A message from one of them is answered with an order to start afresh."""
    begun: bool = False
    """It was sent its first global model."""
    newest_sent: int = 0
    """Epoch of the newest global model that it was sent."""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """Outcomes of the uploads that may still be resent, by upload number."""
    pending: set[int] = field(default_factory=set)
    """Numbers of uploads that the aggregation rule holds undecided: a repeat of one of them is not news."""
    answered_below: int = 0
    """The gateway has the answers to all lower upload numbers: a copy of one of those is a late duplicate."""


@plain
@dataclass(slots=True)
class AssociationState:
    """The cloud's knowledge of devices and links, the association, and the leases."""

    latency: Floats
    """Round latency tau_ij by link."""
    measured: Bools
    usable: Bools
    """J_t by link: False once the link was reported lost."""
    samples: Ints
    loss: Floats
    squared_loss: Floats
    gateway_of: Ints
    """The association: each device's gateway, -1 for none."""
    holder: Ints
    """The gateway that holds the lease of a device, -1 for none."""
    lease: Ints
    """Number of the last lease granted, by device."""
    has_basis: Bools
    """True for devices that were sent the basis that they project their gradients on."""
    gradients: GradientTable | None = None
    projection: PcaProjection | CountSketch | None = None
    reported: dict[int, int] = field(default_factory=dict)
    """Number of the newest report by link."""
    version: int = 0
    bandwidth: float = 0.0
    """B_j of all gateways, once it is fixed as a share of the demand; 0: the configuration gives it."""

    @classmethod
    def empty(
        cls, links: FeasibleLinks, samples: Ints, gradients: GradientTable | None, projection: CountSketch | None
    ) -> AssociationState:
        """Return the state before anything is known but the links and the devices' sample counts."""
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
        """Insert a link at its place among the others, and make room for so many devices."""
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
    """An evaluation by devices that is not closed yet."""

    asked: set[int]
    due: float
    answers: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Metric and loss by device; NaN from a device that has no samples to evaluate on."""


@plain
@dataclass(slots=True)
class UpdateLedger:
    """The updates that one incarnation of a gateway has acknowledged, as far as the cloud knows."""

    decided: NumberSet = field(default_factory=NumberSet)
    """Jobs that came with an upload that was mixed or dropped."""
    claims: dict[int, int] = field(default_factory=dict)
    """Jobs that a device reported and that are not decided yet, with their device."""
    lost: bool = False
    listed: dict[int, int] = field(default_factory=dict)
    """Claims that were recorded as lost."""


@plain
@dataclass(slots=True)
class CloudState:
    weights: Weights
    members: list[Membership]
    association: AssociationState
    phase: CloudPhase = "new"
    epoch: int = 0
    """h: uploads mixed."""
    updates: int = 0
    """Device updates inside the global model."""
    warmup: WarmUpState = field(default_factory=WarmUpState)
    progress: TargetProgress = field(default_factory=TargetProgress)
    evaluations_after_target: int = 0
    awaiting: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Evaluations requested and not yet counted: epoch -> device updates inside that model, when it was made."""
    evaluated: dict[int, Evaluation] = field(default_factory=dict)
    """Evaluations that arrived before that of an earlier epoch."""
    solves: int = 0
    solving: bool = False
    solve_again: bool = False
    """Something changed while a solution was being computed."""
    solve_at: float = NEVER
    """When to solve the association for devices that have no working gateway."""
    revisited_epoch: int = 0
    """Cloud epoch of the last periodic association."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the association policy asked to remember."""
    ledgers: dict[tuple[int, int], UpdateLedger] = field(default_factory=dict)
    """By (gateway, incarnation)."""
    links: FeasibleLinks | None = None
    """The links so far, where devices join at run time; None: as the node was made."""
    start_due: bool = False
    """The time to wait for more devices is over."""
    device_evaluations: dict[int, DeviceEvaluation] = field(default_factory=dict)
    """By cloud epoch."""
    suspend_at: dict[int, float] = field(default_factory=dict)
    """Gateways without a session, and when each is suspended."""
    declare_lost_at: dict[int, float] = field(default_factory=dict)
    """Suspended gateways, and when the updates that each holds are recorded as lost."""
