"""The checker of semi-asynchronous periods: updates of one period are weighted by samples and age."""

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
            moved, averaged = model, model
            for record, share in zip(period, self.sample_shares(period), strict=True):
                age = self._age(record)
                weight = share * discount(gateway.config.staleness, age)
                check_weight(record, age, weight)
                new, sent = self.new_and_sent(record)
                moved = moved + weight * (new - sent)
                averaged = averaged + weight * (new - model)
            model = trained_and_statistics(gateway, moved, averaged)
        return model

    def _age(self, record: JobRecord) -> int:
        return record.gateway_epoch - self.history.trains[record.job].gateway_epoch
