"""The interface between a network and the rest of the system."""

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
    """The time that transfers and trainings take, in seconds of virtual time.

    Every call stands for one transfer or one training that takes place: call once, keep the answer, and never call to
    look ahead (expected times are in `FeasibleLinks.expected_latency`). A model may therefore draw a random number at
    every call. The event loop calls once per message, so an answer should cost about a microsecond and be a plain
    float.

    `size_bytes` is the size of the message; control messages without a model are queried in the same way. A transfer
    over a link that does not exist is an InvariantViolation.
    """

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        """Return the time of a download over a device link."""
        ...

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        """Return the time of an upload over a device link."""
        ...

    def compute(self, device: int) -> float:
        """Return the time of one local training."""
        ...

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        """Return the time of an upload over the backhaul."""
        ...

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        """Return the time of a download over the backhaul."""
        ...

    def snapshot(self) -> Plain:
        """Return the state that later answers depend on, for a checkpoint; None if there is none."""
        ...

    def restore(self, data: Plain) -> None: ...


@dataclass(frozen=True, slots=True)
class SharedAir:
    """Contention: the transfers of a gateway share the air around it (`medium.py`), so that each one's time depends on
    the others. The DelayModel gives the time of a transfer that is alone."""

    efficiency: tuple[float, ...] = (1.0,)
    """Total throughput relative to one sender, by the number of radios that send at once."""
    latency: float = 0.0
    """Seconds of each transfer that use no airtime."""


@dataclass(frozen=True, slots=True, eq=False)
class NetworkDescription:
    """A network: the facts that are known in advance, and its delays."""

    name: str
    links: FeasibleLinks
    """J, with the mean round latency of each link as the prior of tau_ij."""
    expected_compute: Floats
    """Mean seconds of one local training per device, which a device reports when it joins."""
    delays: DelayModel
    positions: Positions | None = None
    notes: tuple[str, ...] = ()
    """Facts that a reader of the results should know, such as assumptions and sites left out."""
    warnings: tuple[str, ...] = ()
    """The notes that are also shown when a run starts."""
    credit: str = ""
    """The source that a map must credit."""
    air: SharedAir | None = None
    """None: transfers do not affect each other."""

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
