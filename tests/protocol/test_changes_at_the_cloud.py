"""Changes at the cloud: decoded once, held decoded, and counted from models that it keeps as long as needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage, vector

from async_hfl.core.compression.codec import decode_change
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import CLOUD, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import PeerJoined, Received
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.weights import Weights
from async_hfl.nodes.cloud.aggregation.average import AveragingState
from async_hfl.nodes.cloud.membership import ABSENCE_TIMER
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import MembershipRules
from async_hfl.nodes.gateway.aggregation.rounds import Rounds

INT8 = ModelCodec("int8", "int8", size=2, trained=2, seed=3)
START = vector(1.0, 0.3)


def averaging(**options: Any) -> Stage:
    stage = Stage(aggregation=Rounds, averages=True, gateway={"epochs": 1}, weights=START, codec=INT8, **options)
    stage.begin(0, 0, 1)
    return stage


def decoded(stage: Stage, upload: m.Upload) -> Any:
    base = stage.cloud.state.bases[upload.base_epoch]
    return decode_change(upload.weights, np.asarray(base), "int8", 2)  # type: ignore[arg-type]


def held(stage: Stage) -> dict[int, Weights]:
    state = stage.cloud.aggregation.state
    assert isinstance(state, AveragingState)
    return {gateway: np.asarray(upload.weights) for gateway, upload in state.held.items()}


def g0_reports(stage: Stage, at: float) -> Any:
    """Return the model that the cloud should read from g0's upload."""
    stage.returns("d0", (1.4, 0.2), at=at)
    stage.returns("d1", (1.1, 0.7), at=at)
    upload = stage.waiting("cloud", m.Upload)[-1]
    meant = decoded(stage, upload)
    stage.deliver("cloud", m.Upload, at=at, newest=True)
    return meant


def test_the_average_holds_decoded_models() -> None:
    stage = averaging()
    of_g0 = g0_reports(stage, at=100)
    np.testing.assert_array_equal(held(stage)[0], of_g0)
    # A cloud that restarts meanwhile still has it, and the models that changes are counted from.
    restarted = stage.make()["cloud"]
    assert isinstance(restarted, CloudNode)
    restarted.restore(stage.cloud.snapshot())
    stage.nodes["cloud"] = restarted
    stage.returns("d2", (-0.5, 0.9), at=200)
    (upload,) = stage.waiting("cloud", m.Upload)
    of_g1 = decoded(stage, upload)
    stage.deliver("cloud", m.Upload, at=210)
    np.testing.assert_allclose(np.asarray(stage.cloud.state.weights), (2 * of_g0 + of_g1) / 3, rtol=1e-6)
    assert held(stage) == {}


def test_a_gateway_that_is_lost_is_left_out_of_the_average_and_begins_anew() -> None:
    stage = averaging()
    stage.returns("d2", (-0.5, 0.9), at=90)
    stage.deliver("cloud", m.Upload, at=95)
    assert set(held(stage)) == {1}
    stage.peer_lost("cloud", "g1", at=150)
    of_g0 = g0_reports(stage, at=200)
    np.testing.assert_allclose(np.asarray(stage.cloud.state.weights), of_g0, rtol=1e-6)
    # It returns as a new incarnation, which works from what it is sent now.
    stage.peer_lost("g1", "cloud", at=210)
    stage.deliver("cloud", m.Hello, at=220)
    stage.deliver("g1", m.Fenced, at=230)
    assert stage.gateways[1].state.rounding_error is None
    assert stage.gateways[1].state.base is None
    stage.deliver("cloud", m.Hello, at=240)
    stage.deliver("g0", m.Answer, at=250)
    while stage.solves:
        stage.solved(0, 0, 1, at=260)
    model = stage.deliver("g1", m.GlobalModel, at=270)
    assert model.epoch == stage.gateways[1].state.base_epoch == 1
    np.testing.assert_array_equal(np.asarray(stage.model("g1")), np.asarray(stage.cloud.state.bases[1]))


def test_a_new_incarnation_may_begin_with_a_model_that_was_sent_to_the_former_one() -> None:
    stage = Stage(weights=START, codec=INT8, gateway={"epochs": 1}, cloud={"delivery": "broadcast"})
    stage.begin(0, 0, 1)
    for at in (50, 100):
        stage.returns("d0", (1.4, 0.2), at=at)
        stage.exchanges("g0", at=at + 5)
    # Two broadcasts are on their way to g1 when it is declared lost.
    stage.peer_lost("cloud", "g1", at=150)
    stage.peer_lost("g1", "cloud", at=160)
    stage.deliver("cloud", m.Hello, at=170)
    stage.deliver("g1", m.Fenced, at=180)
    stage.deliver("cloud", m.Hello, at=190)
    stage.returns("d0", (1.4, 0.2), at=191)
    stage.exchanges("g0", at=192)  # the cloud forgets what it does not need
    assert stage.deliver("g1", m.GlobalModel, at=200).epoch == 1
    while stage.solves:
        stage.solved(0, 0, 1, at=210)
    while stage.waiting("g1", m.Assignment):
        stage.deliver("g1", m.Assignment, at=220)
    stage.lose("d2", m.Train)
    stage.fire("g1", "patience")
    stage.fire("g1", "probe")
    stage.deliver("d2", m.Probe, at=stage.at)
    stage.deliver("g1", m.Alive, at=stage.at)
    stage.returns("d2", (-0.5, 0.9), at=stage.at)
    upload = stage.waiting("cloud", m.Upload)[-1]
    assert (str(upload.upload), upload.base_epoch) == ("u1.2.1", 1)
    before, meant = np.asarray(stage.cloud.state.weights), decoded(stage, upload)
    stage.deliver("cloud", m.Upload, at=stage.at, newest=True)
    last = stage.uploads()[-1]
    assert (str(last.upload), last.reason) == ("u1.2.1", "mixed")
    expected = (1 - last.weight) * before + last.weight * meant
    np.testing.assert_allclose(np.asarray(stage.cloud.state.weights), expected, rtol=1e-6)


