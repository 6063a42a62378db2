"""Synchronous rounds at a gateway (FedAvg, McMahan et al. 2017, with a time-out).

    select --> wait for all who were selected --> w <- sum n_i w_i / sum n_i --> select ...   Z rounds, then upload

A round closes when everybody selected has returned (or will not: dropped, refused, given up), or when it has lasted
`round_patience` times what its slowest was expected to take. Who comes later ends as `round_closed`; its bandwidth and
the device are taken until then. A round that nobody returned in does not count; one that nobody can be selected for
waits until somebody can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from async_hfl.core.maths.aggregation import average, shares
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import SetTimer
from async_hfl.core.protocol.records import JobEnd
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.nodes import update_ledger
from async_hfl.nodes.gateway.aggregation import cycle
from async_hfl.nodes.gateway.aggregation.protocol import HeldUpdate
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.gateway.selection_step import dispatch
from async_hfl.nodes.gateway.state import AGGREGATION_TIMER, NEVER, InFlightJob


@plain
@dataclass(slots=True)
class RoundsState:
    rounds: int = 0
    """Closed in this cycle; the gateway epoch counts them over the run."""
    members: set[int] = field(default_factory=set)
    """Jobs of the round under way: whoever comes while it is open counts, also if it was given up before."""
    awaited: set[int] = field(default_factory=set)
    """Those that the round waits for."""
    closes_at: float = NEVER
    arrived: list[HeldUpdate] = field(default_factory=list)
    updates: int = 0
    samples: int = 0
    """In the gateway's model since the cycle began."""


class Rounds:
    def __init__(self) -> None:
        self.state = RoundsState()

    def snapshot(self) -> Plain:
        return to_plain(self.state)

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data)

    def dispatches(self, node: GatewayNode) -> bool:
        return not self._under_way()

    def dispatched(self, node: GatewayNode, jobs: tuple[int, ...], at: float) -> None:
        state, in_flight_jobs, device_table = self.state, node.state.in_flight_jobs, node.state.device_table
        state.awaited = set(jobs)
        state.members = set(jobs)
        slowest = max(float(device_table.round_latency[in_flight_jobs[number].slot]) for number in jobs)
        state.closes_at = at + node.config.round_patience * slowest
        if state.closes_at < NEVER:
            node.emit(SetTimer(AGGREGATION_TIMER, state.closes_at))

    def received(self, node: GatewayNode, number: int, in_flight: InFlightJob, update: m.Update, at: float) -> None:
        if number not in self.state.members:
            update_ledger.landed(node, number, in_flight.slot)
            node.end_job(number, in_flight, "round_closed", at, update)
            dispatch(node, at)  # its bandwidth is free: a round that could not begin may begin now
            return
        self.state.awaited.discard(number)
        self.state.arrived.append(HeldUpdate(number, in_flight, update))
        if not self.state.awaited:
            self._close(node, at)

    def ended(self, node: GatewayNode, numbers: tuple[int, ...], at: float) -> None:
        concerned = self.state.awaited.intersection(numbers)
        self.state.awaited -= concerned
        if concerned and not self.state.awaited:
            self._close(node, at)

    def began(self, node: GatewayNode, model: m.GlobalModel, at: float) -> None:
        self._adopt(node, model, at)

    def answered(self, node: GatewayNode, answer: m.Answer, at: float) -> None:
        self._adopt(node, answer, at)

    def offered(self, node: GatewayNode, at: float) -> None:
        untouched = not self._under_way() and not self.state.updates
        if node.state.phase == "open" and untouched and node.state.newest is not None:
            self._adopt(node, node.state.newest, at)

    def due(self) -> float:
        return self.state.closes_at

    def timer(self, node: GatewayNode, at: float) -> None:
        self.state.awaited.clear()  # whoever comes now is late
        self._close(node, at)

    def waits(self, node: GatewayNode) -> bool:
        return self.state.updates > 0

    def idle(self, node: GatewayNode, at: float) -> None:
        self._upload(node, at, early=True)

    def held(self) -> Iterable[HeldUpdate]:
        return self.state.arrived

    def over(self, node: GatewayNode, reason: JobEnd, at: float, decided: Mapping[int, m.Outcome]) -> None:
        for held in self.state.arrived:
            node.end_job(held.number, held.in_flight, reason, at, held.update)
        cycle.abandon(node, self.state.updates, reason, at)
        self.state = RoundsState()

    def _under_way(self) -> bool:
        return bool(self.state.awaited or self.state.arrived)

    def _adopt(self, node: GatewayNode, model: m.GlobalModel | m.Answer, at: float) -> None:
        cycle.adopt(node, model)
        self.state.rounds = self.state.updates = self.state.samples = 0
        dispatch(node, at)

    def _close(self, node: GatewayNode, at: float) -> None:
        state, arrived = self.state, self.state.arrived
        state.closes_at = NEVER
        state.members = set()
        state.arrived = []
        if arrived:
            samples = [held.update.samples for held in arrived]
            weights = shares(samples)
            node.state.weights = average([held.update.weights for held in arrived], weights)
            node.state.gateway_epoch += 1
            for held, weight in zip(arrived, weights, strict=True):
                # Staleness as everywhere: the epoch being made minus the one that it started from.
                update_ledger.landed(node, held.number, held.in_flight.slot)
                node.end_job(held.number, held.in_flight, "aggregated", at, held.update, 1, weight)
            state.rounds += 1
            state.updates += len(arrived)
            state.samples += sum(samples)
        if state.rounds >= node.config.epochs:
            self._upload(node, at)
        else:
            dispatch(node, at)

    def _upload(self, node: GatewayNode, at: float, *, early: bool = False) -> None:
        cycle.upload(node, self.state.updates, self.state.samples, at, early=early)
