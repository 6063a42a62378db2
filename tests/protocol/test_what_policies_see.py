"""The problem that a selection policy is given, and the floor under participation that overrules it."""

from __future__ import annotations

import numpy as np
import pytest
from protocol_stage import Stage

from async_hfl.core.identifiers import CLOUD
from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Received
from async_hfl.core.protocol.records import SelectionRecord

SEEN: list[SelectionProblem] = []


class Curious:
    """A policy that chooses every candidate and counts its calls."""

    needs: frozenset[Need] = frozenset({"gradients", "peers"})

    def choose(self, problem: SelectionProblem) -> Selection:
        SEEN.append(problem)
        return Selection(tuple(problem.candidates.tolist()), memory={"asked": problem.memory.get("asked", 0) + 1})


class Incurious(Curious):
    needs: frozenset[Need] = frozenset()


class Favourite:
    """A policy that chooses d0 and no other device."""

    needs: frozenset[Need] = frozenset()

    def choose(self, problem: SelectionProblem) -> Selection:
        return Selection((0,) if 0 in problem.candidates and problem.capacity >= 10 else ())


@pytest.fixture(autouse=True)
def forget() -> None:
    SEEN.clear()


def of_gateway(number: int) -> list[SelectionProblem]:
    return [problem for problem in SEEN if problem.gateway == number]


def test_a_problem_contains_what_is_known_about_candidates_and_peers() -> None:
    stage = Stage(gateway={"gradient": "update"}, cloud={"gradient": "update"}, selection=Curious)
    stage.begin(0, 0, 1)
    (first,) = of_gateway(0)
    assert (first.candidates.tolist(), first.round, dict(first.memory)) == ([0, 1], 1, {})
    for column, expected in ((first.last_seen, [-1, -1]), (first.gradient_known, [0, 0])):
        assert column is not None
        assert column.tolist() == expected
    assert first.peers is not None
    assert len(first.peers.round_latency) == 0

    stage.returns("d0", (0.5, -1.0), at=120, loss=0.7, squared_loss=0.6, samples=12)
    second = of_gateway(0)[1]
    assert (second.candidates.tolist(), second.round, second.at, dict(second.memory)) == ([0], 2, 120, {"asked": 1})
    assert (second.loss.tolist(), second.squared_loss.tolist(), second.samples.tolist()) == ([0.7], [0.6], [12])
    assert second.round_latency.tolist() == [120.0]
    assert second.last_seen is not None
    assert second.last_seen.tolist() == [1], "its update arrived while round 1 was being made"
    # -(0.5, -1) / (0.1 x 5 steps).
    assert second.gradients is not None
    np.testing.assert_allclose(second.gradients, [[-1.0, 2.0]], rtol=1e-6)
    assert second.gradient_known is not None
    assert second.gradient_known.tolist() == [True]
    # d1 is busy: a peer with nothing but a known latency.
    assert second.peers is not None
    assert second.peers.round_latency.tolist() == [100.0]
    assert np.isnan(second.peers.loss).all()
    assert second.peers.gradients is not None
    assert second.peers.gradients.shape == (0, 2)
    # ... until its update arrives; then d0 is busy.
    stage.returns("d1", (0, 0), at=130)
    stage.exchanges("g0", at=140)
    third = of_gateway(0)[2]
    assert third.candidates.tolist() == [1]
    assert third.peers is not None
    assert third.peers.gradients is not None
    np.testing.assert_allclose(third.peers.gradients, [[-1.0, 2.0]], rtol=1e-6)


def test_a_policy_without_needs_is_not_given_expensive_columns() -> None:
    stage = Stage(gateway={"gradient": "update"}, selection=Incurious)
    stage.begin(0, 0, 1)
    (first,) = of_gateway(0)
    assert (first.gradients, first.peers, first.gradient_known, first.last_seen) == (None, None, None, None)
    assert first.learning_utility.tolist() == [1.0, 1.0]


def test_a_floor_under_participation_overrules_the_policy() -> None:
    """One job fits at a time. d0 and d1 take 100 s; with a quarter of its time each, a device is due after 300 s."""
    stage = Stage(gateway={"bandwidth": 10.0, "min_participation": 0.25, "epochs": 99}, selection=Favourite)
    stage.begin(0, 0, 1)
    asked = []
    for at in (100, 200, 300, 400, 500, 600, 700, 800):
        (device,) = stage.in_flight("g0").values()
        asked.append(device)
        stage.returns(f"d{device}", (0, 0), at=at)
    # d1 is due at 300, and again 300 s after its update at 400; d0 has all other turns.
    assert asked == [0, 0, 0, 1, 0, 0, 0, 1]


def test_no_device_is_triggered_before_one_that_is_due_and_does_not_fit() -> None:
    """d1 (100 s) takes 10 bytes/s, d0 (125 s) takes 8, of 17. While d0 is in flight, d1 has to wait."""
    stage = Stage(gateway={"bandwidth": 17.0, "min_participation": 0.5, "epochs": 99}, latency=(125.0, *[100.0] * 4))
    stage.begin(0, -1, 1)
    assert stage.in_flight("g0") == {1: 0}
    known = m.DeviceKnowledge(1, 100.0, False, 10, float("nan"), float("nan"))
    stage.happens("g0", Received(120.0, CLOUD, m.Assignment(1, 2, (0, 1), (m.Lease(1, 1, 2),), (known,))))
    # d1 has waited since the run began, more than one round of its own: due, but 9 bytes/s are free.
    assert stage.in_flight("g0") == {1: 0}
    stage.returns("d0", (0, 0), at=125)
    # Now d1 is first; d0 is not due.
    assert stage.in_flight("g0") == {2: 1}
    assert [record.devices for record in stage.of(SelectionRecord) if record.gateway == 0] == [(0,), (), (1,)]
