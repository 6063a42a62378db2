"""The checker of synchronous rounds: each epoch is the mean of one round's updates, weighted by samples."""

from __future__ import annotations

from collections.abc import Sequence

from async_hfl.core.arrays import Floats
from async_hfl.core.protocol.records import JobRecord
from async_hfl.faults.checkers.checker import ModelChecker, check_weight
from async_hfl.faults.history import History, Owner, require
from async_hfl.nodes.gateway.node import GatewayNode


class RoundsChecker(ModelChecker):
    scenario_share = 0.3
    cloud_average_share = 0.6

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._epochs: dict[Owner, set[int]] = {}
        """Gateway epochs in which something was aggregated."""

    def aggregated(self, gateway: GatewayNode, record: JobRecord) -> None:
        staleness = record.gateway_epoch - self.history.trains[record.job].gateway_epoch
        require(staleness == 1, f"{record}: its round was {staleness} epochs ago")
        self._epochs.setdefault((record.job.gateway, record.job.incarnation), set()).add(record.gateway_epoch)

    def check(self, gateway: GatewayNode, records: Sequence[JobRecord]) -> None:
        super().check(gateway, records)
        state, number = gateway.state, gateway.config.number
        rounds = len(self._epochs.get((number, state.incarnation), ()))
        require(
            state.gateway_epoch == rounds, f"gateway {number}: its epoch is {state.gateway_epoch} after {rounds} rounds"
        )
        waits = state.phase == "open" and bool(state.buffer)
        require(not waits or state.active > 0, f"gateway {number}: its round waits for no device and does not close")

    def model_after(self, gateway: GatewayNode, model: Floats, records: Sequence[JobRecord]) -> Floats:
        for members in self.by_epoch(records):
            model = 0.0 * model
            for record, share in zip(members, self.sample_shares(members), strict=True):
                check_weight(record, 1, share)
                model = model + share * self.new_and_sent(record)[0]
        return model
