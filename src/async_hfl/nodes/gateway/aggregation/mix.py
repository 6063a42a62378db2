"""Mix on arrival (Algorithm 1, lines 16-24): each device update is mixed into the gateway's model when it arrives.

    w <- w + weight (w_device - w_sent) + drag weight (w_sent - w),   weight = beta s(staleness)

Running statistics are mixed with drag 1. After Z updates the gateway uploads. Jobs in flight at that time continue in
the next cycle, or are discarded (`gateway.in_flight`).
"""

from __future__ import annotations

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.maths.aggregation import mix_with_drag
from async_hfl.nodes.gateway.aggregation.contributions import adopt, models_of
from async_hfl.nodes.gateway.aggregation.rule import Gateway, GatewayAggregation, HeldUpdate, Next


class MixOnArrival(GatewayAggregation):
    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        state, config, in_flight = gateway.state, gateway.config, held.in_flight
        # Counted from the epoch that this update creates, as in the paper: the least staleness is 1.
        staleness = state.gateway_epoch + 1 - in_flight.gateway_epoch
        if config.staleness_clock == "both":
            staleness += state.base_epoch - in_flight.base_epoch
        if staleness < 1:
            raise InvariantViolation(f"job {held.number} of gateway {config.number} has staleness {staleness}")
        if staleness > gateway.max_staleness:
            gateway.drop_stale(held, at, staleness=staleness)
        else:
            weight = config.mixing_weight * config.staleness(staleness)
            (new,), sent, trained = models_of(gateway, [held]), in_flight.sent, config.gradient_size
            model = mix_with_drag(gateway.weights, new, sent, weight, config.drag, trained=trained)
            adopt(gateway, model, [held], [weight])
            state.gateway_epoch += 1
            gateway.aggregated(held, at, staleness=staleness, weight=weight)
        return Next.UPLOAD if state.updates >= config.epochs else Next.SELECT