def test_a_suspended_gateway_that_returns_sends_the_same_change_again() -> None:
    """Its base is still known, although the others have made epochs meanwhile."""
    stage = Stage(weights=START, codec=INT8, cloud={"membership": MembershipRules(gateway_patience=10.0)})
    stage.begin(0, 0, 1)
    stage.returns("d2", (-0.5, 0.9), at=100)
    stage.returns("d2", (-0.5, 0.8), at=110)
    (upload,) = stage.waiting("cloud", m.Upload)
    stage.lose("cloud", m.Upload)
    stage.peer_lost("cloud", "g1", at=120)
    stage.fire("cloud", ABSENCE_TIMER)
    assert [(record.what, record.node) for record in stage.of(LifecycleRecord)] == [("gateway_lost", "g1")]
    for cycle in range(4):
        for number in (1, 2):
            stage.returns("d0", (1.4 * cycle, 0.2), at=200 + 100 * cycle + number)
        stage.exchanges("g0", at=250 + 100 * cycle)
    assert stage.cloud.state.epoch == 4
    assert upload.base_epoch == 0
    assert 0 in stage.cloud.state.bases
    stage.happens("g1", PeerJoined(1000, CLOUD))
    stage.deliver("cloud", m.Hello, at=1001)
    stage.deliver("g1", m.LeasesRevoked, at=1002)
    (again,) = stage.waiting("cloud", m.Upload)
    assert again.weights is upload.weights
    before, meant = np.asarray(stage.cloud.state.weights), decoded(stage, upload)
    stage.deliver("cloud", m.Upload, at=stage.at)
    last = stage.uploads()[-1]
    assert (str(last.upload), last.reason, last.staleness) == ("u1.1.1", "mixed", 5)
    expected = (1 - last.weight) * before + last.weight * meant
    np.testing.assert_allclose(np.asarray(stage.cloud.state.weights), expected, rtol=1e-6)


def test_the_models_of_a_gateway_that_never_uploads_are_bounded() -> None:
    """With broadcasts, a gateway may begin its cycle from any model that it was sent. Its upload is dropped for its
    staleness if that model is too old, so older ones are not kept."""
    stage = Stage(
        weights=START, codec=INT8, gateway={"epochs": 1}, cloud={"delivery": "broadcast", "max_staleness": 10}
    )
    stage.begin(0, 0, 1)
    for cycle in range(60):
        stage.returns("d0", (1.4, 0.01 * cycle), at=100 + 10 * cycle)
        stage.exchanges("g0", at=105 + 10 * cycle)
    assert stage.cloud.state.epoch == 60
    assert len(stage.cloud.state.bases) <= 11


@pytest.mark.parametrize("stale", [False, True])
def test_an_upload_that_is_as_old_as_the_limit_is_still_decoded(stale: bool) -> None:
    limit = 10
    stage = Stage(
        weights=START, codec=INT8, gateway={"epochs": 1}, cloud={"delivery": "broadcast", "max_staleness": limit}
    )
    stage.begin(0, 0, 1)
    stage.returns("d2", (-0.5, 0.9), at=50)  # a change of epoch 0
    for cycle in range(limit if stale else limit - 1):
        stage.returns("d0", (1.4, 0.01 * cycle), at=100 + 10 * cycle)
        stage.deliver("cloud", m.Upload, at=105 + 10 * cycle, newest=True)
        stage.deliver("g0", m.Answer, at=106 + 10 * cycle)
    stage.deliver("cloud", m.Upload, at=5000)
    last = stage.uploads()[-1]
    assert (str(last.upload), last.reason) == ("u1.1.1", "dropped" if stale else "mixed")
    assert last.staleness == (limit + 1 if stale else limit)
    assert len(stage.waiting("g1", m.Answer)) == 1


def test_an_upload_that_is_not_finite_is_dropped_on_record() -> None:
    stage = Stage(weights=START, codec=INT8, gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1.4, 0.2), at=50)
    upload = stage.waiting("cloud", m.Upload)[-1]
    marked, _ = INT8.encode_change(vector(float("nan"), 0.0), START, None, 1)
    broken = replace(upload, weights=marked)
    before = np.array(stage.cloud.state.weights)
    stage.happens("cloud", Received(60.0, gateway_address(0), broken))
    np.testing.assert_array_equal(np.asarray(stage.cloud.state.weights), before)
    assert stage.uploads()[-1].reason == "dropped"
    assert [(record.what, record.node) for record in stage.of(LifecycleRecord)] == [("refused", "g0")]
    assert len(stage.waiting("g0", m.Answer)) == 1
