"""Relay: a gateway of two-tier asynchronous FL (FedAsync, Xie et al. 2019) only passes models on.

An update goes to the cloud at once, with the cloud epoch that its device downloaded; several may be outstanding. When
an answer arrives the gateway selects and sends the newest model. A job ends when the cloud says what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.records import JobEnd
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.nodes import update_ledger
from async_hfl.nodes.gateway.aggregation.protocol import HeldUpdate
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.gateway.selection_step import dispatch
from async_hfl.nodes.gateway.state import NEVER, InFlightJob
from async_hfl.nodes.gateway.uploads import upload


@plain
@dataclass(slots=True)
class RelayState:
    relayed: dict[int, HeldUpdate] = field(default_factory=dict)
    """By upload number: jobs whose fate the cloud decides."""


class Relay:
    def __init__(self) -> None:
        self.state = RelayState()

    def snapshot(self) -> Plain:
        return to_plain(self.state)

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data)

    def dispatches(self, node: GatewayNode) -> bool:
        return True

    def dispatched(self, node: GatewayNode, jobs: tuple[int, ...], at: float) -> None:
        return

    def ended(self, node: GatewayNode, numbers: tuple[int, ...], at: float) -> None:
        return

    def offered(self, node: GatewayNode, at: float) -> None:
        return

    def due(self) -> float:
        return NEVER

    def timer(self, node: GatewayNode, at: float) -> None:
        return

    def held(self) -> Iterable[HeldUpdate]:
        return self.state.relayed.values()

    def began(self, node: GatewayNode, model: m.GlobalModel, at: float) -> None:
        node.state.phase = "open"
        self._adopt(node, model.epoch, model, at)

    def received(self, node: GatewayNode, number: int, in_flight: InFlightJob, update: m.Update, at: float) -> None:
        update_ledger.landed(node, number, in_flight.slot)
        sent = upload(node, update.weights, in_flight.base_epoch, 1, update.samples, at)
        self.state.relayed[sent] = HeldUpdate(number, in_flight, update)

    def answered(self, node: GatewayNode, answer: m.Answer, at: float) -> None:
        self._end(node, self.state.relayed.pop(answer.upload.number), answer.outcome, at)
        self._adopt(node, answer.epoch, answer, at)

    @staticmethod
    def _end(node: GatewayNode, held: HeldUpdate, outcome: m.Outcome, at: float) -> None:
        reason: JobEnd = "aggregated" if outcome.accepted else "stale"
        node.end_job(held.number, held.in_flight, reason, at, held.update, outcome.staleness, outcome.weight)

    def waits(self, node: GatewayNode) -> bool:
        return False

    def idle(self, node: GatewayNode, at: float) -> None:
        return

    def over(self, node: GatewayNode, reason: JobEnd, at: float, decided: Mapping[int, m.Outcome]) -> None:
        for number, held in self.state.relayed.items():
            outcome = decided.get(number)
            if outcome is None:
                node.end_job(held.number, held.in_flight, reason, at, held.update)
            else:
                self._end(node, held, outcome, at)
        self.state = RelayState()

    def _adopt(self, node: GatewayNode, epoch: int, model: m.GlobalModel | m.Answer, at: float) -> None:
        state = node.state
        if state.weights is None or epoch > state.base_epoch:
            state.weights = model.weights
            state.base_epoch = epoch
        if state.newest is not None:  # broadcast: another gateway's upload may have made a newer one
            if state.newest.epoch > state.base_epoch:
                state.weights, state.base_epoch = state.newest.weights, state.newest.epoch
            state.newest = None
        dispatch(node, at)
