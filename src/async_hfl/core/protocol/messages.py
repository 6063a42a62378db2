"""Messages between the nodes: cloud, gateways and devices.

The messages of one cycle of a gateway, in order:

    cloud --Assignment--> gateway    its devices, and the leases that allow it to trigger them
    cloud --GlobalModel-> gateway    the model to start from
    gateway --Train-----> device     a model to train; gateway <--Update-- device, the trained model
    gateway --Upload----> cloud      the gateway's aggregated model
    cloud --Answer------> gateway    the newest global model, from which the next cycle starts

Models travel as the run's `ModelCodec` encodes them: `weights` are whole models on the way down, and changes on the way
up if updates are encoded.

Messages may overtake each other. Each one therefore says what it belongs to: a job, an upload, a version of the
association, or an incarnation of the gateway. A gateway that loses its state comes back as a new incarnation, and
messages of or for the old one are recognised.

The unions at the end list the messages that each tier may send to the next; a deployment rejects all others.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.compression.model_codec import Model
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.maths.latency_tiers import Tiers
from async_hfl.core.serialization import value

Basis: TypeAlias = npt.NDArray[np.float32]
"""One row per component, as long as a model."""
DropReason = Literal["device_lost", "superseded"]
MOST_SAMPLES = 10**9
"""The most samples that a device may have."""
MOST_UNSETTLED = 1024

# Parts of messages --------------------------------------------------------------------------------------------------


@value
class Lease:
    """The right to trigger a device. Only one gateway holds it at a time."""

    device: int
    number: int
    """Increases with every lease of the device, so that an outdated lease is recognised."""
    version: int
    """Version of the association under which the lease was granted."""


@value
class DeviceKnowledge:
    """Everything that a gateway or the cloud knows about a device and its link to one gateway."""

    device: int
    round_latency: float
    measured: bool
    """True if the latency was measured, False if it is an estimate."""
    samples: int
    loss: float
    """Like `squared_loss`, NaN until the device has reported one."""
    squared_loss: float
    gradient: Model | None = None
    compressed: bool = False
    """True if the gradient is a projection."""
    has_basis: bool = False
    """True if the device has the basis on which it projects its gradients."""


@value
class Outcome:
    """The cloud's decision on an upload."""

    accepted: bool
    """True if it was aggregated, False if it was too stale. It is answered in either case."""
    staleness: int
    weight: float
    """Mixing weight; 0 unless accepted."""


# From the cloud to a gateway ----------------------------------------------------------------------------------------


@value
class WarmUp:
    """Train each of these devices once from the initial model, regardless of the bandwidth limit."""

    incarnation: int
    """The incarnation of the gateway that the message is meant for, as in all messages about leases."""
    weights: Model
    leases: tuple[Lease, ...]
    knowledge: tuple[DeviceKnowledge, ...]


@value
class GlobalModel:
    """The newest global model. The first one starts a gateway's first cycle; later ones are broadcasts, which the
    gateway keeps for its next cycle."""

    epoch: int
    weights: Model
    basis: Basis | None = None
    """The basis on which gradients are projected (compression = pca); only in the first model."""
    bandwidth: float = 0.0
    """B_j if it was derived from the warm-up, otherwise 0; only in the first model."""
    reference_latency: float = 0.0
    """A quantile of the round latencies of all devices, if gateways derive times from it; otherwise 0."""
    tiers: Tiers | None = None
    """The tiers of devices and those drawn for the next cycle, if gateways select by tier."""


@value
class Answer:
    """The answer to an upload: the cloud's decision and the newest global model."""

    upload: UploadId
    epoch: int
    """The cloud epoch of the model: the epoch that the upload created, or a later one."""
    weights: Model
    outcome: Outcome
    reference_latency: float = 0.0
    tiers: Tiers | None = None
    """As in `GlobalModel`."""


@value
class UploadHeld:
    """Receipt for an upload that the cloud will answer later, when other gateways have uploaded too."""

    upload: UploadId


@value
class Assignment:
    """The devices of a gateway in a new version of the association, and leases for those that are available now."""

    incarnation: int
    version: int
    devices: tuple[int, ...]
    leases: tuple[Lease, ...]
    knowledge: tuple[DeviceKnowledge, ...]
    """Parallel to `leases`."""


@value
class LeaseGranted:
    """A lease that the device's former gateway has released."""

    incarnation: int
    lease: Lease
    knowledge: DeviceKnowledge


@value
class Finish:
    """The run is over."""

    epoch: int
    outcomes: tuple[tuple[int, Outcome], ...] = ()
    """(upload number, outcome) of the gateway's uploads whose answers may not have arrived."""
    model: str = ""
    """Digest of the final model."""


@value
class Fenced:
    """This incarnation of the gateway was declared lost and its devices were reassigned: restart as a new one."""

    incarnation: int
    outcomes: tuple[tuple[int, Outcome], ...] = ()


