"""Bytes sent, by link, direction and kind. A message is counted when it is sent."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from async_hfl.core.identifiers import DEVICE_TIER, Address
from async_hfl.core.protocol.traffic import KINDS, Traffic
from async_hfl.core.serialization import Plain

DIRECTIONS = ("down", "up")
_WIDTH = len(DIRECTIONS) * len(KINDS)
_ZEROS = (0,) * _WIDTH


class Spent(NamedTuple):
    """Bytes sent until some moment."""

    total: int
    models_up: int
    """Bytes of models sent towards the cloud on either tier, which the paper's figures count."""


class ByteCounts:
    """Counters in flat arrays, eight per link: a few megabytes for 100,000 devices.

    Most devices use a single link, so each device has a row for its first link; further links are found by a dict."""

    def __init__(self, gateways: int, devices: int) -> None:
        self._gateways = gateways
        self._counts = array("q", bytes(8 * _WIDTH * (gateways + devices)))
        """A row for each gateway's link to the cloud, then for each device's first link, then for further links."""
        self._first = array("i", [-1]) * devices
        """The gateway at the other end of a device's first link."""
        self._further: dict[tuple[int, int], int] = {}
        self.total = 0
        self.models_up = 0
        """As in `Spent`."""

    def spent(self) -> Spent:
        """Return the bytes counted so far."""
        return Spent(self.total, self.models_up)

    def add(self, sender: Address, receiver: Address, traffic: Traffic) -> int:
        """Count one message and return its bytes."""
        sender_tier, sender_number = sender
        receiver_tier, receiver_number = receiver
        up = sender_tier > receiver_tier
        if up:
            tier, lower, upper = sender_tier, sender_number, receiver_number
        else:
            tier, lower, upper = receiver_tier, receiver_number, sender_number
        if tier != DEVICE_TIER:
            place = lower * _WIDTH
        elif self._first[lower] == upper:
            place = (self._gateways + lower) * _WIDTH
        else:
            place = self._place(upper, lower)
        if up:
            place += len(KINDS)
        counts = self._counts
        model, gradient, basis, control = traffic
        counts[place] += model
        counts[place + 3] += control
        if gradient:
            counts[place + 1] += gradient
        if basis:
            counts[place + 2] += basis
        size = model + gradient + basis + control
        self.total += size
        if up:
            self.models_up += model
        return size

    def _place(self, gateway: int, device: int) -> int:
        """Return the row of a link that is not (yet) the device's first."""
        if self._first[device] < 0:
            self._first[device] = gateway
            return (self._gateways + device) * _WIDTH
        place = self._further.get((gateway, device))
        if place is None:
            place = self._further[gateway, device] = len(self._counts)
            self._counts.extend(_ZEROS)
        return place

    def summary(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the bytes by tier, direction and kind."""
        counts = np.array(self._counts).reshape(-1, len(DIRECTIONS), len(KINDS))
        tiers = {"gateway-cloud": counts[: self._gateways], "device-gateway": counts[self._gateways :]}
        return {
            tier: {
                direction: dict(zip(KINDS, kinds, strict=True))
                for direction, kinds in zip(DIRECTIONS, rows.sum(axis=0).tolist(), strict=True)
            }
            for tier, rows in tiers.items()
        }

    def snapshot(self) -> Plain:
        return {
            "total": self.total,
            "models_up": self.models_up,
            "first": np.frombuffer(self._first, np.int32),
            "further": [[gateway, device, place] for (gateway, device), place in self._further.items()],
            "counts": np.frombuffer(self._counts, np.int64),
        }

    def restore(self, data: Plain) -> None:
        self.total, self.models_up = data["total"], data["models_up"]
        self._first = array("i", data["first"].tobytes())
        self._further = {(gateway, device): place for gateway, device, place in data["further"]}
        self._counts = array("q", data["counts"].tobytes())
