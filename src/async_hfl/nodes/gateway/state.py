"""The state of a gateway: plain mutable data, owned by one node and stored in its snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from async_hfl.core.compression.model_codec import Model, plain_vector
from async_hfl.core.maths.latency_tiers import Tiers
from async_hfl.core.protocol.messages import GlobalModel, Update, Upload
from async_hfl.core.serialization import earlier, plain
from async_hfl.core.vectors import Vector
from async_hfl.core.weights import Weights
from async_hfl.nodes.gateway.device_table import DeviceTable
from async_hfl.nodes.reliability.number_set import NumberSet

NEVER = float("inf")
AGGREGATION_TIMER = "aggregation"
"""Key of the one timer that an aggregation rule has."""
Phase = Literal["waiting", "open", "uploading", "over"]
"""waiting: no model yet. open: a cycle is in progress and devices are triggered. uploading: the model was uploaded, and
no device is triggered until the answer arrives; a gateway that continues during uploads is open instead. over: the run
has ended."""


@plain
@dataclass(slots=True)
class InFlightJob:
    """A job that was sent to a device and has not ended."""

    slot: int
    """Row of the device in the device table."""
    sent_at: float
    gateway_epoch: int
    """zeta: the gateway epoch of the model that was sent."""
    base_epoch: int
    """The cloud epoch that this model was based on."""
    rate: float
    """R_ij, the bandwidth that the job takes until it is overdue; 0 for a warm-up job."""
    sent: Weights
    """w_sent, the model that the device has trained from. Jobs that were sent the same model share one array."""
    deadline: float
    overdue: bool
    """True if the deadline has passed. The update is still used if it arrives later."""
    warmup: bool
    free_at: float = NEVER
    """Time at which the job frees its bandwidth, if it has not ended before."""
    freed: bool = False
    """True once it has freed its bandwidth."""


@plain
@dataclass(slots=True)
class HeldUpdate:
    """An update that has arrived, with the job that it belongs to, until that job ends."""

    number: int
    """Number of the job."""
    in_flight: InFlightJob
    update: Update
    """With the decoded model."""
    model: Model
    """The model, or its change, as it arrived; a relay forwards it."""

    @property
    def weights(self) -> Weights:
        """The decoded model."""
        return plain_vector(self.update.weights)


@earlier(HeldUpdate, 3)
def _from_release_2(stored: list[Any]) -> list[Any]:
    """Models did not travel encoded in release 0.2.0: the model that arrived is that of the update."""
    number, in_flight, update = stored
    return [number, in_flight, update, update.weights]


@plain
@dataclass(slots=True)
class OutstandingUpload:
    """An upload that the cloud has not answered."""

    message: Upload
    sent_at: float
    resend_at: float
    attempts: int
    held: bool = False
    """True if the cloud has received it and waits for other gateways: it need not be sent again."""
    processed: tuple[tuple[int, int], ...] = ()
    """(job number, slot) of the updates that this upload reports as processed."""
    relayed: HeldUpdate | None = None
    """The device update that was forwarded unchanged; None for an upload of the gateway's own model."""


