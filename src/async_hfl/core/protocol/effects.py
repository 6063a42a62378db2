"""Effects: what a node asks its shell to do.

`handle(event)` returns a list of effects, and the shell carries them out in order; the node itself does no I/O. A
simulator, a deployed process and the fault simulation are three shells for the same nodes. After a crash a shell may
carry out an effect a second time, so every receiver is idempotent.
"""

from __future__ import annotations

from async_hfl.core.identifiers import Address, JobId
from async_hfl.core.policies import AssociationProblem
from async_hfl.core.protocol.messages import Message
from async_hfl.core.protocol.records import Record
from async_hfl.core.serialization import value
from async_hfl.core.weights import Weights


@value
class Send:
    """Send a message to another node. Messages may overtake each other on the way."""

    to: Address
    message: Message


@value
class SetTimer:
    """Fire a `TimerFired` at the given time. A node has one timer per key; setting it again replaces it."""

    key: str
    at: float


@value
class StartTraining:
    """Train from these weights in the background. The shell answers with `Trained` or `TrainingBroke`."""

    job: JobId
    weights: Weights
    generation: int = 0
    """Number of jobs that the device began before this one."""


@value
class StopTraining:
    """Cancel a training whose result is no longer needed."""

    job: JobId


@value
class Solve:
    """Solve an association problem. The shell answers with `Solved` and the same number."""

    number: int
    problem: AssociationProblem


@value
class Evaluate:
    """Evaluate the global model of a cloud epoch. The shell answers with `Evaluated` and the same epoch."""

    epoch: int
    weights: Weights


@value
class Write:
    """Append a record to the journal."""

    record: Record


@value
class Stop:
    """Stop this node: the run is over, or the node cannot continue for the given reason."""

    reason: str = ""


Effect = Send | SetTimer | StartTraining | StopTraining | Solve | Evaluate | Write | Stop
