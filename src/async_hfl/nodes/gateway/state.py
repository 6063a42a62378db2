"""Everything a gateway remembers, as plain mutable data owned by one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from async_hfl.core.protocol.messages import GlobalModel, Upload
from async_hfl.core.serialization import plain
from async_hfl.core.weights import Weights
from async_hfl.nodes.gateway.device_table import DeviceTable
from async_hfl.nodes.reliability.number_set import NumberSet

NEVER = float("inf")
AGGREGATION_TIMER = "aggregation"
"""The one timer of whatever aggregation a gateway has."""
Phase = Literal["waiting", "open", "uploading", "over"]
"""waiting: no model yet. open: dispatches. uploading: dispatches nothing until answered. over: finished or stopped."""


@plain
@dataclass(slots=True)
class InFlightJob:
    """A job sent and not yet ended."""

    slot: int
    sent_at: float
    gateway_epoch: int
    """zeta."""
    base_epoch: int
    rate: float
    """R_ij that it takes of the bandwidth until it is overdue; 0 for warm-up."""
    sent: Weights
    """w_sent: kept as long as the job is open; jobs sent the same model share the one array."""
    deadline: float
    overdue: bool
    warmup: bool


@plain
@dataclass(slots=True)
class OutstandingUpload:
    message: Upload
    sent_at: float
    resend_at: float
    attempts: int
    held: bool = False
    """The cloud has it and waits for others: there is nothing to send again."""
    landed: tuple[tuple[int, int], ...] = ()
    """(job number, slot) of the updates that are over with it."""


@plain
@dataclass(slots=True)
class GatewayState:
    incarnation: int
    phase: Phase = "waiting"
    weights: Weights | None = None
    base_epoch: int = 0
    gateway_epoch: int = 0
    """z: never restarts within a run."""
    version: int = 0
    device_table: DeviceTable = field(default_factory=DeviceTable)
    in_flight_jobs: dict[int, InFlightJob] = field(default_factory=dict)
    active: int = 0
    """Flights that are not overdue."""
    load: float = 0.0
    next_job: int = 1
    next_upload: int = 1
    next_report: int = 1
    outstanding: dict[int, OutstandingUpload] = field(default_factory=dict)
    reply_s: float = 0.0
    """Longest wait for an answer so far: on a slow backhaul patience must not run out on a transfer under way."""
    selections: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    """What the selection policy asked to remember."""
    newest: GlobalModel | None = None
    """A broadcast model waiting for the next cycle."""
    deadline: float = NEVER
    """When the patience timer fires next."""
    probe_at: float = NEVER
    resend_at: float = NEVER
    idle_upload_at: float = NEVER
    bandwidth: float = 0.0
    """B_j in force."""
    landed: list[tuple[int, int]] = field(default_factory=list)
    """(job number, slot) of updates that came to their end since the last upload, where accounts are kept."""
    over: NumberSet = field(default_factory=NumberSet)
    """Jobs that stood there."""
    settled: dict[int, list[int]] = field(default_factory=dict)
    """By slot: jobs that the cloud has decided on, and the device does not know it."""
    present: set[int] = field(default_factory=set)
    """Devices with a session, where there are sessions."""
    awaited: set[int] = field(default_factory=set)
    """Devices that had one before a restart and have not come back."""
    cut_off_at: float = NEVER
    """When the cloud will have been away for too long."""
    final_model: str = ""
    """Digest of the model that the run ended with."""
    cut_off: bool = False
    """It has been: nothing new is triggered."""
