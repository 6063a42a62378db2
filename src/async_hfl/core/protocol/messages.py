"""The messages between nodes. All are frozen plain data; nothing is pickled.

The four unions at the end list which messages each tier sends to which; a deployment refuses any other.
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
"""One row per component, as long as a model."""
DropReason = Literal["device_lost", "superseded"]


@plain
@dataclass(frozen=True, slots=True)
class Lease:
    """The right to trigger a device. One gateway holds it at a time. `number` grows per device, so an old lease that
    arrives late is recognised; `version` is the association that the lease belongs to."""

    device: int
    number: int
    version: int


@plain
@dataclass(frozen=True, slots=True)
class DeviceKnowledge:
    """The knowledge of a gateway or the cloud about a device on one link."""

    device: int
    round_latency: float
    measured: bool
    """False if the latency is a prior."""
    samples: int
    loss: float
    """NaN if the device has never reported it, like squared_loss."""
    squared_loss: float
    gradient: Gradient | None = None
    compressed: bool = False
    """The gradient is projected."""
    has_basis: bool = False
    """The device has the basis for projecting its gradient."""


@plain
@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an upload."""

    accepted: bool
    """False if it was dropped for its staleness; it is answered all the same."""
    staleness: int
    weight: float


@plain
@dataclass(frozen=True, slots=True)
class WarmUp:
    """Asks a gateway to let each of these devices train once from the initial model, outside the bandwidth limit."""

    incarnation: int
    """Incarnation of the gateway that it is meant for, as in all messages that grant leases."""
    weights: Weights
    leases: tuple[Lease, ...]
    knowledge: tuple[DeviceKnowledge, ...]


@plain
@dataclass(frozen=True, slots=True)
class GlobalModel:
    """The newest global model. The first one starts a gateway's first cycle; later ones (broadcast) are only stored."""

    epoch: int
    weights: Weights
    basis: Basis | None = None
    """The basis for projecting gradients (compression = pca); only in the first one."""
    bandwidth: float = 0.0
    """B_j, if it was derived from the warm-up; only in the first one. 0 leaves the gateway's value."""


@plain
@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an upload: the newest global model. `epoch` is at least the epoch that the upload created."""

    upload: UploadId
    epoch: int
    weights: Weights
    outcome: Outcome


@plain
@dataclass(frozen=True, slots=True)
class UploadHeld:
    """The receipt of an upload that will be answered together with those of the other gateways."""

    upload: UploadId


@plain
@dataclass(frozen=True, slots=True)
class Assignment:
    """All devices of a gateway from this version on, and the leases that it is granted."""

    incarnation: int
    version: int
    devices: tuple[int, ...]
    leases: tuple[Lease, ...]
    knowledge: tuple[DeviceKnowledge, ...]
    """Knowledge about the devices whose leases are granted here."""


@plain
@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """Grants the lease of a device that its former gateway released, with the knowledge about the device."""

    incarnation: int
    lease: Lease
    knowledge: DeviceKnowledge


@plain
@dataclass(frozen=True, slots=True)
class Finish:
    """Ends the run."""

    epoch: int
    outcomes: tuple[tuple[int, Outcome], ...] = ()
    """Outcomes of the gateway's uploads by number: their answers may not have arrived."""
    model: str = ""
    """Digest of the final model; nodes that return later are told it."""


@plain
@dataclass(frozen=True, slots=True)
class Fenced:
    """Tells a gateway that this incarnation was declared lost and its devices reassigned: restart as a new one."""

    incarnation: int
    outcomes: tuple[tuple[int, Outcome], ...] = ()


@plain
@dataclass(frozen=True, slots=True)
class LeasesRevoked:
    """Tells a gateway that was away that these leases were granted to others meanwhile. Its model and the updates that
    it holds stay valid."""

    incarnation: int
    leases: tuple[Lease, ...]


