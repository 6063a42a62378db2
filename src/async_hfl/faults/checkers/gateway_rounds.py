"""The checker of synchronous rounds: each epoch is the mean of one round's updates, weighted by samples.

A round consists of the jobs that were sent at the same time. It takes the answers that it waits for and no more, and
its timer is set to its deadline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from async_hfl.core.arrays import Floats
from async_hfl.core.identifiers import JobId
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
        for members in self.by_epoch(records):
            self._check_answers(gateway, members)
        if state.phase == "open" and state.buffer:
            require(state.active > 0, f"gateway {number}: its round waits for no device and does not close")
            self._check_open_round(gateway)

    def _check_answers(self, gateway: GatewayNode, members: Sequence[JobRecord]) -> None:
        epoch, begun = members[0].gateway_epoch, {record.sent_at for record in members}
        require(len(begun) == 1, f"epoch {epoch} of gateway {gateway.config.number} has updates of several rounds")
        wanted = self._answers_wanted(gateway, members[0].job, begun.pop())
        require(len(members) <= wanted, f"{members[0]}: {len(members)} updates in a round that waits for {wanted}")

    def _check_open_round(self, gateway: GatewayNode) -> None:
        state, config = gateway.state, gateway.config
        name, begun = f"gateway {config.number}", state.buffer[0].in_flight.sent_at
        wanted = self._answers_wanted(gateway, JobId(config.number, state.incarnation, state.buffer[0].number), begun)
        require(len(state.buffer) < wanted, f"{name}: {len(state.buffer)} answers, enough to close its round")
        deadline = config.round_deadline if config.round_deadline > 0 else state.reference_latency or math.inf
        require(state.aggregation_timer_at <= begun + deadline, f"{name}: its round may last beyond its deadline")

    def _answers_wanted(self, gateway: GatewayNode, job: JobId, begun: float) -> int:
        """Return the number of answers that close the round of this job, which began at this time."""
        state, config = gateway.state, gateway.config
        ends = (end for other, end in self.history.job_ends.items() if other[:2] == job[:2])
        selected = sum(end.sent_at == begun and end.reason != "warmup" for end in ends)
        if job.incarnation == state.incarnation:
            flying = [*state.in_flight_jobs.values(), *(held.in_flight for held in state.held_updates())]
            selected += sum(one.sent_at == begun and not one.warmup for one in flying)
        return max(1, int(selected / config.over_selection + 0.5))

    def model_after(self, gateway: GatewayNode, model: Floats, records: Sequence[JobRecord]) -> Floats:
        for members in self.by_epoch(records):
            model = 0.0 * model
            models = self.new_and_sent(gateway, members)
            for record, share, (new, _) in zip(members, self.sample_shares(members), models, strict=True):
                check_weight(record, 1, share)
                model = model + share * new
            model = self.with_noise(gateway, model, members, members[0].gateway_epoch)
        return model
