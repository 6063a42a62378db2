"""The checker of mix on arrival at a gateway: one epoch for each update, weighted by its staleness."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.core.arrays import Floats
from async_hfl.core.protocol.records import JobRecord
from async_hfl.faults.checkers.checker import ModelChecker, check_weight, discount, trained_and_statistics
from async_hfl.faults.history import require
from async_hfl.nodes.gateway.node import GatewayNode


class GatewayMixChecker(ModelChecker):
    scenario_share = 0.35
    cloud_average_share = 0.1

    def aggregated(self, gateway: GatewayNode, record: JobRecord) -> None:
        train, config = self.history.trains[record.job], gateway.config
        staleness = record.gateway_epoch - train.gateway_epoch
        if config.staleness_clock == "both":
            staleness += gateway.state.base_epoch - train.base_epoch
        require(staleness >= 1, f"{record}: its staleness is {staleness}, less than 1")
        check_weight(record, staleness, config.mixing_weight * discount(config.staleness, staleness))

    def check(self, gateway: GatewayNode, records: Sequence[JobRecord]) -> None:
        super().check(gateway, records)
        number, epoch = gateway.config.number, gateway.state.gateway_epoch
        mixed = self.history.aggregated.get((number, gateway.state.incarnation), 0)
        require(epoch == mixed, f"gateway {number}: its epoch is {epoch} after {mixed} updates")

    def model_after(self, gateway: GatewayNode, model: Floats, records: Sequence[JobRecord]) -> Floats:
        for record in records:
            ((new, sent),) = self.new_and_sent(gateway, [record])
            moved = model + record.weight * ((new - sent) + gateway.config.drag * (sent - model))
            model = trained_and_statistics(gateway, moved, (1 - record.weight) * model + record.weight * new)
            model = self.with_noise(gateway, model, [record], record.gateway_epoch)
        return model
