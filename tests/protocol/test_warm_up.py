"""Warm-up: every device trains once, outside the bandwidth limit, and nothing of it is mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage, assert_close

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Started
from async_hfl.core.protocol.records import LifecycleRecord

NEAREST = (100.0, 300.0, 300.0, 90.0, 80.0)
"""d0 is nearest to g0, d1 and d2 to g1."""


def warming(gateway: dict[str, Any] | None = None, **cloud: Any) -> Stage:
    stage = Stage(cloud={"warmup": True, **cloud}, gateway=gateway, latency=NEAREST)
    stage.happens("cloud", Started(0.0))
    stage.deliver("g0", m.WarmUp, at=1)
    stage.deliver("g1", m.WarmUp, at=1)
    return stage


def over(stage: Stage) -> bool:
    ended = [record for record in stage.of(LifecycleRecord) if record.what == "warmup_ended"]
    assert len(ended) <= 1
    assert bool(ended) == bool(stage.solves)
    return bool(ended)


def test_each_device_trains_once_through_its_nearest_gateway_outside_the_bandwidth() -> None:
    stage = warming(gateway={"bandwidth": 1.0})
    assert stage.in_flight("g0") == {1: 0}
    assert stage.in_flight("g1") == {1: 1, 2: 2}
    assert [gateway.state.load for gateway in stage.gateways] == [0.0, 0.0]


def test_warm_up_ends_at_the_quorum_and_its_knowledge_comes_with_the_association() -> None:
    update = {"gradient": "update"}
    stage = warming(gateway=update, **update)
    stage.returns("d1", (1, -2), at=51, loss=0.7, squared_loss=0.6, samples=12)
    stage.deliver("cloud", m.LeaseReleased, at=60)
    assert not over(stage)  # 1 of 3 is less than half
    stage.returns("d0", (5, 5), at=101)
    released = stage.deliver("cloud", m.LeaseReleased, at=110)
    assert released.warmup
    assert over(stage)
    assert [(j.device, j.reason, j.weight) for j in stage.jobs()] == [(1, "warmup", 0.0), (0, "warmup", 0.0)]

    # d1 moves to g0, which is told what is known; the latency is the prior of that link, not the one g1 measured.
    stage.solved(0, 0, 1, at=111)
    assignment = stage.deliver("g0", m.Assignment, at=112)
    assert [lease.device for lease in assignment.leases] == [0, 1]
    known = assignment.knowledge[1]
    assert (known.device, known.samples, known.loss, known.squared_loss) == (1, 12, 0.7, 0.6)
    assert (known.round_latency, known.measured) == (300.0, False)
    assert (assignment.knowledge[0].round_latency, assignment.knowledge[0].measured) == (100.0, True)
    # gradient = "update": (w_received - w_final) / (0.1 x 5 steps) = -(1, -2) / 0.5.
    assert_close(known.gradient, (-2.0, 4.0))

    # Nothing is mixed: the first model is the initial one, and the bandwidth limit is in force.
    model = stage.deliver("g0", m.GlobalModel, at=113)
    assert (model.epoch, stage.gateways[0].state.gateway_epoch) == (0, 0)
    assert_close(stage.model("g0"), (0.0, 0.0))
    assert stage.in_flight("g0") == {2: 0, 3: 1}
    assert stage.gateways[0].state.load == pytest.approx(1000 / 100 + 1000 / 300)


def test_a_late_answer_still_counts_as_knowledge() -> None:
    stage = warming()
    for device, at in (("d0", 51), ("d1", 61)):
        stage.returns(device, (1, 1), at=at)
        stage.deliver("cloud", m.LeaseReleased, at=at)
    assert over(stage)
    stage.solved(0, 1, 1, at=62)
    assignment = stage.deliver("g1", m.Assignment, at=63)
    # g1 still holds the lease of d2 from the warm-up, so it needs no new one.
    assert ([lease.device for lease in assignment.leases], assignment.devices) == ([1], (1, 2))
    stage.deliver("g1", m.GlobalModel, at=64)
    assert stage.in_flight("g1") == {2: 2, 3: 1}
    stage.returns("d2", (9, 9), at=101, loss=0.4)
    assert (stage.jobs()[-1].device, stage.jobs()[-1].reason) == (2, "warmup")
    assert_close(stage.model("g1"), (0.0, 0.0))
    assert stage.in_flight("g1") == {3: 1, 4: 2}
    report = stage.deliver("cloud", m.Report, at=102)
    assert [known.device for known in report.answered_warmup] == [2]
    assert stage.cloud.state.association.loss[2] == 0.4
    link = stage.cloud.links.find(2, 1)
    assert stage.cloud.state.association.latency[link] == 100.0


def test_a_warm_up_device_that_moved_is_released_when_it_answers() -> None:
    stage = warming()
    for device, at in (("d0", 51), ("d2", 61)):
        stage.returns(device, (1, 1), at=at)
        stage.deliver("cloud", m.LeaseReleased, at=at)
    stage.solved(0, 0, 1, at=62)  # d1 still trains for g1
    stage.deliver("g0", m.Assignment, at=63)
    stage.deliver("g0", m.GlobalModel, at=63)
    stage.deliver("g1", m.Assignment, at=63)
    assert stage.in_flight("g0") == {2: 0}
    stage.returns("d1", (1, 1), at=70)
    stage.deliver("cloud", m.LeaseReleased, at=71)
    stage.deliver("g0", m.LeaseGranted, at=72)
    assert stage.in_flight("g0") == {2: 0, 3: 1}


def test_warm_up_lasts_at_least_for_its_patience() -> None:
    stage = warming(warmup_patience=80.0)
    for device, at in (("d0", 51), ("d1", 61)):
        stage.returns(device, (1, 1), at=at)
        stage.deliver("cloud", m.LeaseReleased, at=at)
    assert not over(stage)
    stage.fire("cloud", "warmup_patience")
    assert stage.at == 80.0
    assert over(stage)


def test_warm_up_ends_before_the_patience_if_nothing_is_outstanding() -> None:
    stage = warming(warmup_patience=80.0)
    for device, at in (("d0", 51), ("d1", 61), ("d2", 71)):
        stage.returns(device, (1, 1), at=at)
        stage.deliver("cloud", m.LeaseReleased, at=at)
    assert over(stage)


def test_devices_that_timed_out_do_not_count_towards_the_quorum() -> None:
    stage = warming(gateway={"patience_factor": 1.0})
    stage.returns("d0", (1, 1), at=51)
    stage.deliver("cloud", m.LeaseReleased, at=52)
    assert not over(stage)
    # d2's patience: max(60, 1 x 80) after it was sent at 1. Then 1 of (3 - 1) has answered: half; d1 is outstanding.
    stage.fire("g1", "patience")
    assert stage.at == 81.0
    assert [known.warmup for known in stage.waiting("cloud", m.LeaseReleased)] == [False]
    stage.deliver("cloud", m.Report, at=82)
    assert over(stage)
    assert stage.cloud.state.warmup.outstanding == {1}
    # Its late answer is used as knowledge.
    stage.returns("d2", (1, 1), at=300, loss=0.9)
    assert (stage.jobs()[-1].device, stage.jobs()[-1].reason) == (2, "warmup")
    stage.deliver("cloud", m.Report, at=301)
    stage.deliver("cloud", m.Report, at=302)
    assert stage.cloud.state.association.loss[2] == 0.9


def test_an_outage_in_warm_up_counts_as_a_timeout() -> None:
    stage = warming(warmup_quorum=1.0)
    for device, at in (("d0", 51), ("d1", 52)):
        stage.returns(device, (1, 1), at=at)
        stage.deliver("cloud", m.LeaseReleased, at=at)
    stage.deliver("d2", m.Train, at=53)
    stage.returned("d2", at=54)
    stage.deliver("g1", m.JobDropped, at=55)
    stage.deliver("cloud", m.LeaseReleased, at=56)
    assert over(stage)
    assert stage.jobs()[-1].reason == "device_lost"


def test_the_limit_ends_warm_up_only_if_there_is_an_answer() -> None:
    stage = warming(warmup_quorum=1.0, warmup_limit=200.0)
    stage.fire("cloud", "warmup_limit")
    assert not over(stage)
    stage.returns("d0", (1, 1), at=250)
    stage.deliver("cloud", m.LeaseReleased, at=251)
    assert over(stage)


def test_a_gateway_lost_in_warm_up_takes_its_devices_out_of_the_count() -> None:
    stage = warming(warmup_quorum=1.0)
    stage.returns("d0", (1, 1), at=51)
    stage.deliver("cloud", m.LeaseReleased, at=52)
    stage.peer_lost("cloud", "g1", at=60)
    assert over(stage)
    # Only the links to g0 are left.
    problem = stage.solves[0].problem
    assert list(zip(problem.link_device.tolist(), problem.link_gateway.tolist(), strict=True)) == [(0, 0), (1, 0)]


def test_without_gradients_the_problem_contains_measured_latencies() -> None:
    stage = warming()
    for device, at in (("d0", 51), ("d1", 61)):
        stage.returns(device, (1, 1), at=at)
        stage.deliver("cloud", m.LeaseReleased, at=at)
    problem = stage.solves[0].problem
    # d0 took 50 s over g0, d1 60 s over g1; the others have their priors.
    np.testing.assert_array_equal(problem.link_round_latency, [50.0, 300.0, 300.0, 60.0, 80.0])
    np.testing.assert_array_equal(problem.link_data_rate, 1000 / np.array([50.0, 300.0, 300.0, 60.0, 80.0]))
    np.testing.assert_array_equal(problem.learning_utility, np.ones(3))
    np.testing.assert_array_equal(problem.current, [-1, -1, -1])


@pytest.mark.parametrize("useful", [0, 1])
def test_the_first_selection_uses_the_gradients_of_the_warm_up(useful: int) -> None:
    """One device of two fits. Gradients are -2 x the result: small (0.2, 0) and large (2, 2), so N = 2, mean (1.1, 1):
    u = 0.04 - 0.22 = -0.18 and 8 - 4.2 = 3.8; the latter is chosen, though latencies are the same."""
    update = {"gradient": "update"}
    stage = Stage(gateway={**update, "bandwidth": 15.0}, cloud={"warmup": True, "warmup_quorum": 0.6, **update})
    stage.happens("cloud", Started(0.0))
    stage.deliver("g0", m.WarmUp, at=0)
    for device in (0, 1):
        stage.returns(f"d{device}", (1, 1) if device == useful else (0.1, 0), at=100)
        stage.deliver("cloud", m.LeaseReleased, at=100)
    stage.solved(0, 0, 1, at=101)
    stage.deliver("g0", m.Assignment, at=102)
    stage.deliver("g0", m.GlobalModel, at=103)
    assert stage.in_flight("g0") == {3: useful}
