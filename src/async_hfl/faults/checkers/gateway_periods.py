"""The checker of semi-asynchronous periods: updates of one period are weighted by samples and age,
relative to the samples of the period or of all associated devices."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.core.arrays import Floats
from async_hfl.core.protocol.records import JobRecord
from async_hfl.faults.checkers.checker import ModelChecker, check_weight, discount, trained_and_statistics
from async_hfl.faults.history import require
from async_hfl.nodes.gateway.node import GatewayNode


class PeriodsChecker(ModelChecker):
    cloud_average_share = 0.7

    def aggregated(self, gateway: GatewayNode, record: JobRecord) -> None:
        age = self._age(record)
        require(age >= 0, f"{record}: it is {age} periods old")
        require(record.staleness == age, f"{record}: it is {age} periods old")

    def model_after(self, gateway: GatewayNode, model: Floats, records: Sequence[JobRecord]) -> Floats:
        for period in self.by_epoch(records):
            moved, averaged, total = model, model, 0.0
            models = self.new_and_sent(gateway, period)
            for record, share, (new, sent) in zip(period, self._shares(gateway, period), models, strict=True):
                age = self._age(record)
                weight = share * discount(gateway.config.staleness, age)
                check_weight(record, age, weight)
                moved = moved + weight * (new - sent)
                averaged, total = averaged + weight * (new - model), total + weight
            averaged = model + (averaged - model) / max(1.0, total)
            model = trained_and_statistics(gateway, moved, averaged)
            # The records have the epoch in which the period passed; its end makes the next.
            model = self.with_noise(gateway, model, period, period[0].gateway_epoch + 1)
        return model

    def samples_to_weigh(self, gateway: GatewayNode) -> int | None:
        return _data_of_devices(gateway) if gateway.config.weighting == "share" else None

    def _shares(self, gateway: GatewayNode, period: Sequence[JobRecord]) -> list[float]:
        if gateway.config.weighting == "period":
            return self.sample_shares(period)
        samples = [self.history.updates[record.job].samples for record in period]
        return [gateway.config.gain * count / max(_data_of_devices(gateway), sum(samples)) for count in samples]

    def _age(self, record: JobRecord) -> int:
        return record.gateway_epoch - self.history.trains[record.job].gateway_epoch


def _data_of_devices(gateway: GatewayNode) -> int:
    """Return the number of samples of all devices associated with the gateway."""
    table = gateway.state.device_table
    return sum(int(count) for count, associated in zip(table.samples, table.associated, strict=True) if associated)
