"""What a node writes into the journal. Reports read these and nothing else.

`LEARNT` names the fields that come from training (losses, metrics, weights of the solver): they are hashed into the
run's digest but not into its order digest, which two machines with different floating point can share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from async_hfl.core.identifiers import Address, JobId, UploadId
from async_hfl.core.serialization import plain

JobEnd = Literal[
    "aggregated",
    "stale",
    "superseded",
    "device_lost",
    "gateway_lost",
    "round_closed",
    "warmup",
    "run_ended",
    "refused",
]
UploadEnd = Literal["mixed", "dropped", "lost", "run_ended"]
NO_FIELDS: frozenset[str] = frozenset()


@plain
@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job ended, for the one reason it ends with."""

    KIND: ClassVar[str] = "job"
    LEARNT: ClassVar[frozenset[str]] = frozenset({"loss"})

    at: float
    job: JobId
    device: int
    reason: JobEnd
    sent_at: float
    download_s: float
    training_s: float
    staleness: int
    weight: float
    """Mixing weight; 0 unless aggregated."""
    gateway_epoch: int
    loss: float | None


@plain
@dataclass(frozen=True, slots=True)
class SelectionRecord:
    """One selection that had candidates."""

    KIND: ClassVar[str] = "selection"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    gateway: int
    candidates: int
    devices: tuple[int, ...]
    bound: bool
    """The bandwidth limit kept somebody out: what was left of it would not have taken every candidate."""
    lone: bool
    """Nobody fitted and nothing was in flight: the best one was sent alone, beyond the limit."""
    gap: float | None = None
    """Of the answer to the bound that its policy proved; None where it proves none."""


@plain
@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload reached its end."""

    KIND: ClassVar[str] = "upload"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    upload: UploadId
    reason: UploadEnd
    base_epoch: int
    staleness: int
    weight: float
    updates: int
    early: bool


@plain
@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The global model was evaluated."""

    KIND: ClassVar[str] = "epoch"
    LEARNT: ClassVar[frozenset[str]] = frozenset({"metric", "loss", "details"})

    at: float
    epoch: int
    updates: int
    """Device updates in the global model so far."""
    metric: float
    loss: float
    details: dict[str, float]
    target_reached: bool


@plain
@dataclass(frozen=True, slots=True)
class AssociationRecord:
    """The association was solved and applied."""

    KIND: ClassVar[str] = "association"
    LEARNT: ClassVar[frozenset[str]] = frozenset({"objective", "bound"})

    at: float
    version: int
    objective: float
    bound: float | None
    moved: tuple[tuple[int, int], ...]
    """(device, gateway) of those that changed; -1 for none."""


@plain
@dataclass(frozen=True, slots=True)
class LifecycleRecord:
    """Something came, went or changed phase: a device given up or heard again, a gateway lost, warm-up over.

    The last four are what really happened, where a shell knows it: nodes only ever see the consequences."""

    KIND: ClassVar[str] = "life"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    what: Literal[
        "device_given_up",
        "device_heard",
        "gateway_lost",
        "gateway_joined",
        "warmup_ended",
        "target_reached",
        "finished",
        "refused",
        "went_down",
        "came_back",
        "died",
        "slowed",
    ]
    node: str
    detail: str = ""


@plain
@dataclass(frozen=True, slots=True)
class SentRecord:
    """A message left a node: the byte ledger, entry by entry (written by the shell, which knows sizes and delays)."""

    KIND: ClassVar[str] = "sent"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    sender: Address
    receiver: Address
    message: str
    about: JobId | UploadId | None
    """The job or upload that it belongs to, where it has one."""
    transfer_s: float
    model: int
    gradient: int
    basis: int
    control: int


@plain
@dataclass(frozen=True, slots=True)
class LostRecord:
    """An update that a gateway had acknowledged is in no model, and its gateway is held for lost with it. A
    `FoundRecord` takes it back."""

    KIND: ClassVar[str] = "lost"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    job: JobId
    device: int


@plain
@dataclass(frozen=True, slots=True)
class FoundRecord:
    """An update that was listed as lost is not: its gateway is back with all that it had."""

    KIND: ClassVar[str] = "found"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    job: JobId
    device: int


@plain
@dataclass(frozen=True, slots=True)
class LateRecord:
    """An update that a gateway had acknowledged came too late: the run ended before the cloud decided on it."""

    KIND: ClassVar[str] = "late"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    job: JobId
    device: int


RECORD_TYPES: tuple[type, ...] = (
    JobRecord,
    SelectionRecord,
    UploadRecord,
    EpochRecord,
    AssociationRecord,
    LifecycleRecord,
    SentRecord,
    LostRecord,
    FoundRecord,
    LateRecord,
)
Record = (
    JobRecord
    | SelectionRecord
    | UploadRecord
    | EpochRecord
    | AssociationRecord
    | LifecycleRecord
    | SentRecord
    | LostRecord
    | FoundRecord
    | LateRecord
)
