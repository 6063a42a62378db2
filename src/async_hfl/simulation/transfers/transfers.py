"""Transfers whose end is not known when they begin, because others share the air or an outage may cut them off.

In a plain run a transfer takes a delay that is known at once, and this module is not used. Here every transfer is kept
while it is in progress. The transfers of a gateway's devices share its medium if the network has one. The medium knows
which of them ends first; each start, end and cut replaces the one event that waits for that end, and a version number
tells the current event from replaced ones. A transfer costs O(log n) in the transfers of its gateway and O(1) in the
size of the network.

Bytes are counted when a transfer is over: all of them, or those that were sent before it broke off. The bytes sent so
far by transfers in progress are known at any time (`bytes_in_transit.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from async_hfl.core.identifiers import CLOUD_TIER, DEVICE_TIER, Address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.traffic import Traffic, subject, traffic
from async_hfl.core.randomness import scramble
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.network.description import DelayModel, SharedAir
from async_hfl.network.radio.medium import SharedMedium
from async_hfl.simulation.accounting.byte_counts import ByteCounts
from async_hfl.simulation.accounting.device_times import DeviceTimes
from async_hfl.simulation.event_queue import SHELL, EventQueue
from async_hfl.simulation.transfers.bytes_in_transit import Rate, Sent, TransferGroup

ONE_FRAME = 1500
"""Bytes of a message that takes about one frame. Such a message does not take part in sharing the air."""
_UNIT = 2.0**-53


@plain
@dataclass(frozen=True, slots=True)
class Transfer:
    sender: Address
    to: Address
    message: m.Message
    wrapping: tuple[int, ...]
    """Run, incarnation and number of the packet, from the delivery layer; empty where there is none."""
    began: float
    alone_s: float
    """Duration with the air to itself."""
    share: float
    """Share of the bytes that will be sent before it breaks off by chance; 1: it arrives."""
    air: int
    """The gateway whose air it uses; -1 for none."""


@plain
@dataclass(frozen=True, slots=True)
class TransferDue:
    """Event: a transfer is over, unless it was cut off."""

    number: int


@plain
@dataclass(frozen=True, slots=True)
class AirDue:
    """Event: the first transfer in a gateway's air has ended, unless a later version replaced this event."""

    gateway: int
    version: int


