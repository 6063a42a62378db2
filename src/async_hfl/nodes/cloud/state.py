"""Everything the cloud remembers, as plain mutable data owned by one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.learner import Evaluation
from async_hfl.core.maths.projection import CountSketch, PcaProjection
from async_hfl.core.maths.targets import TargetProgress
from async_hfl.core.protocol.messages import Lease, Outcome
from async_hfl.core.serialization import plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.core.weights import Weights
from async_hfl.nodes.update_ledger import Account

CloudPhase = Literal["new", "warmup", "running", "over"]


@plain
@dataclass(slots=True)
class Membership:
    """One gateway as the cloud sees it."""

    incarnation: int
    live: bool = True
    suspended: bool = False
    """It stayed away for so long that its devices were given to others; what it has is welcome whenever it is back."""
    revoked: tuple[Lease, ...] = ()
    """The rights that it does not know to have lost."""
    away: bool = False
    """Its session is broken; it may be back in a moment."""
    fenced: set[int] = field(default_factory=set)
    """Incarnations that were declared lost: whoever still speaks as one of them is told to begin anew."""
    begun: bool = False
    """It was sent its first global model."""
    newest_sent: int = 0
    """Epoch of the newest global model that it was sent."""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """By upload number: those that may still be repeated."""
    pending: set[int] = field(default_factory=set)
    """Uploads that the aggregation holds and has not decided on: a repeat of one is no news."""
    answered_below: int = 0
    """The gateway has the answers to all lower numbers: a copy that turns up now is only late."""


@plain
@dataclass(slots=True)
class Directory:
    """What the cloud knows of devices and links, and who may trigger whom."""

    latency: Floats
    """Per link."""
    measured: npt.NDArray[np.bool_]
    usable: npt.NDArray[np.bool_]
    """J_t per link: not reported lost."""
    samples: Ints
    loss: Floats
    squared_loss: Floats
    gateway_of: Ints
    """The association; -1 for none."""
    holder: Ints
    """The gateway that holds the right to a device; -1 while nobody does."""
    lease: Ints
    """Number of the last right given, per device."""
    has_basis: npt.NDArray[np.bool_]
    """Per device: it was sent what it projects its gradients with."""
    gradients: GradientTable | None = None
    projection: PcaProjection | CountSketch | None = None
    reported: dict[int, int] = field(default_factory=dict)
    """By link: number of the newest report on it."""
    version: int = 0
    bandwidth: float = 0.0
    """B_j of all gateways, once it is fixed as a share of the demand seen; 0: the config say it."""


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
class Assessment:
    """An evaluation by devices that is not closed yet."""

    asked: set[int]
    due: float
    answers: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By device: metric and loss; NaN from one that has nothing to judge by."""


@plain
@dataclass(slots=True)
class CloudState:
    weights: Weights
    members: list[Membership]
    directory: Directory
    phase: CloudPhase = "new"
    epoch: int = 0
    """h: uploads mixed."""
    updates: int = 0
    """Device updates inside the global model."""
    warmup: WarmUpState = field(default_factory=WarmUpState)
    progress: TargetProgress = field(default_factory=TargetProgress)
    evaluations_after_target: int = 0
    awaiting: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Evaluations asked for and not yet counted: epoch -> device updates inside that model, when it was made."""
    evaluated: dict[int, Evaluation] = field(default_factory=dict)
    """Answers that came before that of an earlier epoch."""
    solves: int = 0
    solving: bool = False
    solve_again: bool = False
    """Something changed while a solution was being computed."""
    solve_at: float = float("inf")
    """When to solve for those without a working gateway."""
    revisited_epoch: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    accounts: dict[tuple[int, int], Account] = field(default_factory=dict)
    """By (gateway, incarnation), where accounts are kept."""
    links: FeasibleLinks | None = None
    """Where devices join at run time: the links so far; None: as the node was made."""
    start_due: bool = False
    """The patience to wait for more devices is over."""
    assessments: dict[int, Assessment] = field(default_factory=dict)
    """By cloud epoch."""
    gone: dict[int, float] = field(default_factory=dict)
    """Gateways without a session, and when each is suspended."""
    suspended: dict[int, float] = field(default_factory=dict)
    """Gateways that are, and when what each has is listed as lost."""
