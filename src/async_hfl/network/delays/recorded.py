"""Delays as they were recorded: every link, device and backhaul goes through its own past.

"order" takes what was recorded one after the other and then begins again: bursts and slow hours stay together, and
nothing is left to chance. "resample" draws from the same records by the seed: no order, the same distribution.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from async_hfl.core.randomness import scramble
from async_hfl.core.serialization import Plain
from async_hfl.network.link_lookup import LinkLookup

Replay = Literal["order", "resample"]


@final
class Past:
    """Recorded values of many places (links, devices, gateways), and how many each has given out."""

    def __init__(self, values: Sequence[Sequence[float]], replay: Replay, seed: int) -> None:
        self._values = [array("d", of_place) for of_place in values]
        self._given = array("q", bytes(8 * len(values)))
        self._seed = seed if replay == "resample" else None

    def next(self, place: int, *, go_on: bool = True) -> float:
        """Without going on, the value that comes next comes again."""
        values, count = self._values[place], self._given[place]
        if go_on:
            self._given[place] = count + 1
        if self._seed is None:
            return values[count % len(values)]
        return values[scramble(scramble(self._seed ^ place) ^ count) % len(values)]

    def snapshot(self) -> Plain:
        return np.array(self._given, np.int64)

    def restore(self, given: Plain) -> None:
        self._given = array("q", np.asarray(given, np.int64).tobytes())


@final
@dataclass(frozen=True, slots=True, eq=False)
class TraceDelays:
    """A DelayModel. `*_pace` are seconds a byte beyond the latency, which is what a message of no length would take."""

    links: LinkLookup
    least_model_bytes: int
    """Smaller messages take the pace of the next model and leave it to that: only models were recorded for pace."""
    link_latency: float
    backhaul_latency: float
    download_pace: Past
    """Per link."""
    upload_pace: Past
    compute_seconds: Past
    """Per device."""
    to_cloud_pace: Past
    """Per gateway."""
    to_gateway_pace: Past

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        link, model = self.links.find(device, gateway), size_bytes >= self.least_model_bytes
        return self.link_latency + size_bytes * self.download_pace.next(link, go_on=model)

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        link, model = self.links.find(device, gateway), size_bytes >= self.least_model_bytes
        return self.link_latency + size_bytes * self.upload_pace.next(link, go_on=model)

    def compute(self, device: int) -> float:
        return self.compute_seconds.next(device)

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        pace = self.to_cloud_pace.next(gateway, go_on=size_bytes >= self.least_model_bytes)
        return self.backhaul_latency + size_bytes * pace

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        pace = self.to_gateway_pace.next(gateway, go_on=size_bytes >= self.least_model_bytes)
        return self.backhaul_latency + size_bytes * pace

    def snapshot(self) -> Plain:
        return [past.snapshot() for past in self._pasts()]

    def restore(self, data: Plain) -> None:
        for past, given in zip(self._pasts(), data, strict=True):
            past.restore(given)

    def _pasts(self) -> tuple[Past, ...]:
        return (self.download_pace, self.upload_pace, self.compute_seconds, self.to_cloud_pace, self.to_gateway_pace)
