"""Transfers whose end is not known when they begin: others share the air with them, or an outage cuts them off.

A plain run does without: there a delay is asked for once and the arrival goes onto the heap. Here every transfer is
kept while it is under way. Those of a gateway's devices share its medium, if the network has one: the medium knows
which of them ends first, and each start, end and cut replaces the one event that waits for that end (a version tells
the newest from those replaced). So a transfer costs O(log n) in the transfers of its gateway and O(1) in the network.

What was sent is booked when it is over: in full, or as much of it as went before it broke off. How much of what is
under way has gone so far is known at any time (`under_way.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from async_hfl.core.identifiers import CLOUD_TIER, DEVICE_TIER, Address, JobId, UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.traffic import Traffic, traffic
from async_hfl.core.randomness import scramble
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.network.description import DelayModel, SharedAir
from async_hfl.network.radio.medium import SharedMedium
from async_hfl.simulation.accounting.byte_counts import ByteCounts
from async_hfl.simulation.accounting.device_times import DeviceTimes
from async_hfl.simulation.event_queue import SHELL, EventQueue
from async_hfl.simulation.transfers.bytes_in_transit import Lane, Pace, Sent

ONE_FRAME = 1500
"""Bytes up to which a message is a frame or so, which finds its place between those of others."""
_UNIT = 2.0**-53


@plain
@dataclass(frozen=True, slots=True)
class Transfer:
    sender: Address
    to: Address
    message: m.Message
    wrapping: tuple[int, ...]
    """What delivery wrote on it: run, incarnation, number; empty where nobody did."""
    began: float
    alone_s: float
    """How long it takes with the air to itself."""
    share: float
    """Of its bytes that will go before it breaks off by chance; 1: it arrives."""
    air: int
    """The gateway whose air it takes, -1 for none."""


@plain
@dataclass(frozen=True, slots=True)
class TransferDue:
    number: int


@plain
@dataclass(frozen=True, slots=True)
class AirDue:
    gateway: int
    version: int


class Transfers:
    def __init__(
        self,
        queue: EventQueue,
        delays: DelayModel,
        air: SharedAir | None,
        gateways: int,
        model_bytes: int,
        byte_counts: ByteCounts,
        times: DeviceTimes,
        write_sent: Callable[..., None],
        loss: float = 0.0,
        seed: int = 0,
        share: float = 1.0,
    ) -> None:
        self.queue, self.delays, self.air = queue, delays, air
        self.model_bytes, self.byte_counts, self.times, self.write_sent = model_bytes, byte_counts, times, write_sent
        self.loss, self.seed, self.share = loss, seed, share
        self._number = 0
        self._underway: dict[int, Transfer] = {}
        self._touching: dict[Address, dict[int, None]] = {}
        """Numbers of the transfers under way, by either end."""
        efficiency = (1.0,) if air is None else air.efficiency
        self._media = [SharedMedium[int](efficiency) for _ in range(gateways if air is not None else 0)]
        self._versions = [0] * len(self._media)
        self._steady, self._landing = len(self._media), len(self._media) + 1
        self._lanes = [Lane() for _ in range(len(self._media) + 2)]
        """A lane for each gateway's air; for what goes at its own speed; for what has gone and not arrived."""
        self._paces: dict[int, tuple[int, Pace]] = {}

    def start(
        self, at: float, sender: Address, to: Address, message: m.Message, wrapping: tuple[int, ...] = ()
    ) -> None:
        size = traffic(message, self.model_bytes, self.share).total
        alone_s = self.delay(sender, to, size)
        self._number = number = self._number + 1
        share = 1.0
        if self.loss > 0.0:
            bits = scramble(self.seed ^ number)
            if (bits >> 11) * _UNIT < self.loss:
                share = (scramble(bits) >> 11) * _UNIT
        air, upload = -1, sender.tier == DEVICE_TIER
        if self._media and size > ONE_FRAME and (upload or to.tier == DEVICE_TIER):
            air = to.number if upload else sender.number
        transfer = Transfer(sender, to, message, wrapping, at, alone_s, share, air)
        self._underway[number] = transfer
        for end in (sender, to):
            self._touching.setdefault(end, {})[number] = None
        if air < 0:
            self._watch(number, self._steady, at, share * alone_s, *self._bytes(transfer))
            self.queue.push(at + share * alone_s, SHELL, TransferDue(number))
        else:
            assert self.air is not None
            medium, airtime = self._media[air], share * max(0.0, alone_s - self.air.latency)
            medium.start(at, number, airtime, upload)
            self._watch(number, air, medium.virtual(at), airtime, *self._bytes(transfer))
            self._arm(air)

    def _watch(self, number: int, lane: int, began: float, takes: float, size: float, models_up: float) -> None:
        """Count a transfer among those under way; one that takes no time has gone at once."""
        if takes > 0.0:
            pace = Pace(began, size / takes, models_up / takes)
        else:
            lane, pace = self._landing, Pace(0.0, size, models_up)
        self._lanes[lane].enter(pace)
        self._paces[number] = (lane, pace)

    def _bytes(self, transfer: Transfer) -> tuple[float, float]:
        """That will have gone when it is over; and those of models towards the cloud."""
        parts = traffic(transfer.message, self.model_bytes)
        models_up = parts.model if transfer.sender.tier > transfer.to.tier else 0
        return transfer.share * parts.total, transfer.share * models_up

    def sent_so_far(self, at: float) -> Sent:
        """Of the transfers under way; not in the ledger yet."""
        sent = self._lanes[self._steady].sent(at).plus(self._lanes[self._landing].sent(1.0))
        for medium, lane in zip(self._media, self._lanes, strict=False):
            if lane.count:
                sent = sent.plus(lane.sent(medium.virtual(at)))
        return sent

    def delay(self, sender: Address, to: Address, size: int) -> float:
        """How long so many bytes take alone."""
        delays = self.delays
        if to.tier == DEVICE_TIER:
            return delays.to_device(sender.number, to.number, size)
        if to.tier == CLOUD_TIER:
            return delays.gateway_to_cloud(sender.number, size)
        if sender.tier == DEVICE_TIER:
            return delays.to_gateway(sender.number, to.number, size)
        return delays.cloud_to_gateway(to.number, size)

    def air_due(self, at: float, due: AirDue) -> None:
        """The first transfer in some gateway's air has ended, unless that changed since."""
        if due.version != self._versions[due.gateway]:
            return
        assert self.air is not None
        _, number = self._media[due.gateway].end()
        lane, pace = self._paces[number]
        if lane == due.gateway:
            transfer = self._underway[number]
            self._lanes[lane].leave(pace)
            self._watch(number, self._landing, at, 0.0, *self._bytes(transfer))
        self.queue.push(at + self.air.latency, SHELL, TransferDue(number))
        self._arm(due.gateway)

    def ended(self, at: float, due: TransferDue) -> Transfer | None:
        """A transfer that is over; None if it was cut off before. `share` tells whether it is whole."""
        transfer = self._underway.get(due.number)
        if transfer is not None:
            self._take(due.number, transfer, at, transfer.share)
        return transfer

    def cut(self, at: float, one: Address, other: Address | None = None) -> list[Transfer]:
        """All transfers from or to a node (or between two) break off; returns them."""
        numbers = set(self._touching.get(one, ()))
        if other is not None:
            numbers.intersection_update(self._touching.get(other, ()))
        return [self._cut(at, number) for number in sorted(numbers)]

    def cut_all(self, at: float) -> None:
        """The run is over: what has not arrived never will."""
        for number in sorted(self._underway):
            self._cut(at, number)

    def _cut(self, at: float, number: int) -> Transfer:
        transfer = self._underway[number]
        if transfer.air >= 0 and number in self._media[transfer.air]:
            gone = transfer.share * self._media[transfer.air].cut(at, number)
            self._arm(transfer.air)
        elif transfer.air >= 0 or transfer.alone_s <= 0.0:
            gone = transfer.share  # all of it is in the air: only the latency was left
        else:
            gone = min(transfer.share, (at - transfer.began) / transfer.alone_s)
        self._take(number, transfer, at, gone)
        return transfer

    def _take(self, number: int, transfer: Transfer, at: float, share: float) -> None:
        sender, to, message = transfer.sender, transfer.to, transfer.message
        del self._underway[number]
        lane, pace = self._paces.pop(number)
        self._lanes[lane].leave(pace)
        for end in (sender, to):
            touching = self._touching[end]
            del touching[number]
            if not touching:
                del self._touching[end]
        size = traffic(message, self.model_bytes, self.share)
        if share < 1.0:
            size = Traffic(*(int(share * part) for part in size))
        self.byte_counts.add(sender, to, size)
        self.write_sent(transfer.began, sender, to, type(message).__name__, about(message), at - transfer.began, *size)
        if sender.tier == DEVICE_TIER:
            self.times.transmit_s[sender.number] += share * transfer.alone_s
        elif to.tier == DEVICE_TIER:
            self.times.receive_s[to.number] += share * transfer.alone_s

    def _arm(self, gateway: int) -> None:
        self._versions[gateway] += 1
        due = self._media[gateway].next_end()
        if due is not None:
            self.queue.push(due[0], SHELL, AirDue(gateway, self._versions[gateway]))

    def snapshot(self, chunk: int) -> Iterator[Plain]:
        """In parts of at most `chunk` transfers, at least one part."""
        media = [[medium.snapshot(), version] for medium, version in zip(self._media, self._versions, strict=True)]
        lanes = [lane.snapshot() for lane in self._lanes]
        yield {"number": self._number, "media": media, "lanes": lanes, "underway": []}
        left = iter(self._underway.items())
        while part := list(islice(left, chunk)):
            yield {"underway": [[number, to_plain(transfer), *self._paces[number]] for number, transfer in part]}

    def restore(self, parts: list[Plain]) -> None:
        self._number = parts[0]["number"]
        for place, (medium, version) in enumerate(parts[0]["media"]):
            self._media[place].restore(medium)
            self._versions[place] = version
        for place, lane in enumerate(parts[0]["lanes"]):
            self._lanes[place].restore(lane)
        self._underway, self._touching, self._paces = {}, {}, {}
        for part in parts:
            for number, data, where, pace in part["underway"]:
                transfer: Transfer = from_plain(data)
                self._underway[number] = transfer
                self._paces[number] = (where, Pace(*pace))
                for end in (transfer.sender, transfer.to):
                    self._touching.setdefault(end, {})[number] = None


def about(message: Any) -> JobId | UploadId | None:
    """The job or upload that a message with a model belongs to."""
    kind = type(message)
    if kind is m.Train or kind is m.Update:
        job: JobId = message.job
        return job
    if kind is m.Upload or kind is m.Answer:
        upload: UploadId = message.upload
        return upload
    return None
