"""Mix on arrival at a gateway (Algorithm 1, lines 16-24): the asynchronous method's way.

A cycle: adopt a global model, mix Z updates as they arrive, upload, wait for the answer. Updates that arrive while it
waits are held and mixed on adoption; what is still in flight is carried over (or discarded, by setting).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from async_hfl.core import messages as m
from async_hfl.core.aggregation import mix_with_drag
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.plain import Plain, from_plain, plain, to_plain
from async_hfl.core.records import JobEnd
from async_hfl.nodes import accounts, cycles
from async_hfl.nodes.dispatching import dispatch
from async_hfl.nodes.gateway import GatewayNode
from async_hfl.nodes.gateway_aggregation import HeldUpdate
from async_hfl.nodes.gateway_state import NEVER, Flight


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

    def received(self, node: GatewayNode, number: int, flight: Flight, update: m.Update, at: float) -> None:
        if node.state.phase != "open":
            self.state.held.append(HeldUpdate(number, flight, update))
            return
        self._mix(node, number, flight, update, at)
        if self.state.mixed >= node.rules.epochs:
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
            node.end_job(held.number, held.flight, reason, at, held.update)
        # Mixed and never uploaded: the jobs ended as aggregated, the model they went into ends here.
        cycles.abandon(node, self.state.mixed, reason, at)
        self.state = MixingState()

    def _adopt(self, node: GatewayNode, model: m.GlobalModel | m.Answer, at: float) -> None:
        cycles.adopt(node, model)
        self.state.mixed = 0
        self.state.samples = 0
        while self.state.held and self.state.mixed < node.rules.epochs:
            held = self.state.held.pop(0)
            self._mix(node, held.number, held.flight, held.update, at)
        dispatch(node, at)
        if self.state.mixed >= node.rules.epochs:
            self._upload(node, at)

    def _mix(self, node: GatewayNode, number: int, flight: Flight, update: m.Update, at: float) -> None:
        """w <- w + weight (w_device - w_sent) + drag weight (w_sent - w), weight = beta s(staleness)."""
        state, rules = node.state, node.rules
        # z is the epoch now being made, so an update that nothing overtook has staleness 1, as in the paper's indices.
        staleness = state.gateway_epoch + 1 - flight.gateway_epoch
        if rules.carry_staleness == "both":
            staleness += state.base_epoch - flight.base_epoch
        if staleness < 1:
            raise InvariantViolation(f"job {number} of gateway {rules.number} has staleness {staleness}")
        accounts.landed(node, number, flight.slot)
        if staleness > node.max_staleness():
            node.end_job(number, flight, "stale", at, update, staleness)
            return
        weight = rules.mixing_weight * rules.staleness(staleness)
        assert state.weights is not None
        state.weights = mix_with_drag(state.weights, update.weights, flight.sent, weight, rules.drag)
        state.gateway_epoch += 1
        self.state.mixed += 1
        self.state.samples += update.samples
        node.end_job(number, flight, "aggregated", at, update, staleness, weight)

    def _upload(self, node: GatewayNode, at: float, *, early: bool = False) -> None:
        cycles.upload(node, self.state.mixed, self.state.samples, at, early=early)
