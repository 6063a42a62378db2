"""Bytes sent, by link, direction and kind. Every message counts when sent."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from async_hfl.core.identifiers import DEVICE_TIER, Address
from async_hfl.core.plain import Plain
from async_hfl.core.traffic import KINDS, Traffic

DIRECTIONS = ("down", "up")
_WIDTH = len(DIRECTIONS) * len(KINDS)
_ZEROS = (0,) * _WIDTH


class Ledger:
    """One flat array of counters, eight a link: a run of 100,000 devices keeps its books in a few megabytes."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._counts = array("q")
        self.total = 0
        self.models_up = 0
        """Models travelling towards the cloud on either tier: what the paper's figures count."""

    def add(self, sender: Address, receiver: Address, traffic: Traffic) -> int:
        """Book one message; returns its bytes."""
        up = sender.tier > receiver.tier
        lower, upper = (sender, receiver) if up else (receiver, sender)
        # A link is (gateway, device), or (gateway, -1) for the gateway's link to the cloud, packed into one number.
        key = (upper.number << 32) + lower.number + 1 if lower.tier == DEVICE_TIER else lower.number << 32
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._counts)
            self._counts.extend(_ZEROS)
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

    def links(self) -> Iterator[tuple[int, int, list[int]]]:
        """(gateway, device or -1 for the cloud, bytes down by kind and then up by kind) of every link used."""
        for key, place in self._places.items():
            yield key >> 32, (key & 0xFFFFFFFF) - 1, self._counts[place : place + _WIDTH].tolist()

    def summary(self) -> dict[str, dict[str, dict[str, int]]]:
        """tier -> direction -> kind -> bytes."""
        table = {tier: {d: dict.fromkeys(KINDS, 0) for d in DIRECTIONS} for tier in ("gateway-cloud", "device-gateway")}
        for _, device, row in self.links():
            side = table["gateway-cloud" if device < 0 else "device-gateway"]
            for position, size in enumerate(row):
                side[DIRECTIONS[position // len(KINDS)]][KINDS[position % len(KINDS)]] += size
        return table

    def snapshot(self) -> Plain:
        return {
            "total": self.total,
            "models_up": self.models_up,
            "links": np.array(list(self._places), np.int64),
            "counts": np.array(self._counts, np.int64),
        }

    def restore(self, data: Plain) -> None:
        self.total, self.models_up = data["total"], data["models_up"]
        self._places = {int(key): _WIDTH * row for row, key in enumerate(data["links"])}
        self._counts = array("q", data["counts"].tobytes())
