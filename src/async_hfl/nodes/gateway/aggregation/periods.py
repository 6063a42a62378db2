"""Semi-asynchronous periods at a gateway: FedBuff (Nguyen et al. 2022) with a clock in place of a buffer size.

At the end of each period of P seconds, over the updates that arrived in it,

    w <- w + sum_i n_i s(age_i) (w_i - w_sent_i) / sum_i n_i,

with n_i the number of samples of device i, and age_i the number of periods since its job was sent, 0 within the same
period. For running statistics w takes the place of w_sent_i. A late update is used in the period in which it arrives,
even after an upload; a period without updates changes nothing. Devices are selected when a period begins, or whenever
one is idle (`refill`). After Z periods the gateway uploads. The clock stops while the gateway waits for the answer, and
while no update is expected.

With `weighting = "share"` the sum is divided by the samples of all devices associated with the gateway instead, and
multiplied by a gain g:

    w <- w + g sum_i n_i s(age_i) (w_i - w_sent_i) / sum_k n_k,        k: every associated device.

Then an update moves the model by its device's share of the data, however many others arrive in the same period, and the
cloud weighs the gateway by the same sum of samples, whatever has arrived. (If more samples than these arrive in a
period, because devices return twice in it or belong to another gateway by now, the sum is divided by theirs.)
"""

from __future__ import annotations

from dataclasses import dataclass

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.maths.aggregation import add_changes, shares
from async_hfl.core.serialization import plain
from async_hfl.nodes.gateway.aggregation.contributions import adopt, models_of
from async_hfl.nodes.gateway.aggregation.rule import NEVER, Gateway, GatewayAggregation, HeldUpdate, Next


@plain
@dataclass(slots=True)
class PeriodsState:
    periods: int = 0
    """Periods completed in this cycle; the gateway epoch counts them over the whole run."""


class Periods(GatewayAggregation):
    """`due` is the end of the current period, NEVER while the clock is stopped."""

    state_type = PeriodsState
    state: PeriodsState

    def adopted(self, gateway: Gateway, at: float) -> None:
        self.state.periods = 0

    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        gateway.state.buffer.append(held)
        return Next.SELECT

    def may_select(self, gateway: Gateway) -> bool:
        # Within a period the model does not change: devices that start later get the same model, which is older then.
        return gateway.config.refill == "immediate" or self.due == NEVER

    def may_adopt(self, gateway: Gateway) -> bool:
        return self.due == NEVER

    def may_upload_early(self, gateway: Gateway) -> bool:
        return False  # once the model contains updates the clock runs, so the cycle ends in any case

    def selected(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> None:
        """Start the clock if updates have arrived or are expected."""
        state = gateway.state
        if self.due == NEVER and state.phase == "open" and (state.buffer or state.updates or state.active):
            self.due = at + period_length(gateway)

    def timer(self, gateway: Gateway, at: float) -> Next:
        """End the period."""
        self._aggregate(gateway, at)
        self.state.periods += 1
        gateway.state.gateway_epoch += 1
        return Next.UPLOAD if self.state.periods >= gateway.config.epochs else Next.SELECT

    def samples(self, gateway: Gateway) -> int:
        if gateway.config.weighting == "share":
            return gateway.state.device_table.associated_samples
        return gateway.state.samples

    @staticmethod
    def _aggregate(gateway: Gateway, at: float) -> None:
        state, config = gateway.state, gateway.config
        arrived, state.buffer = state.buffer, []
        fresh: list[tuple[HeldUpdate, int]] = []
        for held in arrived:
            age = state.gateway_epoch - held.in_flight.gateway_epoch
            if age < 0:
                raise InvariantViolation(f"job {held.number} of gateway {config.number} is {age} periods old")
            if age > gateway.max_staleness:
                gateway.drop_stale(held, at, staleness=age)
            else:
                fresh.append((held, age))
        if not fresh:
            return
        counts = [held.update.samples for held, _ in fresh]
        if config.weighting == "share":
            whole = max(gateway.state.device_table.associated_samples, sum(counts))
            parts = [config.gain * count / whole for count in counts] if whole else shares(counts)
        else:
            parts = shares(counts)
        weights = [part * config.staleness(age) for part, (_, age) in zip(parts, fresh, strict=True)]
        used = [held for held, _ in fresh]
        sent = [held.in_flight.sent for held in used]
        new = models_of(gateway, used)
        model = add_changes(gateway.weights, new, sent, weights, trained=config.gradient_size)
        adopt(gateway, model, used, weights)
        for weight, (held, age) in zip(weights, fresh, strict=True):
            gateway.aggregated(held, at, staleness=age, weight=weight)


def period_length(gateway: Gateway) -> float:
    """Return P: a number of seconds, or a share of the reference latency, which is the same at every gateway."""
    config = gateway.config
    return config.period if config.period_share == 0.0 else config.period_share * gateway.state.reference_latency
