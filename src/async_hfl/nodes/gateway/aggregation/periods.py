"""Semi-asynchronous periods at a gateway: FedBuff (Nguyen et al. 2022) with a clock in place of a buffer size.

At the end of each period of P seconds, over what arrived in it,

    w <- w + sum_i n_i s(age_i) (w_i - w_sent_i) / sum_i n_i,

n_i the samples of device i, age_i in periods: 0 in the period that the job was sent in. Late updates are used when
they come, also across uploads; an empty period changes nothing. Devices are selected when a period begins. After Z
periods the gateway uploads and waits; the clock stands still meanwhile, and while there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.maths.aggregation import add_changes, shares
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
class PeriodsState:
    periods: int = 0
    """Closed in this cycle; the gateway epoch counts them over the run."""
    ends_at: float = NEVER
    """When the period under way is over; infinite while the clock stands still."""
    arrived: list[HeldUpdate] = field(default_factory=list)
    """In this period, or while the gateway waited for the cloud."""
    updates: int = 0
    samples: int = 0
    """In the gateway's model since the cycle began."""


class Periods:
    def __init__(self) -> None:
        self.state = PeriodsState()

    def snapshot(self) -> Plain:
        return to_plain(self.state)

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data)

    def dispatches(self, node: GatewayNode) -> bool:
        return self.state.ends_at == NEVER  # when a period begins: later ones would begin from the same, older model

    def dispatched(self, node: GatewayNode, jobs: tuple[int, ...], at: float) -> None:
        self._wind(node, at)

    def received(self, node: GatewayNode, number: int, in_flight: InFlightJob, update: m.Update, at: float) -> None:
        self.state.arrived.append(HeldUpdate(number, in_flight, update))
        dispatch(node, at)
        self._wind(node, at)

    def ended(self, node: GatewayNode, numbers: tuple[int, ...], at: float) -> None:
        return

    def began(self, node: GatewayNode, model: m.GlobalModel, at: float) -> None:
        self._adopt(node, model, at)

    def answered(self, node: GatewayNode, answer: m.Answer, at: float) -> None:
        self._adopt(node, answer, at)

    def offered(self, node: GatewayNode, at: float) -> None:
        if node.state.phase == "open" and self.state.ends_at == NEVER and node.state.newest is not None:
            self._adopt(node, node.state.newest, at)

    def due(self) -> float:
        return self.state.ends_at

    def timer(self, node: GatewayNode, at: float) -> None:
        self.state.ends_at = NEVER
        self._aggregate(node, at)
        self.state.periods += 1
        node.state.gateway_epoch += 1
        if self.state.periods >= node.config.epochs:
            cycle.upload(node, self.state.updates, self.state.samples, at)
        else:
            dispatch(node, at)
            self._wind(node, at)

    def waits(self, node: GatewayNode) -> bool:
        return False  # the clock goes on while anything was mixed, so a cycle with updates comes to its end by itself

    def idle(self, node: GatewayNode, at: float) -> None:
        return

    def held(self) -> Iterable[HeldUpdate]:
        return self.state.arrived

    def over(self, node: GatewayNode, reason: JobEnd, at: float, decided: Mapping[int, m.Outcome]) -> None:
        for held in self.state.arrived:
            node.end_job(held.number, held.in_flight, reason, at, held.update)
        cycle.abandon(node, self.state.updates, reason, at)
        self.state = PeriodsState()

    def _adopt(self, node: GatewayNode, model: m.GlobalModel | m.Answer, at: float) -> None:
        cycle.adopt(node, model)
        self.state.periods = self.state.updates = self.state.samples = 0
        dispatch(node, at)
        self._wind(node, at)

    def _wind(self, node: GatewayNode, at: float) -> None:
        """Let the clock run while there is something to wait for."""
        state = self.state
        if node.state.phase != "open" or state.ends_at < NEVER:
            return
        if state.arrived or state.updates or node.state.active:
            state.ends_at = at + node.config.period
            node.emit(SetTimer(AGGREGATION_TIMER, state.ends_at))

    def _aggregate(self, node: GatewayNode, at: float) -> None:
        state, config = node.state, node.config
        fresh: list[tuple[HeldUpdate, int]] = []
        for held in self.state.arrived:
            age = state.gateway_epoch - held.in_flight.gateway_epoch
            if age < 0:
                raise InvariantViolation(f"job {held.number} of gateway {config.number} is {age} periods old")
            update_ledger.landed(node, held.number, held.in_flight.slot)
            if age > node.max_staleness():
                node.end_job(held.number, held.in_flight, "stale", at, held.update, age)
            else:
                fresh.append((held, age))
        self.state.arrived = []
        if not fresh:
            return
        parts = shares([held.update.samples for held, _ in fresh])
        weights = [part * config.staleness(age) for part, (_, age) in zip(parts, fresh, strict=True)]
        assert state.weights is not None
        state.weights = add_changes(
            state.weights,
            [held.update.weights for held, _ in fresh],
            [held.in_flight.sent for held, _ in fresh],
            weights,
        )
        for weight, (held, age) in zip(weights, fresh, strict=True):
            node.end_job(held.number, held.in_flight, "aggregated", at, held.update, age, weight)
        self.state.updates += len(fresh)
        self.state.samples += sum(held.update.samples for held, _ in fresh)
