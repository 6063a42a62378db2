"""What nodes say to each other. All frozen, all plain data, none of it Python objects that need unpickling.

cloud -> gateway   WarmUp, GlobalModel, Answer, UploadHeld, Assignment, Granted, Finish, Fenced, Revoked, Refused,
                   Noted, Assess
gateway -> cloud   Hello, Upload, Released, Report, Unsettled, Assessed
gateway -> device  Train, Probe, Noted, Assess
device -> gateway  Update, JobDropped, Alive, Unsettled, Assessed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.serialization import plain
from async_hfl.core.vectors import Vector
from async_hfl.core.weights import Weights

Gradient: TypeAlias = Vector
Basis: TypeAlias = npt.NDArray[np.float32]
"""A row per component; as many rows as models."""
DropReason = Literal["device_lost", "superseded"]


@plain
@dataclass(frozen=True, slots=True)
class Lease:
    """The right to trigger a device. One gateway holds it at a time; `number` grows per device, so an old right that
    turns up late is recognised; `version` is the association that it belongs to."""

    device: int
    number: int
    version: int


@plain
@dataclass(frozen=True, slots=True)
class DeviceKnowledge:
    """What is known of a device on one link."""

    device: int
    round_latency: float
    measured: bool
    """False: a prior."""
    samples: int
    loss: float
    """NaN where never heard, like squared_loss."""
    squared_loss: float
    gradient: Gradient | None = None
    compressed: bool = False
    """The gradient is projected."""
    has_basis: bool = False
    """The device was sent the basis to project with."""


@plain
@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an upload."""

    accepted: bool
    """False: beyond the staleness bound, dropped, answered all the same."""
    staleness: int
    weight: float


@plain
@dataclass(frozen=True, slots=True)
class WarmUp:
    """Let each of these devices train once from the initial model, outside the bandwidth limit."""

    incarnation: int
    """Of the gateway that it is meant for, as in all messages that grant rights."""
    weights: Weights
    leases: tuple[Lease, ...]
    knowledge: tuple[DeviceKnowledge, ...]


@plain
@dataclass(frozen=True, slots=True)
class GlobalModel:
    """The newest global model: begins a gateway's first cycle; later (delivery = broadcast) only stored."""

    epoch: int
    weights: Weights
    basis: Basis | None = None
    """With the first one: what gradients are projected with from now on (compression = pca)."""
    bandwidth: float = 0.0
    """With the first one: B_j, where it was fixed by what warm-up showed; 0: as the gateway was told before."""


@plain
@dataclass(frozen=True, slots=True)
class Answer:
    """To one upload: the newest global model. `epoch` is at least the epoch that the upload made."""

    upload: UploadId
    epoch: int
    weights: Weights
    outcome: Outcome


@plain
@dataclass(frozen=True, slots=True)
class UploadHeld:
    """To one upload: it is here, and will be answered when those of the other gateways are."""

    upload: UploadId


@plain
@dataclass(frozen=True, slots=True)
class Assignment:
    """The devices of a gateway from this version on (all of them), and the rights that come with it."""

    incarnation: int
    version: int
    devices: tuple[int, ...]
    leases: tuple[Lease, ...]
    knowledge: tuple[DeviceKnowledge, ...]
    """Of the devices granted here."""


@plain
@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """The former holder released a device: it is yours now, with what was learnt of it."""

    incarnation: int
    lease: Lease
    knowledge: DeviceKnowledge


@plain
@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over: end what is open."""

    epoch: int
    outcomes: tuple[tuple[int, Outcome], ...] = ()
    """Of the gateway's uploads that were decided, by number: their answers may not have arrived."""
    model: str = ""
    """Digest of the final model: who comes back later is told it."""


@plain
@dataclass(frozen=True, slots=True)
class Fenced:
    """The cloud had declared this incarnation lost and gave its devices away: begin anew as another."""

    incarnation: int
    outcomes: tuple[tuple[int, Outcome], ...] = ()


@plain
@dataclass(frozen=True, slots=True)
class LeasesRevoked:
    """A gateway stayed away for a while and is back: these rights were given to others meanwhile. What it holds and has
    mixed is as good as ever."""

    incarnation: int
    leases: tuple[Lease, ...]


@plain
@dataclass(frozen=True, slots=True)
class Refused:
    """The cloud cannot work with this gateway (it lost its own state, say): stop and tell a person."""

    reason: str


