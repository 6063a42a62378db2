"""The parts that a simulation is built from (`World`), and the interface through which it is recorded (`Journal`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from async_hfl.core.compression.model_codec import PLAIN_MODELS, ModelCodec
from async_hfl.core.learner import Learner
from async_hfl.core.policies import AssociationPolicy
from async_hfl.core.protocol.records import EpochRecord, Record
from async_hfl.decisions.timing import DecisionTimes
from async_hfl.network.description import DelayModel, SharedAir
from async_hfl.network.fleet import Fleet
from async_hfl.network.outages.plan import OutagePlan
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.simulation.accounting.byte_counts import Spent


class Journal(Protocol):
    """Receives the records of a run."""

    def write(self, record: Record) -> None: ...

    def write_sent(self, *fields: Any) -> None:
        """Write a SentRecord, given its fields in order."""
        ...

    def note_epoch(self, record: EpochRecord, spent: Spent) -> None:
        """Note a cloud epoch, with the bytes sent so far."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a simulation is built from."""

    cloud: CloudNode
    gateways: Sequence[GatewayNode]
    devices: Sequence[DeviceNode]
    learner: Learner
    delays: DelayModel
    association: AssociationPolicy
    model_bytes: int
    """M: the mean of a model's bytes on the way down and on the way up."""
    seed: int
    batching: bool = True
    solver_seconds: float = 0.0
    """Virtual seconds that solving an association takes."""
    air: SharedAir | None = None
    """None: transfers do not affect each other."""
    outages: OutagePlan | None = None
    """None: nothing ever fails."""
    fleet: Fleet | None = None
    """Power that devices draw while they work; None: energy is not estimated."""
    decision_times: DecisionTimes | None = None
    """Measured run times of the policies; None: not measured."""
    codec: ModelCodec = PLAIN_MODELS