class Transfers:
    def __init__(
        self,
        queue: EventQueue,
        delays: DelayModel,
        air: SharedAir | None,
        gateways: int,
        byte_counts: ByteCounts,
        times: DeviceTimes,
        write_sent: Callable[..., None],
        loss: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.queue, self.delays, self.air = queue, delays, air
        self.byte_counts, self.times, self.write_sent = byte_counts, times, write_sent
        self.loss, self.seed = loss, seed
        self._number = 0
        self._in_progress: dict[int, Transfer] = {}
        self._touching: dict[Address, dict[int, None]] = {}
        """Numbers of the transfers in progress, by either end."""
        efficiency = (1.0,) if air is None else air.efficiency
        self._media = [SharedMedium[int](efficiency) for _ in range(gateways if air is not None else 0)]
        self._versions = [0] * len(self._media)
        self._steady, self._sent = len(self._media), len(self._media) + 1
        self._groups = [TransferGroup() for _ in range(len(self._media) + 2)]
        """One for the air of each gateway, one for transfers at a steady rate, one for those sent but not arrived."""
        self._rates: dict[int, tuple[int, Rate]] = {}
        """Group and rate of each transfer in progress."""

    def start(
        self, at: float, sender: Address, to: Address, message: m.Message, wrapping: tuple[int, ...] = ()
    ) -> None:
        size = traffic(message).total
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
        self._in_progress[number] = transfer
        for end in (sender, to):
            self._touching.setdefault(end, {})[number] = None
        if air < 0:
            self._enter(number, self._steady, at, share * alone_s, *self._bytes(transfer))
            self.queue.push(at + share * alone_s, SHELL, TransferDue(number))
        else:
            assert self.air is not None
            medium, airtime = self._media[air], share * max(0.0, alone_s - self.air.latency)
            medium.start(at, number, airtime, upload)
            self._enter(number, air, medium.virtual(at), airtime, *self._bytes(transfer))
            self._arm(air)

    def _enter(self, number: int, group: int, began: float, takes: float, size: float, models_up: float) -> None:
        """Add a transfer to a group; one that takes no time is sent at once."""
        if takes > 0.0:
            rate = Rate(began, size / takes, models_up / takes)
        else:
            group, rate = self._sent, Rate(0.0, size, models_up)
        self._groups[group].enter(rate)
        self._rates[number] = (group, rate)

    def _bytes(self, transfer: Transfer) -> tuple[float, float]:
        """Return the bytes that will have been sent when it is over, and those of models towards the cloud."""
        parts = traffic(transfer.message)
        models_up = parts.model if transfer.sender.tier > transfer.to.tier else 0
        return transfer.share * parts.total, transfer.share * models_up

    def sent_so_far(self, at: float) -> Sent:
        """Return the bytes sent by transfers in progress, which are not in the byte counts yet."""
        sent = self._groups[self._steady].sent(at).plus(self._groups[self._sent].sent(1.0))
        for medium, group in zip(self._media, self._groups, strict=False):
            if group.count:
                sent = sent.plus(group.sent(medium.virtual(at)))
        return sent

    def delay(self, sender: Address, to: Address, size: int) -> float:
        """Return the seconds that so many bytes take without other transfers."""
        delays = self.delays
        if to.tier == DEVICE_TIER:
            return delays.to_device(sender.number, to.number, size)
        if to.tier == CLOUD_TIER:
            return delays.gateway_to_cloud(sender.number, size)
        if sender.tier == DEVICE_TIER:
            return delays.to_gateway(sender.number, to.number, size)
        return delays.cloud_to_gateway(to.number, size)

    def air_due(self, at: float, due: AirDue) -> None:
        """Handle the end of the first transfer in a gateway's air, unless the event was replaced."""
        if due.version != self._versions[due.gateway]:
            return
        assert self.air is not None
        _, number = self._media[due.gateway].end()
        group, rate = self._rates[number]
        if group == due.gateway:
            transfer = self._in_progress[number]
            self._groups[group].leave(rate)
            self._enter(number, self._sent, at, 0.0, *self._bytes(transfer))
        self.queue.push(at + self.air.latency, SHELL, TransferDue(number))
        self._arm(due.gateway)

    def ended(self, at: float, due: TransferDue) -> Transfer | None:
        """Return the transfer that is over; None if it was cut off before. It is complete if its `share` is 1."""
        transfer = self._in_progress.get(due.number)
        if transfer is not None:
            self._take(due.number, transfer, at, transfer.share)
        return transfer

    def cut(self, at: float, one: Address, other: Address | None = None) -> list[Transfer]:
        """Cut off all transfers from or to a node, or between two nodes, and return them."""
        numbers = set(self._touching.get(one, ()))
        if other is not None:
            numbers.intersection_update(self._touching.get(other, ()))
        return [self._cut(at, number) for number in sorted(numbers)]

    def cut_all(self, at: float) -> None:
        """Cut off all transfers, because the run is over."""
        for number in sorted(self._in_progress):
            self._cut(at, number)

    def _cut(self, at: float, number: int) -> Transfer:
        transfer = self._in_progress[number]
        if transfer.air >= 0 and number in self._media[transfer.air]:
            gone = transfer.share * self._media[transfer.air].cut(at, number)
            self._arm(transfer.air)
        elif transfer.air >= 0 or transfer.alone_s <= 0.0:
            gone = transfer.share  # everything is sent, only the latency was left
        else:
            gone = min(transfer.share, (at - transfer.began) / transfer.alone_s)
        self._take(number, transfer, at, gone)
        return transfer

    def _take(self, number: int, transfer: Transfer, at: float, share: float) -> None:
        sender, to, message = transfer.sender, transfer.to, transfer.message
        del self._in_progress[number]
        group, rate = self._rates.pop(number)
        self._groups[group].leave(rate)
        for end in (sender, to):
            touching = self._touching[end]
            del touching[number]
            if not touching:
                del self._touching[end]
        size = traffic(message)
        if share < 1.0:
            size = Traffic(*(int(share * part) for part in size))
        self.byte_counts.add(sender, to, size)
        self.write_sent(
            transfer.began, sender, to, type(message).__name__, subject(message), at - transfer.began, *size
        )
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
        """Yield the state in parts of at most `chunk` transfers, at least one part."""
        media = [[medium.snapshot(), version] for medium, version in zip(self._media, self._versions, strict=True)]
        groups = [group.snapshot() for group in self._groups]
        yield {"number": self._number, "media": media, "groups": groups, "in_progress": []}
        left = iter(self._in_progress.items())
        while part := list(islice(left, chunk)):
            yield {"in_progress": [[number, to_plain(transfer), *self._rates[number]] for number, transfer in part]}

    def restore(self, parts: list[Plain]) -> None:
        self._number = parts[0]["number"]
        for place, (medium, version) in enumerate(parts[0]["media"]):
            self._media[place].restore(medium)
            self._versions[place] = version
        for place, group in enumerate(parts[0]["groups"]):
            self._groups[place].restore(group)
        self._in_progress, self._touching, self._rates = {}, {}, {}
        for part in parts:
            for number, data, place, rate in part["in_progress"]:
                transfer: Transfer = from_plain(data)
                self._in_progress[number] = transfer
                self._rates[number] = (place, Rate(*rate))
                for end in (transfer.sender, transfer.to):
                    self._touching.setdefault(end, {})[number] = None
