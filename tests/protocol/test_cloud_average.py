"""The cloud's average of all uploads, computed by hand. Z = 1 round: d0 and d1 belong to g0, d2 to g1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage, assert_close

from async_hfl.core.identifiers import CLOUD, UploadId
from async_hfl.core.maths.server_adam import ServerAdam
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Received
from async_hfl.core.protocol.records import EpochRecord
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.nodes.gateway.aggregation.rounds import Rounds


def averaging(*association: int, cloud: dict[str, Any] | None = None) -> Stage:
    stage = Stage(aggregation=Rounds, averages=True, gateway={"epochs": 1}, cloud=cloud)
    stage.begin(*(association or (0, 0, 1)))
    return stage


def g0_reports(stage: Stage, at: float) -> None:
    """g0: (30 (1, 0) + 10 (1, 4)) / 40 = (1, 1), 40 samples."""
    stage.returns("d0", (1, 0), at=at, samples=30)
    stage.returns("d1", (1, 4), at=at, samples=10)
    stage.deliver("cloud", m.Upload, at=at)


def ends(stage: Stage) -> list[tuple[str, str, int, float]]:
    return [(str(u.upload), u.reason, u.staleness, pytest.approx(u.weight)) for u in stage.uploads()]


def test_the_average_is_by_samples_and_made_when_the_last_gateway_has_reported() -> None:
    stage = averaging()
    g0_reports(stage, at=100)
    # The first is told to wait; there is no answer and no epoch yet.
    assert stage.cloud.state.epoch == 0
    assert (len(stage.waiting("g0", m.Answer)), len(stage.waiting("g0", m.UploadHeld))) == (0, 1)
    stage.returns("d2", (5, -3), at=200, samples=10)
    stage.deliver("cloud", m.Upload, at=210)
    # (40 (1, 1) + 10 (5, -3)) / 50.
    assert_close(stage.cloud.state.weights, (1.8, 0.2))
    assert (stage.cloud.state.epoch, stage.cloud.state.updates) == (1, 3)
    assert ends(stage) == [("u0.1.1", "mixed", 1, 0.8), ("u1.1.1", "mixed", 1, 0.2)]
    for gateway in ("g0", "g1"):
        answer = stage.deliver(gateway, m.Answer, at=220)
        assert answer.epoch == 1
        assert_close(stage.model(gateway), (1.8, 0.2))
    assert stage.in_flight("g0") == {3: 0, 4: 1}
    stage.evaluated(0.3, at=230)
    assert [(record.at, record.epoch, record.updates) for record in stage.of(EpochRecord)] == [(210, 1, 3)]


def test_an_upload_that_is_held_is_not_sent_again() -> None:
    stage = averaging()
    g0_reports(stage, at=100)
    stage.deliver("g0", m.UploadHeld, at=110)
    stage.fire("g0", "reply")  # set for 220 when it was sent: only set again
    assert stage.waiting("cloud", m.Upload) == []
    assert stage.timers["g0", "reply"] == 110 + 3600
    stage.fire("g0", "reply")
    # A hello, so that a gateway that was declared lost is told; not the model again.
    assert (stage.waiting("cloud", m.Upload), len(stage.waiting("cloud", m.Hello))) == ([], 1)
    stage.deliver("cloud", m.Hello, at=3720)
    assert stage.waiting("g0", m.Fenced) == []


def test_a_repeat_of_a_held_upload_is_held_once_and_told_so() -> None:
    stage = averaging()
    stage.returns("d0", (1, 0), at=100, samples=30)
    stage.returns("d1", (1, 4), at=100, samples=10)
    stage.deliver("cloud", m.Upload, at=100, keep=True)
    stage.deliver("cloud", m.Upload, at=150)
    assert len(stage.waiting("g0", m.UploadHeld)) == 2
    stage.returns("d2", (5, -3), at=200, samples=10)
    stage.deliver("cloud", m.Upload, at=210)
    assert_close(stage.cloud.state.weights, (1.8, 0.2))


def test_a_gateway_lost_before_it_reported_is_left_out() -> None:
    stage = averaging()
    g0_reports(stage, at=100)
    stage.peer_lost("cloud", "g1", at=150)
    assert_close(stage.cloud.state.weights, (1, 1))
    assert ends(stage) == [("u0.1.1", "mixed", 1, 1.0)]
    assert len(stage.waiting("g0", m.Answer)) == 1


def test_a_gateway_lost_after_it_reported_is_left_out_and_records_it() -> None:
    stage = averaging()
    stage.returns("d2", (5, -3), at=90, samples=10)
    stage.deliver("cloud", m.Upload, at=95)
    stage.peer_lost("cloud", "g1", at=150)
    g0_reports(stage, at=200)
    assert_close(stage.cloud.state.weights, (1, 1))
    stage.peer_lost("g1", "cloud", at=210)
    stage.deliver("cloud", m.Hello, at=220)
    stage.deliver("g1", m.Fenced, at=230)
    assert ends(stage) == [("u0.1.1", "mixed", 1, 1.0), ("u1.1.1", "lost", 0, 0.0)]


def test_the_cloud_does_not_wait_for_a_gateway_without_reachable_devices() -> None:
    stage = averaging()
    g0_reports(stage, at=100)
    stage.fire("g1", "aggregation")
    stage.fire("g1", "patience")  # d2 times out
    assert stage.cloud.state.epoch == 0
    stage.deliver("cloud", m.Report, at=510)
    assert_close(stage.cloud.state.weights, (1, 1))
    assert stage.cloud.state.epoch == 1

    # It is back, too late for its round (closed at 300). Waited for again, g1 is given the model of epoch 1 ...
    stage.returns("d2", (5, -3), at=520, samples=10)
    stage.deliver("cloud", m.Report, at=530)
    model = stage.deliver("g1", m.GlobalModel, at=540)
    assert model.epoch == 1
    # ... but it has begun a round from the old one, and a model does not change inside a cycle.
    assert stage.gateways[1].state.base_epoch == 0
    stage.returns("d2", (7, 7), at=600, samples=10)
    stage.deliver("cloud", m.Upload, at=610)
    # Late by an epoch: dropped, recorded, and answered with the newest model.
    assert ends(stage)[-1] == ("u1.1.1", "dropped", 2, 0.0)
    assert_close(stage.cloud.state.weights, (1, 1))
    stage.deliver("g1", m.Answer, at=620)
    assert stage.gateways[1].state.base_epoch == 1
    assert_close(stage.model("g1"), (1, 1))


def test_a_gateway_without_devices_begins_with_the_newest_model() -> None:
    stage = averaging(0, 0, -1, cloud={"association_period": 1})
    g0_reports(stage, at=100)  # alone: g1 has no device
    assert stage.cloud.state.epoch == 1
    stage.deliver("g0", m.Answer, at=110)
    assert len(stage.waiting("g1", m.GlobalModel)) == 0
    stage.solved(0, 0, 1, at=120)
    assert stage.deliver("g1", m.GlobalModel, at=130).epoch == 1
    assert stage.gateways[1].state.base_epoch == 1  # no round was open: adopted at once
    stage.deliver("g1", m.Assignment, at=140)
    assert_close(stage.waiting("d2", m.Train)[-1].weights, (1, 1))
    # From now on the cloud waits for both.
    stage.returns("d0", (0, 0), at=200)
    stage.returns("d1", (0, 0), at=200)
    stage.deliver("cloud", m.Upload, at=210)
    assert stage.cloud.state.epoch == 1
    stage.returns("d2", (3, 3), at=220, samples=20)
    stage.deliver("cloud", m.Upload, at=230)
    # 20 samples at (0, 0), 20 at (3, 3).
    assert_close(stage.cloud.state.weights, (1.5, 1.5))


def test_uploads_that_are_held_end_with_the_run() -> None:
    stage = averaging(cloud={"epochs": 1})
    g0_reports(stage, at=100)
    stage.returns("d2", (5, -3), at=200, samples=10)
    stage.deliver("cloud", m.Upload, at=210)
    stage.deliver("g0", m.Answer, at=215)
    stage.returns("d0", (1, 0), at=216)
    stage.returns("d1", (1, 0), at=217)
    stage.deliver("cloud", m.Upload, at=218)  # the last evaluation is under way
    stage.evaluated(0.1, at=220)
    stage.deliver("g0", m.Finish, at=230)
    stage.deliver("g1", m.Finish, at=230)
    assert {str(u.upload): u.reason for u in stage.uploads()} == {
        "u0.1.1": "mixed",
        "u1.1.1": "mixed",
        "u0.1.2": "run_ended",
    }
    assert stage.stopped == {"cloud": "", "g0": "", "g1": ""}


def test_an_unknown_upload_is_not_held() -> None:
    """An UploadHeld for another incarnation, or for an upload that was answered, changes nothing."""
    stage = averaging()
    before = stage.gateways[0].snapshot()
    for upload in (UploadId(0, 1, 7), UploadId(0, 2, 1)):
        stage.happens("g0", Received(10.0, CLOUD, m.UploadHeld(upload)))
    assert str(stage.gateways[0].snapshot()) == str(before)


def with_momentum() -> Stage:
    """Three rounds with mu = 1/2, whose averages are (1, 1), (3, 2) and (3, 2)."""
    stage = averaging(0, 0, -1, cloud={"momentum": 0.5})
    for at, model in ((100, (1, 1)), (200, (3, 2)), (300, (3, 2))):
        for device in ("d0", "d1"):
            stage.returns(device, model, at=at)
        stage.exchanges("g0", at=at)
    return stage


def test_a_step_has_the_momentum_of_those_before() -> None:
    stage = with_momentum()
    # W = (1, 1), m = (1, 1); then m = (0.5, 0.5) + (2, 1) and W = (3.5, 2.5); then m = (1.25, 0.75) + (-0.5, -0.5).
    assert_close(stage.cloud.state.weights, (4.25, 2.75))
    assert_close(stage.model("g0"), (4.25, 2.75))
    # The uploads' weights are those of the average.
    assert [record.weight for record in stage.uploads()] == [1.0, 1.0, 1.0]


def test_the_first_average_after_a_restart_has_the_same_momentum() -> None:
    stage = averaging(0, 0, -1, cloud={"momentum": 0.5})
    for at, model in ((100, (1, 1)), (200, (3, 2)), (300, (3, 2))):
        stored = to_plain(stage.cloud.snapshot())
        stage.nodes["cloud"] = stage.make()["cloud"]
        stage.cloud.restore(from_plain(stored))
        for device in ("d0", "d1"):
            stage.returns(device, model, at=at)
        stage.exchanges("g0", at=at)
    np.testing.assert_array_equal(stage.cloud.state.weights, with_momentum().cloud.state.weights)


def with_adam(*, restarts: bool = False) -> Stage:
    """Three rounds with eta = 1, beta_1 = 1/2, beta_2 = 3/4, tau = 1; the averages are (1, 2), (1, 2) and (0, 0)."""
    stage = averaging(0, 0, -1, cloud={"adam": ServerAdam(1.0, 0.5, 0.75, 1.0)})
    for at, model in ((100, (1, 2)), (200, (1, 2)), (300, (0, 0))):
        if restarts:
            stored = to_plain(stage.cloud.snapshot())
            stage.nodes["cloud"] = stage.make()["cloud"]
            stage.cloud.restore(from_plain(stored))
        for device in ("d0", "d1"):
            stage.returns(device, model, at=at)
        stage.exchanges("g0", at=at)
    return stage


def test_a_step_of_adam() -> None:
    """By the formulas, number by number: v begins with tau^2, and m with 0."""
    expected = []
    for target in (1.0, 2.0):
        w, m, v = 0.0, 0.0, 1.0
        for average in (target, target, 0.0):
            delta = average - w
            m, v = 0.5 * m + 0.5 * delta, 0.75 * v + 0.25 * delta**2
            w += m / (v**0.5 + 1.0)
        expected.append(w)
    stage = with_adam()
    assert_close(stage.cloud.state.weights, expected)
    assert_close(stage.model("g0"), expected)
    assert [record.weight for record in stage.uploads()] == [1.0, 1.0, 1.0]


def test_the_first_step_of_adam_by_hand() -> None:
    """m = (0.5, 1), v = (1, 1.75): W = (0.25, 1 / (sqrt(1.75) + 1))."""
    stage = averaging(0, 0, -1, cloud={"adam": ServerAdam(1.0, 0.5, 0.75, 1.0)})
    for device in ("d0", "d1"):
        stage.returns(device, (1, 2), at=100)
    stage.exchanges("g0", at=100)
    assert_close(stage.cloud.state.weights, (0.25, 0.430501))


def test_a_step_of_adam_after_a_restart_is_the_same_to_the_bit() -> None:
    np.testing.assert_array_equal(with_adam(restarts=True).cloud.state.weights, with_adam().cloud.state.weights)
