"""Synchronous rounds at a gateway (FedAvg, McMahan et al. 2017), with over-selection and a deadline.

    select --> wait for answers --> w <- sum n_i w_i / sum n_i --> select ...   Z rounds, then upload

Of n devices selected, a round waits for n / `over_selection` answers (Bonawitz et al. 2019 select 1.3 times as many
devices as they wait for). It closes with the last of these answers; or when all selected devices have answered or
failed (dropped, refused, timed out); or at the latest after `round_deadline`, which is the same for all gateways, and
after `round_patience` times the round latency of its slowest device. Jobs whose updates arrive later end as
`round_closed`; until then they use bandwidth.

Devices whose round latency is longer than the deadline are not selected (Nishio & Yonetani 2019 do so): their answers
would be dropped, and until then they would take bandwidth from others. Only if there is no other device, and nothing is
in flight, they are.

A round in which no device answered counts towards Z if there is a deadline: otherwise a gateway with slow devices alone
would hold up all others, since the cloud waits for its upload. While every device is still busy with an earlier round,
rounds without devices pass in the same way, each until its deadline or until a device is idle. Without a deadline, a
round without any update does not count. If nothing is in flight and no device can be selected, the clock stops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from async_hfl.core.arrays import Ints
from async_hfl.core.maths.aggregation import average, shares
from async_hfl.core.serialization import plain
from async_hfl.nodes.gateway.aggregation.contributions import adopt, models_of
from async_hfl.nodes.gateway.aggregation.rule import NEVER, Gateway, GatewayAggregation, HeldUpdate, Next


@plain
@dataclass(slots=True)
class RoundsState:
    rounds: int = 0
    """Rounds completed in this cycle; the gateway epoch counts those with updates over the whole run."""
    members: set[int] = field(default_factory=set)
    """Jobs of the current round. Their updates count while the round is open, even after a timeout."""
    awaited: set[int] = field(default_factory=set)
    """Members that have neither answered nor failed."""
    wanted: int = 0
    """The number of answers with which the current round closes; 0: all."""


class Rounds(GatewayAggregation):
    """`due` is the latest time at which the current round closes."""

    state_type = RoundsState
    state: RoundsState

    def adopted(self, gateway: Gateway, at: float) -> None:
        self.state.rounds = 0

    def may_select(self, gateway: Gateway) -> bool:
        return not (self.state.awaited or gateway.state.buffer)

    def may_adopt(self, gateway: Gateway) -> bool:
        return self.may_select(gateway)

    def eligible(self, gateway: Gateway, slots: Ints) -> Ints:
        quick = slots[gateway.state.device_table.round_latency[slots] <= round_deadline(gateway)]
        return quick if len(quick) or gateway.state.active else slots

    def selected(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> None:
        deadline = round_deadline(gateway)
        if jobs:
            in_flight_jobs, device_table = gateway.state.in_flight_jobs, gateway.state.device_table
            self.state.awaited = set(jobs)
            self.state.members = set(jobs)
            self.state.wanted = max(1, math.floor(len(jobs) / gateway.config.over_selection + 0.5))
            slowest = max(float(device_table.round_latency[in_flight_jobs[number].slot]) for number in jobs)
            self.due = at + min(deadline, gateway.config.round_patience * slowest)
        elif gateway.state.active and deadline < NEVER:
            self.due = at + deadline

    @property
    def cycle_round(self) -> int:
        return self.state.rounds

    def accepts(self, gateway: Gateway, job: int) -> bool:
        return job in self.state.members

    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        state, buffer = self.state, gateway.state.buffer
        state.awaited.discard(held.number)
        buffer.append(held)
        complete = not state.awaited or 0 < state.wanted <= len(buffer)
        return self._close(gateway, at) if complete else Next.NOTHING

    def failed(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> Next:
        failed = self.state.awaited.intersection(jobs)
        self.state.awaited -= failed
        return self._close(gateway, at) if failed and not self.state.awaited else Next.NOTHING

    def timer(self, gateway: Gateway, at: float) -> Next:
        return self._close(gateway, at, expired=True)

    def _close(self, gateway: Gateway, at: float, *, expired: bool = False) -> Next:
        state = self.state
        arrived, gateway.state.buffer = gateway.state.buffer, []
        self.due = NEVER
        state.members, state.awaited, state.wanted = set(), set(), 0
        if arrived:
            weights = shares([held.update.samples for held in arrived])
            adopt(gateway, average(models_of(gateway, arrived), weights), arrived, weights)
            gateway.state.gateway_epoch += 1
            for held, weight in zip(arrived, weights, strict=True):
                gateway.aggregated(held, at, staleness=1, weight=weight)
        if arrived or (expired and round_deadline(gateway) < NEVER):
            state.rounds += 1
        return Next.UPLOAD if state.rounds >= gateway.config.epochs else Next.SELECT


def round_deadline(gateway: Gateway) -> float:
    """Return the seconds after which a round closes: given, or the reference latency, the same at every gateway."""
    seconds = gateway.config.round_deadline
    return seconds if seconds > 0.0 else gateway.state.reference_latency or NEVER
