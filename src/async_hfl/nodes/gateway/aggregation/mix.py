"""Mix on arrival at a gateway (Algorithm 1, lines 16-24): the asynchronous method's way.

A cycle: adopt a global model, mix Z updates as they arrive, upload, wait for the answer. Updates that arrive while it
waits are held and mixed on adoption; what is still in flight is carried over (or discarded, by setting).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.maths.aggregation import mix_with_drag
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.records import JobEnd
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.nodes import update_ledger
from async_hfl.nodes.gateway.aggregation import cycle
from async_hfl.nodes.gateway.aggregation.protocol import HeldUpdate
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.gateway.selection_step import dispatch
from async_hfl.nodes.gateway.state import NEVER, InFlightJob


@plain
@dataclass(slots=True)
class MixingState:
    mixed: int = 0
    """Updates mixed in this cycle."""
    samples: int = 0
    held: list[HeldUpdate] = field(default_factory=list)


class MixOnArrival:
    def __init__(self) -> None:
        self.state = MixingState()

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
        return self.state.held

    def began(self, node: GatewayNode, model: m.GlobalModel, at: float) -> None:
        self._adopt(node, model, at)

    def received(self, node: GatewayNode, number: int, in_flight: InFlightJob, update: m.Update, at: float) -> None:
        if node.state.phase != "open":
            self.state.held.append(HeldUpdate(number, in_flight, update))
            return
        self._mix(node, number, in_flight, update, at)
        if self.state.mixed >= node.config.epochs:
            self._upload(node, at)
        else:
            dispatch(node, at)

    def answered(self, node: GatewayNode, answer: m.Answer, at: float) -> None:
        self._adopt(node, answer, at)

    def waits(self, node: GatewayNode) -> bool:
        return self.state.mixed > 0

    def idle(self, node: GatewayNode, at: float) -> None:
        self._upload(node, at, early=True)

    def over(self, node: GatewayNode, reason: JobEnd, at: float, decided: Mapping[int, m.Outcome]) -> None:
        for held in self.state.held:
            node.end_job(held.number, held.in_flight, reason, at, held.update)
        # Mixed and never uploaded: the jobs ended as aggregated, the model they went into ends here.
        cycle.abandon(node, self.state.mixed, reason, at)
        self.state = MixingState()

    def _adopt(self, node: GatewayNode, model: m.GlobalModel | m.Answer, at: float) -> None:
        cycle.adopt(node, model)
        self.state.mixed = 0
        self.state.samples = 0
        while self.state.held and self.state.mixed < node.config.epochs:
            held = self.state.held.pop(0)
            self._mix(node, held.number, held.in_flight, held.update, at)
        dispatch(node, at)
        if self.state.mixed >= node.config.epochs:
            self._upload(node, at)

    def _mix(self, node: GatewayNode, number: int, in_flight: InFlightJob, update: m.Update, at: float) -> None:
        """w <- w + weight (w_device - w_sent) + drag weight (w_sent - w), weight = beta s(staleness)."""
        state, config = node.state, node.config
        # z is the epoch now being made, so an update that nothing overtook has staleness 1, as in the paper's indices.
        staleness = state.gateway_epoch + 1 - in_flight.gateway_epoch
        if config.carry_staleness == "both":
            staleness += state.base_epoch - in_flight.base_epoch
        if staleness < 1:
            raise InvariantViolation(f"job {number} of gateway {config.number} has staleness {staleness}")
        update_ledger.landed(node, number, in_flight.slot)
        if staleness > node.max_staleness():
            node.end_job(number, in_flight, "stale", at, update, staleness)
            return
        weight = config.mixing_weight * config.staleness(staleness)
        assert state.weights is not None
        state.weights = mix_with_drag(state.weights, update.weights, in_flight.sent, weight, config.drag)
        state.gateway_epoch += 1
        self.state.mixed += 1
        self.state.samples += update.samples
        node.end_job(number, in_flight, "aggregated", at, update, staleness, weight)

    def _upload(self, node: GatewayNode, at: float, *, early: bool = False) -> None:
        cycle.upload(node, self.state.mixed, self.state.samples, at, early=early)
