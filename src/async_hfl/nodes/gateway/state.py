"""The state of a gateway: plain mutable data that one node owns, and that snapshots are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from async_hfl.core.protocol.messages import GlobalModel, Update, Upload
from async_hfl.core.serialization import plain
from async_hfl.core.weights import Weights
from async_hfl.nodes.gateway.device_table import DeviceTable
from async_hfl.nodes.reliability.number_set import NumberSet

NEVER = float("inf")
AGGREGATION_TIMER = "aggregation"
"""Key of the one timer that an aggregation rule has."""
Phase = Literal["waiting", "open", "uploading", "over"]
"""waiting: no model yet. open: a cycle runs, devices are triggered. uploading: the model was uploaded, and no device is
triggered until the answer arrives. over: the run has ended."""


@plain
@dataclass(slots=True)
class InFlightJob:
    """A job that was sent to a device and has no end yet."""

    slot: int
    """Row of the device in the device table."""
    sent_at: float
    gateway_epoch: int
    """zeta: the gateway epoch of the model that was sent."""
    base_epoch: int
    """The cloud epoch that this model was based on."""
    rate: float
    """R_ij, the bandwidth that the job takes until it is overdue; 0 for warm-up."""
    sent: Weights
    """w_sent: kept until the job ends. Jobs that were sent the same model share one array."""
    deadline: float
    overdue: bool
    warmup: bool


@plain
@dataclass(slots=True)
class HeldUpdate:
    """A device's update, with the job that it belongs to, for as long as the job has no end."""

    number: int
    """Number of the job."""
    in_flight: InFlightJob
    update: Update


@plain
@dataclass(slots=True)
class OutstandingUpload:
    """An upload that the cloud has not answered."""

    message: Upload
    sent_at: float
    resend_at: float
    attempts: int
    held: bool = False
    """The cloud has received it and waits for other gateways: there is no need to send it again."""
    processed: tuple[tuple[int, int], ...] = ()
    """(job number, slot) of the updates that this upload reports as finished."""
    relayed: HeldUpdate | None = None
    """The device update that was passed on unchanged; None for an upload of the gateway's own model."""


@plain
@dataclass(slots=True)
class GatewayState:
    incarnation: int
    phase: Phase = "waiting"
    weights: Weights | None = None
    base_epoch: int = 0
    """Cloud epoch of the global model that the current cycle began from."""
    gateway_epoch: int = 0
    """z: grows over the whole run, never restarts."""
    updates: int = 0
    """Device updates in the gateway's model since the cycle began ..."""
    samples: int = 0
    """... and the samples that they were trained on."""
    buffer: list[HeldUpdate] = field(default_factory=list)
    """Updates that the aggregation rule has received and not yet aggregated."""
    pending: list[HeldUpdate] = field(default_factory=list)
    """Updates that arrived during an upload: the rule receives them when the next cycle begins."""
    aggregation_timer_at: float = NEVER
    """The time that the aggregation rule's timer is set to."""
    version: int = 0
    """Version of the association in force."""
    device_table: DeviceTable = field(default_factory=DeviceTable)
    in_flight_jobs: dict[int, InFlightJob] = field(default_factory=dict)
    active: int = 0
    """Jobs in flight that are not overdue."""
    load: float = 0.0
    """Bandwidth that they take together."""
    next_job: int = 1
    next_upload: int = 1
    next_report: int = 1
    outstanding: dict[int, OutstandingUpload] = field(default_factory=dict)
    reply_s: float = 0.0
    """The longest time that an answer has taken so far: on a slow backhaul uploads are resent less often."""
    selections: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    """Data that the selection policy keeps from one selection to the next."""
    newest: GlobalModel | None = None
    """A newer global model that was broadcast, stored for the next cycle."""
    deadline: float = NEVER
    """The earliest deadline of a job in flight: the time that the patience timer is set to."""
    probe_at: float = NEVER
    resend_at: float = NEVER
    idle_upload_at: float = NEVER
    bandwidth: float = 0.0
    """B_j in force."""
    processed: list[tuple[int, int]] = field(default_factory=list)
    """(job number, slot) of updates that were finished with since the last upload, if losses are tracked."""
    ever_processed: NumberSet = field(default_factory=NumberSet)
    """All jobs that were ever in `landed`."""
    settled: dict[int, list[int]] = field(default_factory=dict)
    """By slot: jobs whose upload the cloud has decided on, and whose device has not been told yet."""
    connected: set[int] = field(default_factory=set)
    """Devices with a session, in a shell with sessions."""
    reconnecting: set[int] = field(default_factory=set)
    """Devices that had a session before this gateway restarted and have none yet."""
    cut_off_at: float = NEVER
    """The time at which the gateway stops triggering devices, unless the cloud's session is back by then."""
    final_model: str = ""
    """Digest of the model that the run ended with."""
    cut_off: bool = False
    """The cloud's session has been gone for too long: no device is triggered."""

    def held_updates(self) -> list[HeldUpdate]:
        """Return the updates that have arrived and whose jobs have no end yet."""
        relayed = (upload.relayed for upload in self.outstanding.values())
        return [*self.buffer, *self.pending, *(held for held in relayed if held is not None)]
