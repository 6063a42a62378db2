"""Records: the entries of a run's journal, from which all reports are made.

Nodes write them with the effect `Write`; `SentRecord` and the outages among the `LifecycleRecord`s come from the shell.
`KIND` is the record's name in the journal. `LEARNT` names the fields whose values are results of training or solving
(losses, metrics, objectives). They are part of a run's digest but not of its order digest, which must be equal even on
machines whose floating-point arithmetic differs in the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from async_hfl.core.identifiers import Address, JobId, UploadId
from async_hfl.core.serialization import value

JobEnd = Literal[
    "aggregated", "stale", "superseded", "device_lost", "gateway_lost", "round_closed", "warmup", "run_ended", "refused"
]
"""aggregated: the update is in a model. stale: it was too stale. superseded: the device began a newer job. device_lost:
an outage of the device interrupted the job. gateway_lost: the gateway was declared lost. round_closed: the update came
too late for its round or cycle. warmup: a warm-up job is complete. run_ended: the run was over first. refused: the
update contained NaN or infinite weights, or its change was beyond the bound."""
DEVICE_UPDATE: JobEnd = "aggregated"
"""The end of the jobs that count as device updates, wherever these are counted: the result arrived at a gateway and was
aggregated there. Jobs of the warm-up and results that were dropped are counted by their own ends."""
UploadEnd = Literal["mixed", "dropped", "lost", "run_ended"]
"""mixed: the cloud aggregated it. dropped: it was too stale. lost: its gateway was declared lost. run_ended: the run
was over first."""


class _Record:
    """Defaults of all records."""

    __slots__ = ()
    LEARNT: ClassVar[frozenset[str]] = frozenset()


@value
class JobRecord(_Record):
    """A job has ended, for the reason given. Every job has exactly one such record."""

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
    """Weight of the update in the gateway's model (with the relay rule, in the cloud's); 0 unless aggregated."""
    gateway_epoch: int
    """The gateway epoch at the end of the job."""
    loss: float | None


@value
class SelectionRecord(_Record):
    """A gateway has selected among its idle devices. A selection without candidates is not recorded."""

    KIND: ClassVar[str] = "selection"

    at: float
    gateway: int
    candidates: int
    """Number of candidates."""
    devices: tuple[int, ...]
    """The devices selected."""
    bound: bool
    """True if a candidate was left out that does not fit the remaining bandwidth."""
    lone: bool
    """True if no candidate fitted the bandwidth and nothing was in flight, so that the best one was selected alone."""
    gap: float | None = None
    """Relative gap between the objective and the upper bound that the policy proved; None if it proves none."""


@value
class UploadRecord(_Record):
    """An upload has ended, for the reason given."""

    KIND: ClassVar[str] = "upload"

    at: float
    upload: UploadId
    reason: UploadEnd
    base_epoch: int
    staleness: int
    weight: float
    updates: int
    early: bool


@value
class EpochRecord(_Record):
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


@value
class AssociationRecord(_Record):
    """A new association was computed and put into force."""

    KIND: ClassVar[str] = "association"
    LEARNT: ClassVar[frozenset[str]] = frozenset({"objective", "bound"})

    at: float
    version: int
    objective: float
    bound: float | None
    moved: tuple[tuple[int, int], ...]
    """(device, new gateway) of each device that moved; -1 for no gateway."""


@value
class LifecycleRecord(_Record):
    """A node joined, was lost or came back, or the run entered a new phase.

    A simulation, which causes the outages, writes went_down, came_back, died and slowed."""

    KIND: ClassVar[str] = "lifecycle"

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
        "restored",
    ]
    node: str
    detail: str = ""


@value
class SentRecord(_Record):
    """A message was sent, with its bytes by kind. Written by the shell, which knows the sizes and transfer times."""

    KIND: ClassVar[str] = "sent"

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


@dataclass(frozen=True, slots=True)
class _UpdateRecord(_Record):
    """A device update that its gateway had acknowledged."""

    at: float
    job: JobId
    device: int


@value
class LostRecord(_UpdateRecord):
    """An acknowledged update is lost with its gateway: it is in no global model. A later `FoundRecord` revokes this."""

    KIND: ClassVar[str] = "lost"


@value
class FoundRecord(_UpdateRecord):
    """An update that was recorded as lost is not lost: its gateway is back with its state intact."""

    KIND: ClassVar[str] = "found"


@value
class LateRecord(_UpdateRecord):
    """An acknowledged update was too late: the run ended before the cloud decided on it."""

    KIND: ClassVar[str] = "late"


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
RECORD_TYPES: tuple[type, ...] = get_args(Record)
