"""A gateway's table of devices, with one column per property and one slot (row) per device.

Columns are arrays, so that a selection among a hundred candidates takes a handful of numpy calls. A device keeps its
slot for the whole run. It is a candidate for selection if it is associated, leased and idle, and its link is feasible.
"""

# ruff: noqa: RUF009 (`_column` returns a dataclass field)
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.compression.model_codec import plain_vector
from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.maths.projection import CountSketch, PcaProjection
from async_hfl.core.protocol.messages import DeviceKnowledge, Lease
from async_hfl.core.serialization import plain

_NEWEST_WEIGHT = 0.3
"""Weight of the newest measurement in the moving average of a round latency."""


def _column(dtype: type[np.generic], default: object) -> Any:
    """Return a field for one column; `default` is its value for a new device."""
    return field(default_factory=lambda: np.zeros(0, dtype), metadata={"default": default})


@plain
@dataclass(slots=True)
class DeviceTable:
    slot_of: dict[int, int] = field(default_factory=dict)
    devices: Ints = _column(np.int64, -1)
    round_latency: Floats = _column(np.float64, 0.0)
    measured: Bools = _column(np.bool_, False)
    samples: Ints = _column(np.int64, 0)
    loss: Floats = _column(np.float64, np.nan)
    squared_loss: Floats = _column(np.float64, np.nan)
    idle_since: Floats = _column(np.float64, 0.0)
    last_selected: Ints = _column(np.int64, -1)
    job: Ints = _column(np.int64, -1)
    """Number of the device's job in flight, -1 if it is idle; an overdue job does not count."""
    associated: Bools = _column(np.bool_, False)
    lease: Ints = _column(np.int64, 0)
    """Number of the lease held, 0 for none."""
    lease_version: Ints = _column(np.int64, 0)
    feasible: Bools = _column(np.bool_, True)
    candidate: Bools = _column(np.bool_, False)
    probe_at: Floats = _column(np.float64, np.inf)
    """Time of the next probe of a device that timed out; infinite for the others."""
    probe_wait: Floats = _column(np.float64, 0.0)
    timeouts: npt.NDArray[np.int8] = _column(np.int8, 0)
    """Consecutive timeouts of the device. Each doubles its patience; otherwise a device that is slower than expected
    would be sent a new job after every timeout, drop the old one, and never finish any."""
    last_seen: Ints = _column(np.int64, -1)
    """`SelectionProblem.round` in which the newest update arrived, -1 if there is none."""
    has_basis: Bools = _column(np.bool_, False)
    """True if the device was sent the basis on which it projects its gradients."""
    unreported: dict[int, None] = field(default_factory=dict)
    """Slots with knowledge that has not been sent to the cloud, in the order of the updates."""
    gradients: GradientTable | None = None
    projection: PcaProjection | CountSketch | None = None
    """The projection that compresses gradients, once it is known."""
    share_gradients: bool = True
    """True if gradients are sent to the cloud."""
    associated_count: int = 0
    failures: npt.NDArray[np.int8] = _column(np.int8, 0)
    """Consecutive failures of the device (see `conduct`)."""
    aside_until: Floats = _column(np.float64, -np.inf)
    """Time until which the device is set aside."""

    def complete(self) -> None:
        """Fill the columns that state stored by an older version does not have."""
        for column in fields(self):
            if "default" in column.metadata and len(old := getattr(self, column.name)) < len(self.devices):
                missing = np.full(len(self.devices) - len(old), column.metadata["default"], old.dtype)
                setattr(self, column.name, np.concatenate([old, missing]))

    def add(self, devices: list[int]) -> None:
        """Give each new device a slot."""
        new = [device for device in dict.fromkeys(devices) if device not in self.slot_of]
        if not new:
            return
        start = len(self.devices)
        for column in fields(self):
            if "default" in column.metadata:
                old = getattr(self, column.name)
                new_rows = np.full(len(new), column.metadata["default"], old.dtype)
                setattr(self, column.name, np.concatenate([old, new_rows]))
        self.devices[start:] = new
        self.slot_of.update(zip(new, range(start, start + len(new)), strict=True))
        if self.gradients is not None:
            self.gradients.grow(len(self.devices))

    @property
    def associated_samples(self) -> int:
        """Samples of all associated devices together."""
        return int(self.samples[self.associated].sum())

    def refresh(self, slot: int) -> None:
        """Recompute `candidate` after one of the four conditions has changed."""
        self.candidate[slot] = (
            self.associated[slot] and self.lease[slot] > 0 and self.job[slot] < 0 and self.feasible[slot]
        )

    def associate(self, devices: tuple[int, ...]) -> None:
        """Associate these devices and no others."""
        self.add(list(devices))
        now = np.zeros(len(self.devices), bool)
        now[[self.slot_of[device] for device in devices]] = True
        changed = np.flatnonzero(now != self.associated)
        self.associated = now
        self.associated_count = len(devices)
        for slot in changed:
            if self.gradients is not None:
                self.gradients.set_counted(int(slot), bool(now[slot]))
            self.refresh(int(slot))

    def take(self, lease: Lease, knowledge: DeviceKnowledge) -> int:
        """Store a lease and what the cloud knows about the device, decoded. A latency measured here is kept."""
        self.add([lease.device])
        slot = self.slot_of[lease.device]
        self.lease[slot] = lease.number
        self.lease_version[slot] = lease.version
        if not self.measured[slot]:
            self.round_latency[slot] = knowledge.round_latency
            self.measured[slot] = knowledge.measured
        self.samples[slot] = knowledge.samples
        self.loss[slot] = knowledge.loss
        self.squared_loss[slot] = knowledge.squared_loss
        self.has_basis[slot] |= knowledge.has_basis
        if self.gradients is not None and knowledge.gradient is not None:
            self.gradients.offer(slot, plain_vector(knowledge.gradient), knowledge.compressed, self.projection)
        self.refresh(slot)
        return slot

    def project_with(self, projection: PcaProjection) -> None:
        """Compress the gradients, from now on, with this projection."""
        if self.projection is None and self.gradients is not None:
            self.projection = projection
            self.gradients.compress(projection.size, projection)

    def measure(self, slot: int, latency: float) -> None:
        """Update the round latency: the first measurement replaces the estimate, later ones enter a moving average."""
        if self.measured[slot]:
            latency = (1.0 - _NEWEST_WEIGHT) * float(self.round_latency[slot]) + _NEWEST_WEIGHT * latency
        self.round_latency[slot] = latency
        self.measured[slot] = True

    def knowledge(self, slot: int) -> DeviceKnowledge:
        gradient, compressed = None, False
        if self.share_gradients and self.gradients is not None:
            gradient, compressed = self.gradients.gradient(slot), self.gradients.compressed
        return DeviceKnowledge(
            int(self.devices[slot]),
            float(self.round_latency[slot]),
            bool(self.measured[slot]),
            int(self.samples[slot]),
            float(self.loss[slot]),
            float(self.squared_loss[slot]),
            gradient,
            compressed and gradient is not None,
            bool(self.has_basis[slot]),
        )

    def take_unreported(self) -> list[int]:
        """Return the slots with knowledge that has not been sent to the cloud, and mark it as sent."""
        found = list(self.unreported)
        self.unreported.clear()
        return found
