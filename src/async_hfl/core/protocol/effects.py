"""What a node asks its shell to do. Effects may be repeated after a crash; receivers are idempotent."""

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
    """Deliver, at least once, in any order."""

    to: Address
    message: Message


@plain
@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire once at that time; replaces the node's timer of the same key."""

    key: str
    at: float


@plain
@dataclass(frozen=True, slots=True)
class StartTraining:
    """Train in the background; answered by Trained."""

    job: JobId
    weights: Weights
    generation: int = 0
    """How many jobs the device began before."""


@plain
@dataclass(frozen=True, slots=True)
class StopTraining:
    """The result of this job is no longer wanted."""

    job: JobId


@plain
@dataclass(frozen=True, slots=True)
class Solve:
    """Solve the association; answered by Solved."""

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
    """Append to the journal."""

    record: Record


@plain
@dataclass(frozen=True, slots=True)
class Stop:
    """This node has nothing left to do: the run is over, or cannot go on (then `reason` tells a person why)."""

    reason: str = ""


Effect = Send | SetTimer | StartTraining | StopTraining | Solve | Evaluate | Write | Stop