@plain
@dataclass(frozen=True, slots=True)
class Hello:
    """A gateway (re)joins."""

    incarnation: int


@plain
@dataclass(frozen=True, slots=True)
class Upload:
    """A gateway's model, and what it learnt of its devices since the last one."""

    upload: UploadId
    weights: Weights
    base_epoch: int
    """tau: the cloud epoch of the model that the cycle (relay: the device's training) began from."""
    updates: int
    samples: int
    early: bool
    answered_below: int
    """Every upload of this incarnation with a lower number has been answered: the cloud may forget them."""
    knowledge: tuple[DeviceKnowledge, ...]
    jobs: tuple[int, ...] = ()
    """Where accounts are kept: jobs of this incarnation whose updates are over with this upload."""


@plain
@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """This gateway gives up the right to trigger a device that is no longer its own."""

    lease: Lease
    knowledge: DeviceKnowledge
    warmup: bool
    """The device has answered its warm-up job."""


@plain
@dataclass(frozen=True, slots=True)
class Report:
    """News between uploads: warm-up answers; links lost and heard again (this is how J_t is observed).

    Messages overtake each other: `number` grows within an incarnation, so that old news of a link is known as old."""

    incarnation: int
    number: int
    answered_warmup: tuple[DeviceKnowledge, ...] = ()
    lost: tuple[int, ...] = ()
    heard: tuple[int, ...] = ()


@plain
@dataclass(frozen=True, slots=True)
class Train:
    """Train from this model and send the result back."""

    job: JobId
    weights: Weights
    gateway_epoch: int
    """zeta."""
    base_epoch: int
    version: int
    """Association that the gateway acts on; a device obeys the highest it has seen."""
    basis: Basis | None = None
    """For a device that sends its gradient and has not been given the basis yet."""
    warmup: bool = False
    """The weights that come back will not be mixed."""
    settled: tuple[int, ...] = ()
    """Earlier jobs of this device at this gateway whose updates the cloud has decided on."""


@plain
@dataclass(frozen=True, slots=True)
class Probe:
    """Are you there?"""


@plain
@dataclass(frozen=True, slots=True)
class Update:
    """A device's trained model."""

    job: JobId
    weights: Weights
    samples: int
    steps: int
    loss: float
    squared_loss: float
    gradient: Gradient | None
    download_s: float
    training_s: float
    compressed: bool = False
    """The gradient is projected."""
    warmup: bool = False


@plain
@dataclass(frozen=True, slots=True)
class JobDropped:
    """There will be no result of this job."""

    job: JobId
    reason: DropReason
    version: int
    """The highest association version the device has seen: a gateway that hears a higher one than its own knows that
    the device has moved."""


@plain
@dataclass(frozen=True, slots=True)
class Alive:
    """A device answers a probe, or says by itself that it is back."""


@plain
@dataclass(frozen=True, slots=True)
class Unsettled:
    """A device's updates that were acknowledged and that it does not know to be decided on at the cloud."""

    device: int | None
    """Filled in by the gateway that passes it on, which knows who spoke."""
    jobs: tuple[JobId, ...]


@plain
@dataclass(frozen=True, slots=True)
class SettledAck:
    """To a device: the cloud looks after these."""

    device: int
    jobs: tuple[JobId, ...]


@plain
@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """How good is this model on samples that these devices hold? Gateways pass it on to each of theirs."""

    epoch: int
    weights: Weights
    devices: tuple[int, ...] = ()
    """Whom to ask; empty on the way to a device."""


@plain
@dataclass(frozen=True, slots=True)
class EvaluateResult:
    """A device's answer, and a gateway's who passes it on."""

    epoch: int
    metric: float
    """NaN where it has nothing to judge by, like loss."""
    loss: float
    device: int | None = None
    """Who it was; None on the way to a gateway, which knows."""


CloudMessage = (
    WarmUp
    | GlobalModel
    | Answer
    | UploadHeld
    | Assignment
    | LeaseGranted
    | Finish
    | Fenced
    | LeasesRevoked
    | Refused
    | SettledAck
    | EvaluateRequest
)
GatewayMessage = Hello | Upload | LeaseReleased | Report | Train | Probe
DeviceMessage = Update | JobDropped | Alive | Unsettled | EvaluateResult
Message = CloudMessage | GatewayMessage | DeviceMessage
