"""A gateway that continues during its uploads, computed by hand: w <- G + (w - u) when the answer arrives.

Periods of 100 s, Z = 1, s(age) = 1 / (age + 1). The cloud mixes with weight 0.6 / 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage, assert_close, vector

from async_hfl.core.compression.codec import decode_change
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import CLOUD
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Received
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.aggregation.periods import Periods


def continuing(aggregation: Any = Periods, **options: Any) -> Stage:
    rules = {"period": 100.0, "epochs": 1, "during_upload": "continue", **options.pop("gateway", {})}
    stage = Stage(aggregation=aggregation, gateway=rules, **options)
    stage.begin(0, 0, 1)
    return stage


def gone_on() -> Stage:
    """g0 has uploaded (2, 0) and made (2, 2) of it since; the answer is on its way."""
    stage = continuing()
    stage.returns("d0", (2, 0), at=40)
    stage.fire("g0", "aggregation")
    stage.returns("d1", (0, 4), at=150)  # from (0, 0), sent a period ago: its change counts half
    stage.fire("g0", "aggregation")
    stage.deliver("cloud", m.Upload, at=210)
    return stage


def test_devices_and_clock_go_on_and_the_answer_keeps_the_changes_made_since() -> None:
    stage = continuing()
    g0 = stage.gateways[0].state
    stage.returns("d0", (2, 0), at=40)
    stage.fire("g0", "aggregation")
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples, g0.phase) == (1, 10, "open")
    assert (stage.in_flight("g0"), stage.timers["g0", "aggregation"]) == ({2: 1, 3: 0}, 200)
    stage.returns("d1", (0, 4), at=150)
    stage.fire("g0", "aggregation")
    # The second cycle is complete, but one upload is under way: the next period begins.
    assert_close(stage.model("g0"), (2, 2))
    assert (len(stage.waiting("cloud", m.Upload)), stage.timers["g0", "aggregation"]) == (1, 300)
    stage.exchanges("g0", at=220)
    # G = 0.3 (2, 0), and (2, 2) - (2, 0) since. The upload that was put off follows, as a model of epoch 1.
    assert_close(stage.model("g0"), (0.6, 2))
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples, upload.base_epoch) == (1, 10, 1)
    assert_close(upload.weights, (0.6, 2))
    # The clock begins again with the cycle; jobs in flight were sent models of epoch 0.
    assert stage.timers["g0", "aggregation"] == 320
    assert [job.base_epoch for job in g0.in_flight_jobs.values()] == [0, 0]


def test_a_gateway_that_has_aggregated_nothing_since_has_the_model_that_arrived() -> None:
    codec = ModelCodec("int8", "int8", size=2, trained=2, seed=3)
    stage = continuing(codec=codec)
    stage.returns("d0", (2, 0), at=40)
    stage.fire("g0", "aggregation")
    stage.deliver("cloud", m.Upload, at=120)
    answer = stage.deliver("g0", m.Answer, at=130)
    state = stage.gateways[0].state
    assert state.encoded is answer.weights
    np.testing.assert_array_equal(state.weights, codec.decode_model(answer.weights))
    stage.fire("g0", "aggregation")
    # An empty cycle is reported too, since the cloud may wait for it.
    assert [upload.updates for upload in stage.waiting("cloud", m.Upload)] == [0]


def test_an_encoded_upload_is_a_change_of_the_model_adopted_last() -> None:
    codec = ModelCodec("float16", "float16", size=2, trained=2, seed=3)
    stage = continuing(codec=codec)
    stage.returns("d0", (2, 0), at=40)
    stage.fire("g0", "aggregation")
    stage.returns("d1", (0, 4), at=150)
    stage.fire("g0", "aggregation")
    stage.deliver("cloud", m.Upload, at=210)
    answer = stage.deliver("g0", m.Answer, at=220)
    (upload,) = stage.waiting("cloud", m.Upload)
    adopted = codec.decode_model(answer.weights)
    assert upload.base_epoch == answer.epoch == 1
    found = decode_change(upload.weights, np.asarray(adopted), "float16", 2)
    np.testing.assert_allclose(found, np.asarray(adopted) + vector(0, 2), atol=0.01)
    np.testing.assert_array_equal(stage.cloud.state.bases[1], adopted)


def test_statistics_are_the_mean_of_both_models() -> None:
    stage = continuing(weights=vector(0, 1), gateway={"gradient_size": 1}, cloud={"gradient_size": 1})
    stage.returns("d0", (2, 0.5), at=40)
    stage.fire("g0", "aggregation")
    stage.returns("d0", (4, 0.1), at=150)
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (4, 0.1))
    stage.exchanges("g0", at=220)
    # G = (0.6, 0.85): 0.6 + (4 - 2), and (0.85 + 0.1) / 2.
    assert_close(stage.model("g0"), (2.6, 0.475))


def test_each_update_is_in_one_upload_when_the_run_ends() -> None:
    stage = gone_on()
    stage.happens("g0", Received(230.0, CLOUD, m.Finish(1, ((1, m.Outcome(True, 1, 0.3)),))))
    # The first upload has been decided on; the update after it is in one that was never sent.
    ends = {str(record.upload): (record.reason, record.updates) for record in stage.uploads()}
    assert ends == {"u0.1.1": ("mixed", 1), "u0.1.2": ("run_ended", 1)}
    assert sorted((job.job.number, job.reason) for job in stage.jobs()) == [
        *((1, "aggregated"), (2, "aggregated")),
        *((3, "run_ended"), (4, "run_ended")),
    ]


def test_a_lost_gateway_ends_both_uploads_and_begins_again() -> None:
    stage = continuing()
    stage.returns("d0", (2, 0), at=40)
    stage.fire("g0", "aggregation")
    stage.returns("d1", (0, 4), at=150)
    stage.fire("g0", "aggregation")
    stage.happens("g0", Received(230.0, CLOUD, m.Fenced(1)))
    assert [(str(record.upload), record.reason, record.updates) for record in stage.uploads()] == [
        ("u0.1.2", "lost", 1),
        ("u0.1.1", "lost", 1),
    ]
    state = stage.gateways[0].state
    assert (state.incarnation, state.phase, state.uploaded, state.upload_due) == (2, "waiting", None, False)


def test_a_broadcast_model_waits_for_the_answer() -> None:
    stage = gone_on()
    stage.happens("g0", Received(215.0, CLOUD, m.GlobalModel(7, vector(10, 10))))
    assert_close(stage.model("g0"), (2, 2))
    stage.deliver("g0", m.Answer, at=220)
    # It is newer than the answer's: (10, 10) + (0, 2).
    assert_close(stage.model("g0"), (10, 12))
    assert stage.gateways[0].state.base_epoch == 7


@pytest.mark.parametrize("drag", [0.0, 1.0])
def test_mixing_on_arrival_continues_as_well(drag: float) -> None:
    stage = continuing(MixOnArrival, gateway={"drag": drag})
    stage.returns("d0", (2, 0), at=40)
    assert_close(stage.model("g0"), (0.8, 0))  # weight 0.8 / 2
    stage.returns("d0", (0.8, 3), at=100)
    # Staleness 1 + 1 - 1: weight 0.8 / 2, change (0, 3). The upload is put off.
    assert_close(stage.model("g0"), (0.8, 1.2))
    assert len(stage.waiting("cloud", m.Upload)) == 1
    stage.exchanges("g0", at=120)
    assert_close(stage.model("g0"), (0.24, 1.2))  # 0.3 (0.8, 0) + (0, 1.2)
    assert [upload.updates for upload in stage.waiting("cloud", m.Upload)] == [1]
