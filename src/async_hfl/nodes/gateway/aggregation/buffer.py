"""A buffer at a gateway: FedBuff (Nguyen et al., AISTATS 2022, Algorithm 1) with the gateway as its server.

An update is kept until the buffer has K of them; then

    w <- w + (1 / K) sum_i s(age_i) (w_i - w_sent_i),

with age_i the number of models that the gateway has made since the job of device i was sent. All updates count alike,
whatever their samples, and s(x) = 1 / sqrt(1 + x) by default, both as in FedBuff. For running statistics w takes the
place of w_sent_i. As soon as an update arrives, another device is triggered (`may_select`), so that as many train at a
time as the bandwidth allows. After Z buffers the gateway uploads.

Adapted: FedBuff has one server. Here K (`gateway.buffer_size`) counts the updates of the whole network, and each
gateway waits for its part, in proportion to its devices and at least one. An update that is staler than `max_staleness`
is dropped when it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.maths.aggregation import add_changes
from async_hfl.core.serialization import plain
from async_hfl.nodes.gateway.aggregation.contributions import adopt, models_of
from async_hfl.nodes.gateway.aggregation.rule import Gateway, GatewayAggregation, HeldUpdate, Next


@plain
@dataclass(slots=True)
class BufferState:
    filled: int = 0
    """Buffers aggregated in this cycle; the gateway epoch counts them over the whole run."""


class Buffer(GatewayAggregation):
    state_type = BufferState
    state: BufferState

    def adopted(self, gateway: Gateway, at: float) -> None:
        self.state.filled = 0

    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        age = _age(gateway, held)
        if age > gateway.max_staleness:
            gateway.drop_stale(held, at, staleness=age)
            return Next.SELECT
        gateway.state.buffer.append(held)
        if len(gateway.state.buffer) < gateway.part_of(gateway.config.buffer_share):
            return Next.SELECT
        self._aggregate(gateway, at)
        return Next.UPLOAD if self.state.filled >= gateway.config.epochs else Next.SELECT

    def _aggregate(self, gateway: Gateway, at: float) -> None:
        state, config = gateway.state, gateway.config
        arrived, state.buffer = state.buffer, []
        ages = [_age(gateway, held) for held in arrived]
        weights = [config.staleness(age) / len(arrived) for age in ages]
        sent = [held.in_flight.sent for held in arrived]
        new = models_of(gateway, arrived)
        model = add_changes(gateway.weights, new, sent, weights, trained=config.gradient_size)
        adopt(gateway, model, arrived, weights)
        state.gateway_epoch += 1
        self.state.filled += 1
        for age, weight, held in zip(ages, weights, arrived, strict=True):
            gateway.aggregated(held, at, staleness=age, weight=weight)


def _age(gateway: Gateway, held: HeldUpdate) -> int:
    age = gateway.state.gateway_epoch - held.in_flight.gateway_epoch
    if age < 0:
        raise InvariantViolation(f"job {held.number} of gateway {gateway.config.number} is {age} models old")
    return age
