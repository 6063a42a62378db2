"""Events: the inputs of a node.

`at` is the only clock that a node has: virtual seconds in a simulation, seconds since the start in a deployment.
"""

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
    """Seconds that the message was in transit."""


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
    """Duration as measured by the shell, without compilation and waiting."""


@plain
@dataclass(frozen=True, slots=True)
class TrainingBroke:
    """A training ended without a result: it failed, or the process that trained was ended."""

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
    """The shell declares a peer lost: its stream broke for good, heartbeats were missed, or it has an outage."""

    at: float
    peer: Address


@plain
@dataclass(frozen=True, slots=True)
class PeerJoined:
    """A session with a peer is established; messages can be sent to it."""

    at: float
    peer: Address


@plain
@dataclass(frozen=True, slots=True)
class Progressed:
    """A large transfer with a peer makes progress, so the peer is alive although slow."""

    at: float
    peer: Address


@plain
@dataclass(frozen=True, slots=True)
class DeviceJoined:
    """For the cloud: a device can be reached through a gateway, for the first time or with facts that have changed."""

    at: float
    device: int
    gateway: int
    samples: int
    expected_latency: float
    """Prior estimate for this link: seconds for download, computation and upload."""


@plain
@dataclass(frozen=True, slots=True)
class DrainAsked:
    """For the cloud: an operator wants the run to end now."""

    at: float


@plain
@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A peer has durably received a message of this node. Only nodes that ask for it get this event."""

    at: float
    peer: Address
    message: Message


@plain
@dataclass(frozen=True, slots=True)
class Returned:
    """This node is back after an outage. It has kept its state but lost any computation in progress."""

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