@plain
@dataclass(frozen=True, slots=True)
class Refused:
    """The cloud cannot work with this gateway, for example after losing its own state: stop and inform the operator."""

    reason: str


@plain
@dataclass(frozen=True, slots=True)
class Hello:
    """Sent by a gateway that joins or returns."""

    incarnation: int


@plain
@dataclass(frozen=True, slots=True)
class Upload:
    """A gateway's model, and what it learnt about its devices since the last upload."""

    upload: UploadId
    weights: Weights
    base_epoch: int
    """tau: the cloud epoch of the model that the cycle (with relay, the device's training) started from."""
    updates: int
    samples: int
    early: bool
    answered_below: int
    """All uploads of this incarnation with a lower number have been answered: the cloud may forget them."""
    knowledge: tuple[DeviceKnowledge, ...]
    jobs: tuple[int, ...] = ()
    """Jobs of this incarnation whose updates are settled by this upload, if a ledger of updates is kept."""


@plain
@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """Returns the lease of a device that is no longer assigned to this gateway."""

    lease: Lease
    knowledge: DeviceKnowledge
    warmup: bool
    """The device has answered its warm-up job."""


@plain
@dataclass(frozen=True, slots=True)
class Report:
    """News between uploads: warm-up answers, and links lost and recovered (this is how J_t is observed).

    Messages may overtake each other: `number` grows within an incarnation, so outdated news of a link is recognised."""

    incarnation: int
    number: int
    answered_warmup: tuple[DeviceKnowledge, ...] = ()
    lost: tuple[int, ...] = ()
    heard: tuple[int, ...] = ()


@plain
@dataclass(frozen=True, slots=True)
class Train:
    """Asks a device to train from this model."""

    job: JobId
    weights: Weights
    gateway_epoch: int
    """zeta."""
    base_epoch: int
    version: int
    """Version of the gateway's association; a device obeys the highest version it has seen."""
    basis: Basis | None = None
    """Sent to a device that reports its gradient and does not have the basis yet."""
    warmup: bool = False
    """The result is not aggregated."""
    settled: tuple[int, ...] = ()
    """Earlier jobs of this device at this gateway whose updates the cloud has settled."""


@plain
@dataclass(frozen=True, slots=True)
class Probe:
    """Asks a device whether it is there."""


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
    """Reports that a job will have no result."""

    job: JobId
    reason: DropReason
    version: int
    """The highest association version that the device has seen; if it is higher than the gateway's own, the device has
    moved."""


@plain
@dataclass(frozen=True, slots=True)
class Alive:
    """The answer to a probe, also sent by a device that returns."""


@plain
@dataclass(frozen=True, slots=True)
class Unsettled:
    """Updates of a device that were acknowledged, and of which it does not know that the cloud has settled them."""

    device: int | None
    """Filled in by the gateway that forwards it."""
    jobs: tuple[JobId, ...]


@plain
@dataclass(frozen=True, slots=True)
class SettledAck:
    """Tells a device that the cloud keeps track of these updates."""

    device: int
    jobs: tuple[JobId, ...]


@plain
@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """Asks devices to evaluate a model on samples of their own; gateways forward it to each of their devices."""

    epoch: int
    weights: Weights
    devices: tuple[int, ...] = ()
    """The devices to ask; empty on the way to a device."""


@plain
@dataclass(frozen=True, slots=True)
class EvaluateResult:
    """A device's evaluation, forwarded by its gateway."""

    epoch: int
    metric: float
    """NaN if the device has no samples for evaluation, like loss."""
    loss: float
    device: int | None = None
    """Filled in by the gateway that forwards it."""


CloudToGateway = (
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
GatewayToCloud = Hello | Upload | LeaseReleased | Report | Unsettled | EvaluateResult
GatewayToDevice = Train | Probe | SettledAck | EvaluateRequest
DeviceToGateway = Update | JobDropped | Alive | Unsettled | EvaluateResult
Message = CloudToGateway | GatewayToCloud | GatewayToDevice | DeviceToGateway
