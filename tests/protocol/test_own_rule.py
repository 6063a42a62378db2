"""Aggregation rules of a user's own, written against `GatewayAggregation` alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from protocol_stage import Stage, assert_close

from async_hfl.core.errors import PolicyError
from async_hfl.core.maths.aggregation import average
from async_hfl.core.protocol import messages as m
from async_hfl.core.serialization import plain
from async_hfl.nodes.gateway.aggregation.rule import NEVER, Gateway, GatewayAggregation, HeldUpdate, Next


class AverageOfTwo(GatewayAggregation):
    """Averages every two updates and uploads the result."""

    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        gateway.state.buffer.append(held)
        if len(gateway.state.buffer) < 2:
            return Next.SELECT
        updates, gateway.state.buffer = gateway.state.buffer, []
        gateway.weights = average([held.update.weights for held in updates], [0.5, 0.5])
        gateway.state.gateway_epoch += 1
        for held in updates:
            gateway.aggregated(held, at, staleness=1, weight=0.5)
        return Next.UPLOAD


@plain
@dataclass(slots=True)
class DeadlineState:
    seen: int = 0


class Deadline(GatewayAggregation):
    """Replaces the model by each update, and uploads 50 s after the first one."""

    state_type = DeadlineState
    state: DeadlineState

    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        if self.due == NEVER:
            self.due = at + 50
        self.state.seen += 1
        gateway.weights = held.update.weights
        gateway.state.gateway_epoch += 1
        gateway.aggregated(held, at, staleness=1, weight=1.0)
        return Next.NOTHING

    def timer(self, gateway: Gateway, at: float) -> Next:
        return Next.UPLOAD


class SomeRelayed(GatewayAggregation):
    """Relays the updates of d0 and mixes those of d1."""

    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        if gateway.state.device_table.devices[held.in_flight.slot] == 0:
            return Next.RELAY
        gateway.weights = held.update.weights
        gateway.state.gateway_epoch += 1
        gateway.aggregated(held, at, staleness=1, weight=1.0)
        return Next.UPLOAD


def test_a_rule_of_one_method_is_enough() -> None:
    stage = Stage(aggregation=AverageOfTwo)
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=100)
    assert stage.in_flight("g0") == {2: 1, 3: 0}
    stage.returns("d1", (3, 0), at=110)
    assert_close(stage.model("g0"), (2, 1))
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples, upload.base_epoch) == (2, 20, 0)
    # This update arrives during the upload: it is passed to the rule when the next cycle begins.
    stage.returns("d0", (4, 4), at=120)
    assert stage.gateways[0].state.buffer == []
    stage.exchanges("g0", at=130)
    assert [held.number for held in stage.gateways[0].state.buffer] == [3]
    assert sorted(stage.in_flight("g0").values()) == [0, 1]


def test_a_rule_has_a_timer_and_its_state_is_saved() -> None:
    stage = Stage(aggregation=Deadline)
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=100)
    assert stage.timers["g0", "aggregation"] == 150
    other = stage.make()["g0"]
    other.restore(stage.gateways[0].snapshot())
    assert (other.aggregation.state, other.aggregation.due) == (DeadlineState(1), 150)
    stage.fire("g0", "aggregation")
    assert stage.gateways[0].state.phase == "uploading"
    assert stage.gateways[0].aggregation.due == NEVER


def test_a_rule_may_relay_some_updates_and_mix_others() -> None:
    stage = Stage(aggregation=SomeRelayed)
    stage.begin(0, 0, 1)
    stage.returns("d0", (2, 2), at=100)
    stage.deliver("cloud", m.Upload, at=105)
    stage.returns("d1", (4, 4), at=110)  # uploaded while the relayed update has no answer
    stage.deliver("g0", m.Answer, at=115)
    assert [(job.job.number, job.reason) for job in stage.jobs()] == [(2, "aggregated"), (1, "aggregated")]
    assert (stage.gateways[0].state.phase, stage.gateways[0].state.base_epoch) == ("uploading", 0)
    stage.exchanges("g0", at=120)
    assert (stage.gateways[0].state.phase, stage.gateways[0].state.base_epoch) == ("open", 2)
    assert sorted(stage.in_flight("g0").values()) == [0, 1]


@pytest.mark.parametrize("wrong", [None, True, "upload"])
def test_a_step_that_is_none_is_an_error_that_names_the_method(wrong: Any) -> None:
    class Wrong(GatewayAggregation):
        def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
            return wrong  # type: ignore[no-any-return]

    stage = Stage(aggregation=Wrong)
    stage.begin(0, 0, 1)
    with pytest.raises(PolicyError, match=f"rule Wrong: received returned {wrong!r}; it must return a Next"):
        stage.returns("d0", (1, 2), at=100)
