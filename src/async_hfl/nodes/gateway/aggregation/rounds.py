"""Synchronous rounds at a gateway (FedAvg, McMahan et al. 2017, with a timeout).

    select --> wait for all selected devices --> w <- sum n_i w_i / sum n_i --> select ...   Z rounds, then upload

A round closes when every selected device has sent its update or has failed (dropped, refused, timed out), or after
`round_patience` times the round latency of its slowest device. Jobs whose updates arrive later end as `round_closed`;
until then they use bandwidth. A round without any update does not count. If no device can be selected, the next round
begins as soon as one can.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from async_hfl.core.maths.aggregation import average, shares
from async_hfl.core.serialization import plain
from async_hfl.nodes.gateway.aggregation.rule import NEVER, Gateway, GatewayAggregation, HeldUpdate, Next


@plain
@dataclass(slots=True)
class RoundsState:
    rounds: int = 0
    """Rounds completed in this cycle; the gateway epoch counts them over the whole run."""
    members: set[int] = field(default_factory=set)
    """Jobs of the current round. Their updates count while the round is open, even after a timeout."""
    awaited: set[int] = field(default_factory=set)
    """Members that the round still waits for."""


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

    def selected(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> None:
        if not jobs:
            return
        in_flight_jobs, device_table = gateway.state.in_flight_jobs, gateway.state.device_table
        self.state.awaited = set(jobs)
        self.state.members = set(jobs)
        slowest = max(float(device_table.round_latency[in_flight_jobs[number].slot]) for number in jobs)
        self.due = at + gateway.config.round_patience * slowest

    def accepts(self, gateway: Gateway, job: int) -> bool:
        return job in self.state.members

    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        self.state.awaited.discard(held.number)
        gateway.state.buffer.append(held)
        return Next.NOTHING if self.state.awaited else self._close(gateway, at)

    def failed(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> Next:
        failed = self.state.awaited.intersection(jobs)
        self.state.awaited -= failed
        return self._close(gateway, at) if failed and not self.state.awaited else Next.NOTHING

    def timer(self, gateway: Gateway, at: float) -> Next:
        self.state.awaited.clear()
        return self._close(gateway, at)

    def _close(self, gateway: Gateway, at: float) -> Next:
        state = self.state
        arrived, gateway.state.buffer = gateway.state.buffer, []
        self.due = NEVER
        state.members = set()
        if arrived:
            weights = shares([held.update.samples for held in arrived])
            gateway.weights = average([held.weights for held in arrived], weights)
            gateway.state.gateway_epoch += 1
            for held, weight in zip(arrived, weights, strict=True):
                gateway.aggregated(held, at, staleness=1, weight=weight)
            state.rounds += 1
        return Next.UPLOAD if state.rounds >= gateway.config.epochs else Next.SELECT