@plain
@dataclass(slots=True)
class GatewayState:
    incarnation: int
    phase: Phase = "waiting"
    weights: Weights | None = None
    base_epoch: int = 0
    """Cloud epoch of the global model that was adopted last; the current cycle started from it, unless the gateway
    continues during uploads."""
    gateway_epoch: int = 0
    """z, counted over the whole run."""
    updates: int = 0
    """Number of device updates aggregated since the cycle began."""
    samples: int = 0
    """Number of samples that they were trained on."""
    buffer: list[HeldUpdate] = field(default_factory=list)
    """Updates that the aggregation rule has received and not yet aggregated."""
    pending: list[HeldUpdate] = field(default_factory=list)
    """Updates that arrived during an upload. The rule receives them when the next cycle begins."""
    aggregation_timer_at: float = NEVER
    """Time that the aggregation rule's timer is set to."""
    version: int = 0
    """Version of the association in force."""
    device_table: DeviceTable = field(default_factory=DeviceTable)
    in_flight_jobs: dict[int, InFlightJob] = field(default_factory=dict)
    active: int = 0
    """Number of jobs in flight that are not overdue."""
    load: float = 0.0
    """Bandwidth that they use together, without those that have freed it."""
    next_job: int = 1
    next_upload: int = 1
    next_report: int = 1
    outstanding: dict[int, OutstandingUpload] = field(default_factory=dict)
    reply_s: float = 0.0
    """The longest time to an answer so far: on a slow backhaul uploads are resent less often."""
    selections: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    """The selection policy's memory."""
    newest: GlobalModel | None = None
    """The newest global model that was broadcast, kept for the next cycle."""
    deadline: float = NEVER
    """The earliest deadline of a job in flight, to which the timer "patience" is set. The next three fields are the
    times of the timers "probe", "reply" and "idle"."""
    probe_at: float = NEVER
    resend_at: float = NEVER
    idle_upload_at: float = NEVER
    bandwidth: float = 0.0
    """B_j in force."""
    processed: list[tuple[int, int]] = field(default_factory=list)
    """(job number, slot) of updates aggregated, relayed or dropped since the last upload, if losses are tracked."""
    ever_processed: NumberSet = field(default_factory=NumberSet)
    """Numbers of all jobs that were ever in `processed`."""
    settled: dict[int, list[int]] = field(default_factory=dict)
    """By slot: jobs whose upload the cloud has decided on. The device is told with its next job."""
    connected: set[int] = field(default_factory=set)
    """Devices with a session, in a shell with sessions."""
    reconnecting: set[int] = field(default_factory=set)
    """Devices that had a session before this gateway restarted and have not reconnected."""
    cut_off_at: float = NEVER
    """Time at which `cut_off` becomes true, unless the cloud's session is restored before."""
    final_model: str = ""
    """Digest of the model that the run ended with."""
    cut_off: bool = False
    """True if the session with the cloud has been down for too long: no device is triggered."""
    encoded: Model | None = None
    """The gateway's model as it is sent to devices, once it is encoded."""
    versions: int = 0
    """Number of models that this gateway has encoded for its devices."""
    relays: bool = False
    """True once an update was relayed: the cloud must keep the models that jobs in flight have started from."""
    base: Weights | None = None
    """The global model from which the current cycle started, if uploads are encoded as changes of it."""
    rounding_error: Vector | None = None
    """The rounding error of earlier uploads, added to the next (error feedback)."""
    uploaded: Weights | None = None
    """u, the model of the upload that is not answered yet, if the gateway continues meanwhile."""
    upload_due: bool = False
    """True if the cycle is complete and its upload waits for the answer to the one before."""
    reference_latency: float = 0.0
    """A quantile of the round latencies of all devices, as the cloud told it last; 0 if it did not."""
    tiers: Tiers | None = None
    """The tiers of devices, as the cloud told them last."""
    discarded: dict[int, list[int]] = field(default_factory=dict)
    """By slot: the latest jobs that ended without an update, which may still arrive and be acknowledged, if losses are
    tracked."""
    freed: int = 0
    """Number of jobs in flight that are not overdue and have freed their bandwidth."""
    changes: dict[int, float] = field(default_factory=dict)
    """By slot, oldest first: by how much the device's latest update would change the model that it was sent."""
    changes_of_statistics: dict[int, float] = field(default_factory=dict)
    """The same for running statistics."""
    lists_left: dict[int, int] = field(default_factory=dict)
    """By device: number of lists of unsettled updates that it may send before its next job (see `forwarding`)."""
    noise_secret: int = 0
    """Random number of a deployed gateway, from which its noise is drawn. Nobody else knows it."""
    latest: dict[int, Weights] = field(default_factory=dict)
    """By slot, oldest first: the latest change of each device in the window of a robust rule; in place of a change of
    running statistics their values."""
    latest_norms: dict[int, tuple[float, float]] = field(default_factory=dict)
    """The norms of these changes, of the trained part and of running statistics, where they are enough."""
    evaluations_asked: dict[int, list[int]] = field(default_factory=dict)
    """By device: the cloud epochs whose model it was asked to evaluate, without those that it has answered."""

    def held_updates(self) -> list[HeldUpdate]:
        """Return the updates that have arrived and whose jobs have not ended."""
        relayed = (upload.relayed for upload in self.outstanding.values())
        return [*self.buffer, *self.pending, *(held for held in relayed if held is not None)]
