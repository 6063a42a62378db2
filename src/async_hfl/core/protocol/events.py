"""Events: everything that happens to a node, passed by its shell to `handle(event)`.

A node is a deterministic function of its events: the same events in the same order give the same state and the same
effects, which is how a run is replayed and a crashed node recovers. `at` is the only clock that a node has: virtual
seconds in a simulation, seconds since the start of the run in a deployment.
"""

from __future__ import annotations

from async_hfl.core.identifiers import Address, JobId
from async_hfl.core.learner import Evaluation, TrainingResult
from async_hfl.core.policies import Association
from async_hfl.core.protocol.messages import Message
from async_hfl.core.serialization import value


@value
class Started:
    """The first event of every node."""

    at: float
    secret: int = 0
    """A random number that only this node knows; 0 in simulations, which must be repeatable."""


@value
class Received:
    """A message from another node has arrived."""

    at: float
    sender: Address
    message: Message
    transfer_s: float = 0.0
    """Seconds that the transfer of the message took."""


@value
class TimerFired:
    """The timer of this key has expired (effect `SetTimer`)."""

    at: float
    key: str


@value
class Trained:
    """A training is complete (effect `StartTraining`)."""

    at: float
    job: JobId
    result: TrainingResult
    training_s: float = 0.0
    """Seconds of training as measured by the shell, without compilation and queueing."""


@value
class TrainingBroke:
    """A training ended without a result: it failed, or its process was killed."""

    at: float
    job: JobId


@value
class Solved:
    """An association problem is solved (effect `Solve`)."""

    at: float
    number: int
    association: Association


@value
class Evaluated:
    """A model is evaluated (effect `Evaluate`)."""

    at: float
    epoch: int
    evaluation: Evaluation


@value
class PeerLost:
    """The session with a peer is lost: the connection broke, heartbeats were missed, or an outage began."""

    at: float
    peer: Address


@value
class PeerJoined:
    """A session with a peer is established: messages can be sent to it."""

    at: float
    peer: Address


@value
class Progressed:
    """A long transfer from or to a peer has made progress: the peer is slow, but alive."""

    at: float
    peer: Address


@value
class DeviceJoined:
    """For the cloud: a device can be reached through a gateway, for the first time or with new properties."""

    at: float
    device: int
    gateway: int
    samples: int
    expected_latency: float
    """Estimated round latency of this link before any measurement: seconds for download, training and upload."""


@value
class DrainAsked:
    """For the cloud: an operator has asked for the run to end now."""

    at: float


@value
class Acknowledged:
    """A peer has received one of this node's messages and stored it durably. Only devices are told this."""

    at: float
    peer: Address
    message: Message


@value
class Returned:
    """This node is back after an outage. Its state is intact; any computation in progress is lost."""

    at: float


@value
class Restored:
    """For the cloud: its state is an older copy, and its operator knows. Its packets get a new incarnation."""

    at: float
    incarnation: int


EffectResult = TimerFired | Trained | TrainingBroke | Solved | Evaluated
PeerEvent = Received | Acknowledged | PeerJoined | PeerLost | Progressed | DeviceJoined
Event = Started | EffectResult | PeerEvent | DrainAsked | Returned | Restored
