"""What happens to a node. `at` is the only clock a node has: virtual seconds, or seconds since a deployment began."""

from __future__ import annotations

from dataclasses import dataclass

from async_hfl.core.identifiers import Address, JobId
from async_hfl.core.learner import Evaluation, TrainingResult
from async_hfl.core.policies import Association
from async_hfl.core.protocol.messages import Message
from async_hfl.core.serialization import plain


@plain
@dataclass(frozen=True, slots=True)
class Started:
    """The node's first event."""

    at: float


@plain
@dataclass(frozen=True, slots=True)
class Received:
    at: float
    sender: Address
    message: Message
    transfer_s: float = 0.0
    """How long the message was under way."""


@plain
@dataclass(frozen=True, slots=True)
class TimerFired:
    at: float
    key: str


@plain
@dataclass(frozen=True, slots=True)
class Trained:
    at: float
    job: JobId
    result: TrainingResult
    training_s: float = 0.0
    """How long it took, as the shell measured it (compiling and waiting left out)."""


@plain
@dataclass(frozen=True, slots=True)
class TrainingBroke:
    """There will be no result: training failed, or what trained was ended."""

    at: float
    job: JobId


@plain
@dataclass(frozen=True, slots=True)
class Solved:
    at: float
    number: int
    association: Association


@plain
@dataclass(frozen=True, slots=True)
class Evaluated:
    at: float
    epoch: int
    evaluation: Evaluation


@plain
@dataclass(frozen=True, slots=True)
class PeerLost:
    """The shell holds a peer for lost (stream broken for good, heartbeats missed, availability model)."""

    at: float
    peer: Address


@plain
@dataclass(frozen=True, slots=True)
class PeerJoined:
    """A session with a peer is up: it can be spoken to."""

    at: float
    peer: Address


@plain
@dataclass(frozen=True, slots=True)
class Progressed:
    """A large transfer with a peer is moving: slow is not silent."""

    at: float
    peer: Address


@plain
@dataclass(frozen=True, slots=True)
class DeviceJoined:
    """To the cloud: a device can be reached through a gateway, for the first time or with other facts than before."""

    at: float
    device: int
    gateway: int
    samples: int
    expected_latency: float
    """The prior of the link: seconds for download, compute and upload."""


@plain
@dataclass(frozen=True, slots=True)
class DrainAsked:
    """To the cloud: a person wants the run to end now."""

    at: float


@plain
@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A peer has a message of ours, durably. Only told to nodes that ask for it."""

    at: float
    peer: Address
    message: Message


@plain
@dataclass(frozen=True, slots=True)
class Returned:
    """This node is back after an outage; what it was computing is gone, its state is not."""

    at: float


Event = (
    Started
    | Received
    | TimerFired
    | Trained
    | TrainingBroke
    | Solved
    | Evaluated
    | PeerLost
    | PeerJoined
    | Progressed
    | DeviceJoined
    | DrainAsked
    | Acknowledged
    | Returned
)
