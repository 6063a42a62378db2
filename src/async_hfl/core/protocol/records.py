"""Records: the entries that nodes and shells write to the journal, and all that reports read.

`LEARNT` names the fields whose values come from training (losses, metrics, objectives of the solver). They are part of
the digest of a run but not of its order digest, which is the same on two machines with different floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from async_hfl.core.identifiers import Address, JobId, UploadId
from async_hfl.core.serialization import plain

JobEnd = Literal[
    "aggregated", "stale", "superseded", "device_lost", "gateway_lost", "round_closed", "warmup", "run_ended", "refused"
]
UploadEnd = Literal["mixed", "dropped", "lost", "run_ended"]
NO_FIELDS: frozenset[str] = frozenset()


@plain
@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job ended. Every job has exactly one such record, with the reason."""

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
    """The bandwidth limit excluded a candidate: what was left of it was not enough for all of them."""
    lone: bool
    """No candidate fitted and nothing was in flight: the best one was selected alone, beyond the limit."""
    gap: float | None = None
    """Relative gap between the selection and the bound that the policy proved; None if it proves none."""


@plain
@dataclass(frozen=True, slots=True)
class UploadRecord:
    """The cloud settled an upload: it was mixed into the global model, or not."""

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
    """(device, new gateway) of each device that moved; gateway -1 for none."""


@plain
@dataclass(frozen=True, slots=True)
class LifecycleRecord:
    """A node joined, was lost or came back, or the run changed phase.

    The last four values of `what` are written by a simulation, which knows of outages; nodes only see their effects."""

    KIND: ClassVar[str] = "lifecycle"
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
    """A message was sent, with its bytes by kind. Written by the shell, which knows sizes and delays."""

    KIND: ClassVar[str] = "sent"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    sender: Address
    receiver: Address
    message: str
    about: JobId | UploadId | None
    """The job or upload that the message belongs to, if any."""
    transfer_s: float
    model: int
    gradient: int
    basis: int
    control: int


@plain
@dataclass(frozen=True, slots=True)
class LostRecord:
    """An update that a gateway had acknowledged is in no model, and the gateway was declared lost. A `FoundRecord`
    revokes this."""

    KIND: ClassVar[str] = "lost"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    job: JobId
    device: int


@plain
@dataclass(frozen=True, slots=True)
class FoundRecord:
    """An update that was recorded as lost is not: its gateway came back with its state intact."""

    KIND: ClassVar[str] = "found"
    LEARNT: ClassVar[frozenset[str]] = NO_FIELDS

    at: float
    job: JobId
    device: int


@plain
@dataclass(frozen=True, slots=True)
class LateRecord:
    """An update that a gateway had acknowledged was too late: the run ended before the cloud settled it."""

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
