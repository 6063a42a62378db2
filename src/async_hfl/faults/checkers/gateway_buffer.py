"""The checker of buffers: K updates make a model, all with the same weight but for their age."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.core.arrays import Floats
from async_hfl.core.protocol.records import JobRecord
from async_hfl.faults.checkers.checker import ModelChecker, check_weight, discount, trained_and_statistics
from async_hfl.faults.history import History, require
from async_hfl.nodes.gateway.node import GatewayNode


class BufferChecker(ModelChecker):
    scenario_share = 0.15
    cloud_average_share = 0.6

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._sizes = [1, 1]
        """The least and the largest size of the buffer that an association asked for since the last model."""

    def check(self, gateway: GatewayNode, records: Sequence[JobRecord]) -> None:
        super().check(gateway, records)
        name = f"gateway {gateway.config.number}"
        wanted = max(1, int(gateway.config.buffer_share * gateway.state.device_table.associated.sum() + 0.5))
        least, largest = min(self._sizes[0], wanted), max(self._sizes[1], wanted)
        for together in self.by_epoch(records):
            require(least <= len(together) <= largest, f"{name}: a model of {len(together)} updates; K is {wanted}")
        waits = gateway.state.phase == "open" and len(gateway.state.buffer)
        require(waits < largest, f"{name}: {waits} updates wait in a buffer for {largest}")
        self._sizes = [wanted, wanted] if records else [least, largest]

    def model_after(self, gateway: GatewayNode, model: Floats, records: Sequence[JobRecord]) -> Floats:
        for together in self.by_epoch(records):
            moved, averaged = model, model
            for record, (new, sent) in zip(together, self.new_and_sent(gateway, together), strict=True):
                # The record has the epoch that it made; a job that was sent in the epoch before is 0 models old.
                age = record.gateway_epoch - 1 - self.history.trains[record.job].gateway_epoch
                weight = discount(gateway.config.staleness, age) / len(together)
                check_weight(record, age, weight)
                moved = moved + weight * (new - sent)
                averaged = averaged + weight * (new - model)
            model = trained_and_statistics(gateway, moved, averaged)
            model = self.with_noise(gateway, model, together, together[0].gateway_epoch)
        return model
