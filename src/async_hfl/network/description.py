"""What a network tells the rest of the system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.core.serialization import Plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.positions import Positions


class DelayModel(Protocol):
    """How long things take, in seconds of virtual time.

    Every call stands for one transfer or one training that takes place: ask once, keep the answer, never ask to
    look ahead (expectations are in `FeasibleLinks.expected_latency`). So a model may draw anew at every call.
    The event loop asks per message, so an answer costs about a microsecond and is a plain float.

    `size_bytes` is what travels; control messages (no model in them) are asked for in the same way.
    A transfer over a link that does not exist is an InvariantViolation: the sender should have known.
    """

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        """Download over a device link."""
        ...

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        """Upload over a device link."""
        ...

    def compute(self, device: int) -> float:
        """One local training."""
        ...

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        """Upload over the backhaul."""
        ...

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        """Download over the backhaul."""
        ...

    def snapshot(self) -> Plain:
        """What later answers depend on beyond the question, for a checkpoint; None where there is nothing."""
        ...

    def restore(self, data: Plain) -> None: ...


@dataclass(frozen=True, slots=True)
class SharedAir:
    """The transfers of a gateway share the air around it (`medium.py`): how long each takes depends on the others.

    The DelayModel says what a transfer would take alone."""

    efficiency: tuple[float, ...] = (1.0,)
    """By the number of radios sending at once."""
    latency: float = 0.0
    """Seconds of each transfer that take no air."""


@dataclass(frozen=True, slots=True, eq=False)
class NetworkDescription:
    """A network as built: what may be known of it beforehand, and how it behaves."""

    name: str
    links: FeasibleLinks
    """J, with the mean round latency of each link as the prior of tau_ij."""
    expected_compute: Floats
    """Mean seconds of one local training, per device: what a device states on joining."""
    delays: DelayModel
    positions: Positions | None = None
    notes: tuple[str, ...] = ()
    """What a reader of its figures should know: assumptions, what was left out."""
    warnings: tuple[str, ...] = ()
    """Those of the notes that whoever begins a run should know, too."""
    credit: str = ""
    """Whom a map of it must name."""
    air: SharedAir | None = None
    """None: transfers do not hinder each other."""

    def __post_init__(self) -> None:
        links, compute = self.links, self.expected_compute
        if compute.shape != (links.devices,):
            raise DataError(
                f"network {self.name}: compute times of shape {compute.shape} for {links.devices} devices; "
                "give one per device"
            )
        wrong = np.flatnonzero(~(np.isfinite(compute) & (compute >= 0)))
        if len(wrong):
            raise DataError(
                f"network {self.name}, device {wrong[0]}: compute time {compute[wrong[0]]} is not a number of seconds"
            )
        if self.positions is not None:
            for name, given, wanted in (
                ("device", len(self.positions.device_x), links.devices),
                ("gateway", len(self.positions.gateway_x), links.gateways),
            ):
                if given != wanted:
                    raise DataError(f"network {self.name}: {given} {name} positions for {wanted} {name}s")
