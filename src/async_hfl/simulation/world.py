"""What a simulation is made of, and where it is written down."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from async_hfl.core.learner import Learner
from async_hfl.core.policies import AssociationPolicy
from async_hfl.core.protocol.records import EpochRecord, Record
from async_hfl.decisions.timing import DecisionTimes
from async_hfl.encoding.rounding import AS_IT_IS, Encoding
from async_hfl.network.description import DelayModel, SharedAir
from async_hfl.network.fleet import Fleet
from async_hfl.network.outages.plan import OutagePlan
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.simulation.accounting.byte_counts import Spent


class Journal(Protocol):
    """Where a run is written down."""

    def write(self, record: Record) -> None: ...

    def write_sent(self, *fields: Any) -> None: ...

    def epoch(self, record: EpochRecord, spent: Spent, updates: int) -> None:
        """The row of a cloud epoch: the record with the bytes and the device updates sent until then."""
        ...

    def leave_room(self, epoch: int) -> bool:
        """For the row and the records of an epoch that are not known yet; false where they are needed now."""
        ...

    def in_room(self) -> AbstractContextManager[None]:
        """What is written within stands where room was left."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything a simulation is made of."""

    cloud: CloudNode
    gateways: Sequence[GatewayNode]
    devices: Sequence[DeviceNode]
    learner: Learner
    delays: DelayModel
    association: AssociationPolicy
    model_bytes: int
    seed: int
    batching: bool = True
    charge_solver: float = 0.0
    air: SharedAir | None = None
    """None: transfers do not hinder each other."""
    life: OutagePlan | None = None
    """None: nothing ever fails."""
    fleet: Fleet | None = None
    """What devices draw while they work; None: nobody asked."""
    decision_times: DecisionTimes | None = None
    """What the policies took; None: nobody asked."""
    encoding: Encoding = AS_IT_IS
    """How messages travel; `model_bytes` is what a model weighs so."""
    share: float = 1.0
    """What gradients weigh so, of their four bytes a number."""
