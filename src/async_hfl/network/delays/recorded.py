"""Delays replayed from a recording: every link, device and backhaul has its own sequence of recorded values.

"order" replays the values one after the other and starts over at the end, so that bursts and slow hours stay together
and nothing is random. "resample" draws from the same values by the seed: the same distribution, in random order.
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
class RecordedValues:
    """The recorded values of many links, devices or gateways, and the number of values that each has replayed."""

    def __init__(self, values: Sequence[Sequence[float]], replay: Replay, seed: int) -> None:
        self._values = [array("d", of_place) for of_place in values]
        self._replayed = array("q", bytes(8 * len(values)))
        self._seed = seed if replay == "resample" else None

    def next(self, source: int, *, advance: bool = True) -> float:
        """Return the next value of a source. Without `advance`, the following call returns it again."""
        values, count = self._values[source], self._replayed[source]
        if advance:
            self._replayed[source] = count + 1
        if self._seed is None:
            return values[count % len(values)]
        return values[scramble(scramble(self._seed ^ source) ^ count) % len(values)]

    def snapshot(self) -> Plain:
        return np.array(self._replayed, np.int64)

    def restore(self, data: Plain) -> None:
        self._replayed = array("q", np.asarray(data, np.int64).tobytes())


@final
@dataclass(frozen=True, slots=True, eq=False)
class TraceDelays:
    """A DelayModel. Every `*_pace` is in seconds per byte on top of the latency, the time of an empty message."""

    links: LinkLookup
    least_model_bytes: int
    """Smaller messages use the pace of the next model without consuming it: only models were recorded."""
    link_latency: float
    backhaul_latency: float
    download_pace: RecordedValues
    """Per link."""
    upload_pace: RecordedValues
    compute_seconds: RecordedValues
    """Per device."""
    to_cloud_pace: RecordedValues
    """Per gateway."""
    to_gateway_pace: RecordedValues

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        link, model = self.links.find(device, gateway), size_bytes >= self.least_model_bytes
        return self.link_latency + size_bytes * self.download_pace.next(link, advance=model)

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        link, model = self.links.find(device, gateway), size_bytes >= self.least_model_bytes
        return self.link_latency + size_bytes * self.upload_pace.next(link, advance=model)

    def compute(self, device: int) -> float:
        return self.compute_seconds.next(device)

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        pace = self.to_cloud_pace.next(gateway, advance=size_bytes >= self.least_model_bytes)
        return self.backhaul_latency + size_bytes * pace

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        pace = self.to_gateway_pace.next(gateway, advance=size_bytes >= self.least_model_bytes)
        return self.backhaul_latency + size_bytes * pace

    def snapshot(self) -> Plain:
        return [recording.snapshot() for recording in self._recordings()]

    def restore(self, data: Plain) -> None:
        for recording, replayed in zip(self._recordings(), data, strict=True):
            recording.restore(replayed)

    def _recordings(self) -> tuple[RecordedValues, ...]:
        return (self.download_pace, self.upload_pace, self.compute_seconds, self.to_cloud_pace, self.to_gateway_pace)
