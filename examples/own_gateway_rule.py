"""An aggregation rule for gateways: FedBuff (Nguyen et al. 2022) adds the mean change of every five device updates.

Run it from the directory above:

    async-hfl run --method async-hfl --seed 1 --set gateway.aggregation=examples/own_gateway_rule.py:FedBuff

`async_hfl.nodes.gateway.aggregation.rule` describes what a rule may read, assign and return. To test a rule under
crashes, lost messages and outages, name it in `async-hfl fuzz-faults --gateway-rule`.
"""

from __future__ import annotations

from async_hfl.core.maths.aggregation import add_changes
from async_hfl.nodes.gateway.aggregation.rule import Gateway, GatewayAggregation, HeldUpdate, Next

BUFFER_SIZE = 5


class FedBuff(GatewayAggregation):
    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        state = gateway.state
        state.buffer.append(held)
        if len(state.buffer) < BUFFER_SIZE:
            return Next.SELECT
        updates, state.buffer = state.buffer, []
        staleness = [state.gateway_epoch - held.in_flight.gateway_epoch for held in updates]
        weights = [gateway.config.staleness(age) / BUFFER_SIZE for age in staleness]
        new = [held.update.weights for held in updates]
        sent = [held.in_flight.sent for held in updates]
        gateway.weights = add_changes(gateway.weights, new, sent, weights, trained=gateway.config.gradient_size)
        state.gateway_epoch += 1
        for held, age, weight in zip(updates, staleness, weights, strict=True):
            gateway.aggregated(held, at, staleness=age, weight=weight)
        return Next.UPLOAD if state.updates >= gateway.config.epochs else Next.SELECT