@value
class LeasesRevoked:
    """The gateway was away for so long that these leases were revoked. Its model and its updates are still valid."""

    incarnation: int
    leases: tuple[Lease, ...]


@value
class Refused:
    """The cloud cannot work with this gateway, for example because the cloud has lost its state: stop."""

    reason: str


# From a gateway to the cloud ----------------------------------------------------------------------------------------


@value
class Hello:
    """A gateway joins, or is back after an outage."""

    incarnation: int


@value
class Upload:
    """A gateway's model (with the relay rule, a device's), and the gateway's new knowledge about its devices."""

    upload: UploadId
    weights: Model
    base_epoch: int
    """tau: the cloud epoch of the model that the cycle (with the relay rule, the device) started from."""
    updates: int
    """Number of device updates in the model."""
    samples: int
    """Number of samples that they were trained on."""
    early: bool
    """True if the cycle was not complete because no device could be triggered."""
    answered_below: int
    """All uploads of this incarnation with a lower number have been answered: the cloud may forget their outcomes."""
    knowledge: tuple[DeviceKnowledge, ...]
    jobs: tuple[int, ...] = ()
    """Numbers of the jobs whose updates are in this model or were dropped since the last upload, if losses are
    tracked."""
    bases: tuple[int, ...] = ()
    """Cloud epochs of the models that this gateway's next uploads may be changes of, if it relays changes. Otherwise
    every upload is a change of the newest model that the gateway has adopted."""


@value
class LeaseReleased:
    """A gateway releases the lease of a device that is now associated with another gateway."""

    lease: Lease
    knowledge: DeviceKnowledge
    warmup: bool
    """True if the device has just completed its warm-up job."""


@value
class Report:
    """News between uploads: completed warm-up jobs, and changes of the feasible links J_t."""

    incarnation: int
    number: int
    """Increases within an incarnation, so that an outdated report about a link is recognised."""
    answered_warmup: tuple[DeviceKnowledge, ...] = ()
    lost: tuple[int, ...] = ()
    """Devices that timed out or lost their session."""
    heard: tuple[int, ...] = ()
    """Devices that can be reached, again or for the first time."""


# From a gateway to a device -----------------------------------------------------------------------------------------


@value
class Train:
    """Train from this model and send an `Update`."""

    job: JobId
    weights: Model
    gateway_epoch: int
    """zeta: the gateway epoch of the model."""
    base_epoch: int
    """The cloud epoch that the model is based on."""
    version: int
    """The gateway's version of the association. A device rejects jobs of a lower version than it has seen."""
    basis: Basis | None = None
    """The basis on which to project gradients, if the device needs it and does not have it yet."""
    warmup: bool = False
    """True for a warm-up job, whose result is not aggregated."""
    settled: tuple[int, ...] = ()
    """Numbers of earlier jobs of this device whose updates the cloud has decided on, if losses are tracked."""


@value
class Probe:
    """Answer with `Alive`: the device has timed out."""


# From a device to a gateway -----------------------------------------------------------------------------------------


@value
class Update:
    """A device's trained model and the figures of its training (see `core.learner.TrainingResult`)."""

    job: JobId
    weights: Model
    samples: int
    steps: int
    loss: float
    squared_loss: float
    gradient: Model | None
    download_s: float
    training_s: float
    compressed: bool = False
    """True if the gradient is a projection."""
    warmup: bool = False


@value
class JobDropped:
    """A job ends without a result: a newer job has replaced it, or an outage has interrupted it."""

    job: JobId
    reason: DropReason
    version: int
    """The highest version of the association that the device has seen. If it is higher than the gateway's own, the
    device may have moved."""


@value
class Alive:
    """The answer to a probe. A device that is back after an outage sends it unasked."""


# Between cloud and device, forwarded by a gateway -------------------------------------------------------------------


@value
class Unsettled:
    """From a device: its acknowledged updates that, as far as it knows, the cloud has not decided on."""

    device: int | None
    """Filled in by the gateway."""
    jobs: tuple[JobId, ...]
    """At most `MOST_UNSETTLED`; a device that has more sends several messages."""


@value
class SettledAck:
    """To a device: the cloud's ledger contains these updates, so the device may forget them."""

    device: int
    jobs: tuple[JobId, ...]


@value
class EvaluateRequest:
    """To devices: evaluate this model on your own test samples."""

    epoch: int
    weights: Model
    devices: tuple[int, ...] = ()
    """The devices to forward the request to; empty in the copy that a device receives."""


@value
class EvaluateResult:
    """From a device: its evaluation of a model."""

    epoch: int
    metric: float
    """Like `loss`, NaN if the device has no test samples."""
    loss: float
    device: int | None = None
    """Filled in by the gateway."""


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
