"""Effects: requests of a node to its shell.

A node returns them from `handle` and does no I/O itself. A shell may repeat effects after a crash; receivers are
idempotent.
"""

from __future__ import annotations

from dataclasses import dataclass

from async_hfl.core.identifiers import Address, JobId
from async_hfl.core.policies import AssociationProblem
from async_hfl.core.protocol.messages import Message
from async_hfl.core.protocol.records import Record
from async_hfl.core.serialization import plain
from async_hfl.core.weights import Weights


@plain
@dataclass(frozen=True, slots=True)
class Send:
    """Deliver a message, at least once and in any order."""

    to: Address
    message: Message


@plain
@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire a timer once at the given time. Replaces the node's timer of the same key."""

    key: str
    at: float


@plain
@dataclass(frozen=True, slots=True)
class StartTraining:
    """Train in the background; answered by Trained or TrainingBroke."""

    job: JobId
    weights: Weights
    generation: int = 0
    """Number of jobs that the device began before."""


@plain
@dataclass(frozen=True, slots=True)
class StopTraining:
    """Stop a training whose result is no longer needed."""

    job: JobId


@plain
@dataclass(frozen=True, slots=True)
class Solve:
    """Solve an association problem; answered by Solved."""

    number: int
    problem: AssociationProblem


@plain
@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate the global model; answered by Evaluated."""

    epoch: int
    weights: Weights


@plain
@dataclass(frozen=True, slots=True)
class Write:
    """Append a record to the journal."""

    record: Record


@plain
@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this node: the run is over, or it cannot continue and `reason` says why."""

    reason: str = ""


Effect = Send | SetTimer | StartTraining | StopTraining | Solve | Evaluate | Write | Stop
