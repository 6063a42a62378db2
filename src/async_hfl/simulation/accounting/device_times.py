"""Seconds that each device has spent computing, sending and receiving, and the energy estimated from them.

A training that was stopped, or that ended with an outage of its device, counts for as long as it lasted.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.serialization import Plain
from async_hfl.network.fleet import Fleet

_IDLE = -1.0


class DeviceTimes:
    def __init__(self, devices: int) -> None:
        self.compute_s = array("d", bytes(8 * devices))
        self.transmit_s = array("d", bytes(8 * devices))
        self.receive_s = array("d", bytes(8 * devices))
        self.training_since = array("d", [_IDLE]) * devices
        """Start of the training in progress."""

    def training_ended(self, device: int, at: float) -> None:
        """Count the training in progress, if there is one; it is complete or was stopped."""
        since = self.training_since[device]
        if since != _IDLE:
            self.compute_s[device] += at - since
            self.training_since[device] = _IDLE

    def columns(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.compute_s), np.array(self.transmit_s), np.array(self.receive_s)

    def snapshot(self) -> Plain:
        columns = (self.compute_s, self.transmit_s, self.receive_s, self.training_since)
        return [np.frombuffer(column.tobytes(), np.float64) for column in columns]

    def restore(self, data: Plain) -> None:
        self.compute_s, self.transmit_s, self.receive_s, self.training_since = (
            array("d", np.ascontiguousarray(column, np.float64).tobytes()) for column in data
        )


def energy(times: DeviceTimes, fleet: Fleet) -> tuple[Floats, dict[str, Any]]:
    """Return the joules that each device used for its work, idle power not included, and a summary."""
    compute_s, transmit_s, receive_s = times.columns()
    joules = fleet.energy_joules(compute_s, transmit_s, receive_s)
    median, ninety, largest = np.quantile(joules, [0.5, 0.9, 1.0]).tolist()
    return joules, {
        "total_j": float(joules.sum()),
        "compute_j": float((fleet.compute_w * compute_s).sum()),
        "transmit_j": float((fleet.transmit_w * transmit_s).sum()),
        "receive_j": float((fleet.receive_w * receive_s).sum()),
        "device_mean_j": float(joules.mean()),
        "device_median_j": median,
        "device_90_percent_j": ninety,
        "device_most_j": largest,
        "compute_s": float(compute_s.sum()),
        "radio_s": float(transmit_s.sum() + receive_s.sum()),
    }
