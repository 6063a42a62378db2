"""Answers, broadcasts, lost gateways that come back, and the end of a run."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from protocol_stage import Stage, assert_close, vector

from async_hfl.core.identifiers import CLOUD, UploadId, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Received
from async_hfl.core.protocol.records import EpochRecord, LifecycleRecord
from async_hfl.nodes.gateway.aggregation.relay import Relay


def life(stage: Stage) -> list[tuple[str, str]]:
    return [(record.what, record.node) for record in stage.of(LifecycleRecord)]


# Answers ---------------------------------------------------------------------------------------------------------


def test_an_answer_to_another_upload_is_ignored() -> None:
    stage = Stage(gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=100)
    for wrong in (UploadId(0, 1, 2), UploadId(0, 2, 1)):
        answer = m.Answer(wrong, 7, vector(9.0, 9.0), m.Outcome(True, 1, 0.3))
        stage.happens("g0", Received(110.0, CLOUD, answer))
    assert_close(stage.model("g0"), (0.4, 0.8))
    assert (stage.gateways[0].state.phase, stage.gateways[0].state.base_epoch) == ("uploading", 0)
    stage.exchanges("g0", at=120)
    assert_close(stage.model("g0"), (0.12, 0.24))
    # ... and one that was answered before.
    stage.happens(
        "g0", Received(130.0, CLOUD, m.Answer(UploadId(0, 1, 1), 8, vector(9.0, 9.0), m.Outcome(True, 1, 0.3)))
    )
    assert_close(stage.model("g0"), (0.12, 0.24))


def test_a_late_copy_of_an_upload_that_was_answered_long_ago_is_ignored() -> None:
    stage = Stage(gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 1), at=100)
    stage.deliver("cloud", m.Upload, at=110, keep=True)
    stage.deliver("g0", m.Answer, at=120)
    stage.returns("d0", (1, 1), at=200)
    stage.deliver("cloud", m.Upload, at=210, newest=True)  # tells that number 1 is answered
    weights, epoch = stage.cloud.state.weights, stage.cloud.state.epoch
    stage.deliver("cloud", m.Upload, at=220)
    assert stage.cloud.state.weights is weights
    assert (stage.cloud.state.epoch, len(stage.waiting("g0", m.Answer))) == (epoch, 1)


def test_an_upload_is_resent_with_back_off_until_answered() -> None:
    stage = Stage(gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 1), at=100)
    times = []
    for _ in range(7):
        times.append(stage.timers["g0", "reply"])
        stage.fire("g0", "reply")
    # 120 s, doubling to an hour.
    assert np.diff([100.0, *times]).tolist() == [120, 240, 480, 960, 1920, 3600, 3600]
    assert {upload.upload for upload in stage.waiting("cloud", m.Upload)} == {UploadId(0, 1, 1)}
    assert len(stage.waiting("cloud", m.Upload)) == 8


# Broadcast -------------------------------------------------------------------------------------------------------


def test_a_broadcast_is_stored_and_adopted_when_the_next_cycle_begins() -> None:
    stage = Stage(cloud={"delivery": "broadcast"})
    stage.begin(0, 0, 1)
    g0 = stage.gateways[0].state
    # g1's two updates (1, 1): 0.4, then 0.64; epoch 1 = 0.3 x 0.64.
    stage.returns("d2", (1, 1), at=100)
    stage.returns("d2", (1, 1), at=200)
    stage.deliver("cloud", m.Upload, at=210)
    assert_close(stage.cloud.state.weights, (0.192, 0.192))
    # During its cycle g0 only stores it.
    stage.deliver("g0", m.GlobalModel, at=220)
    assert_close(stage.model("g0"), (0.0, 0.0))
    assert (g0.base_epoch, g0.phase) == (0, "open")
    stage.returns("d0", (1, 0), at=230)  # (0.4, 0)
    assert_close(stage.model("g0"), (0.4, 0.0))
    assert stage.waiting("d0", m.Train)[0].base_epoch == 0
    stage.returns("d1", (0, 0), at=240)  # staleness 2: 11/15 (0.4, 0)
    assert g0.phase == "uploading"

    # Epoch 2 from base 0: staleness 2, a = 0.2: 0.8 (0.192, 0.192) + 0.2 (4.4/15, 0).
    stage.deliver("cloud", m.Upload, at=250)
    second = (0.1536 + 0.88 / 15, 0.1536)
    assert_close(stage.cloud.state.weights, second)
    # Before g0 receives it, g1 makes epoch 3: it adopted its own answer, epoch 1 (the newest it had).
    stage.deliver("g1", m.Answer, at=255)
    assert stage.gateways[1].state.base_epoch == 1
    # From (0.192, 0.192): 0.6 w + 0.4 (0, 0) twice = 0.36 w; base 1: staleness 2, a = 0.2: 0.8 second + 0.2 x 0.06912.
    stage.returns("d2", (0, 0), at=300)
    stage.returns("d2", (0, 0), at=400)
    stage.deliver("cloud", m.Upload, at=410)
    third = (0.8 * second[0] + 0.013824, 0.8 * second[1] + 0.013824)
    assert_close(stage.cloud.state.weights, third)

    # The broadcast of epoch 3 overtakes g0's own answer: stored, not adopted before the answer is there.
    stage.deliver("g0", m.GlobalModel, at=420, newest=True)
    assert (g0.phase, g0.base_epoch) == ("uploading", 0)
    answer = stage.deliver("g0", m.Answer, at=430)
    assert answer.epoch == 2
    assert (g0.phase, g0.base_epoch) == ("open", 3)
    # No update was kept, so g0 has the global model unchanged.
    assert_close(stage.model("g0"), third)
    assert {train.base_epoch for train in stage.waiting("d1", m.Train)} == {3}


def test_an_older_broadcast_never_replaces_a_newer_model() -> None:
    stage = Stage(cloud={"delivery": "broadcast"}, gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d2", (1, 1), at=100)
    stage.deliver("cloud", m.Upload, at=110)  # epoch 1
    stage.returns("d0", (1, 1), at=120)
    stage.deliver("cloud", m.Upload, at=130)  # epoch 2
    stage.deliver("g0", m.GlobalModel, at=140)  # epoch 1, while it waits for epoch 2
    assert stage.gateways[0].state.base_epoch == 0
    stage.deliver("g0", m.Answer, at=150)
    assert stage.gateways[0].state.base_epoch == 2
    assert_close(stage.model("g0"), stage.cloud.state.weights.tolist())


def test_a_broadcast_costs_each_gateway_one_model_an_epoch() -> None:
    """A model goes to the uploader or to all gateways: the uploader must not be sent the same model twice."""
    stage = Stage(cloud={"delivery": "broadcast"}, gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d2", (1, 1), at=100)
    stage.deliver("cloud", m.Upload, at=110)
    models = [letter.to for letter in stage.post if type(letter.message) in (m.Answer, m.GlobalModel)]
    assert Counter(models) == {gateway_address(0): 1, gateway_address(1): 1}


# Lost gateways -------------------------------------------------------------------------------------------------


def test_a_gateway_declared_lost_is_fenced_and_begins_again() -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 1), at=100)
    stage.returns("d0", (1, 1), at=200)  # uploads; d1 still in flight
    stage.peer_lost("cloud", "g0", at=210)
    assert life(stage) == [("gateway_lost", "g0")]
    # Its devices move to g1, with their leases, which the cloud has revoked.
    stage.solved(1, 1, 1, at=211)
    assignment = stage.deliver("g1", m.Assignment, at=212)
    assert (assignment.devices, [lease.device for lease in assignment.leases]) == ((0, 1, 2), [0, 1])
    assert stage.in_flight("g1") == {1: 2, 2: 0, 3: 1}

    # g0 does not know it: its upload is not mixed, and it is told to begin again.
    weights = stage.cloud.state.weights
    stage.deliver("cloud", m.Upload, at=220)
    assert stage.cloud.state.weights is weights
    assert stage.cloud.state.epoch == 0
    stage.deliver("g0", m.Fenced, at=230)
    assert [(str(j.job), j.reason) for j in stage.jobs()] == [
        ("g0.1.1", "aggregated"),
        ("g0.1.3", "aggregated"),
        ("g0.1.2", "gateway_lost"),
    ]
    assert [(str(u.upload), u.reason, u.updates) for u in stage.uploads()] == [("u0.1.1", "lost", 2)]
    assert (stage.gateways[0].state.incarnation, stage.gateways[0].state.phase) == (2, "waiting")

    # An update of the former incarnation's job is ignored.
    stage.deliver("d1", m.Train, at=231)
    stage.trains("d1", (5, 5), at=232)
    stage.deliver("g0", m.Update, at=233)
    assert len(stage.jobs()) == 3

    # It joins as a new incarnation, without devices, and is part of the next association.
    stage.deliver("cloud", m.Hello, at=240)
    assert life(stage)[-1] == ("gateway_joined", "g0")
    assert stage.deliver("g0", m.Assignment, at=241).devices == ()
    stage.solved(0, 1, 1, at=242)
    assert stage.deliver("g0", m.GlobalModel, at=243).epoch == 0
    stage.deliver("g0", m.Assignment, at=244)
    # d0 trains for g1, which releases it when its update arrives.
    assert stage.in_flight("g0") == {}
    stage.deliver("g1", m.Assignment, at=245)
    stage.deliver("d0", m.Train, at=246)
    stage.returns("d0", (1, 1), at=300)
    stage.deliver("cloud", m.LeaseReleased, at=310)
    stage.deliver("g0", m.LeaseGranted, at=320)
    assert [str(train.job) for train in stage.waiting("d0", m.Train)] == ["g0.2.1"]


def test_a_lease_released_by_a_gateway_declared_lost_is_void() -> None:
    stage = Stage(cloud={"association_period": 1}, gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d2", (1, 1), at=100)
    stage.exchanges("g1", at=110)
    stage.solved(1, 0, 1, at=120)
    stage.deliver("g0", m.Assignment, at=130)
    stage.returns("d0", (1, 1), at=140)  # g0 releases d0, but the message is slow
    stage.peer_lost("cloud", "g0", at=150)
    stage.solved(1, 1, 1, at=160)
    while stage.waiting("g1", m.Assignment):
        stage.deliver("g1", m.Assignment, at=170)
    assert sorted(stage.in_flight("g1").values()) == [0, 1, 2]
    # The cloud has already granted the lease to g1.
    stage.deliver("cloud", m.LeaseReleased, at=180)
    assert stage.waiting("g1", m.LeaseGranted) == []
    assert stage.cloud.state.association.holder.tolist() == [1, 1, 1]


def test_a_gateway_that_is_back_in_time_goes_on_unchanged() -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.returned("g0", at=50)
    stage.deliver("cloud", m.Hello, at=60)
    assert life(stage) == []
    assert stage.waiting("g0", m.Fenced) == []
    assert stage.in_flight("g0") == {1: 0, 2: 1}


def test_a_gateway_without_its_disk_is_a_new_incarnation() -> None:
    """Its leases are void, although it was never declared lost."""
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.happens("cloud", Received(50.0, gateway_address(0), m.Hello(9)))
    assert life(stage) == [("gateway_lost", "g0"), ("gateway_joined", "g0")]
    assert stage.cloud.state.members[0].incarnation == 9
    (assignment,) = stage.waiting("g0", m.Assignment)
    # It keeps its devices, with new leases: the old ones are void.
    assert assignment.devices == (0, 1)
    assert [(lease.device, lease.number) for lease in assignment.leases] == [(0, 3), (1, 3)]


def test_updates_that_were_mixed_and_not_uploaded_are_lost_with_their_gateway() -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 1), at=100)
    stage.peer_lost("cloud", "g0", at=110)
    stage.peer_lost("g0", "cloud", at=111)
    stage.deliver("cloud", m.Hello, at=112)
    stage.deliver("g0", m.Fenced, at=113)
    assert [(str(u.upload), u.reason, u.updates) for u in stage.uploads()] == [("u0.1.1", "lost", 1)]
    assert Counter(j.reason for j in stage.jobs()) == {"aggregated": 1, "gateway_lost": 2}


def test_a_hello_of_an_older_incarnation_does_not_replace_the_live_one() -> None:
    """Messages overtake each other: incarnation 1 was fenced before 2, which was fenced before 3."""
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.peer_lost("g0", "cloud", at=10)  # Hello(1), delayed for a long time
    hello = stage.waiting("cloud", m.Hello)[0]
    stage.lose("cloud", m.Hello)
    for at in (20.0, 120.0):
        stage.peer_lost("cloud", "g0", at=at)
        stage.peer_lost("g0", "cloud", at=at + 1)
        stage.deliver("cloud", m.Hello, at=at + 2)
        stage.deliver("g0", m.Fenced, at=at + 3)
        stage.deliver("cloud", m.Hello, at=at + 4)
    assert stage.cloud.state.members[0].incarnation == stage.gateways[0].state.incarnation == 3
    before = life(stage)
    stage.happens("cloud", Received(300.0, gateway_address(0), hello))
    assert stage.cloud.state.members[0].incarnation == 3
    assert life(stage) == before


def test_a_lease_granted_to_a_former_incarnation_is_void_in_the_next() -> None:
    """One gateway at a time holds the lease of a device, however late a grant arrives."""
    stage = Stage(cloud={"association_period": 1}, gateway={"epochs": 1})
    stage.begin(1, 0, 1)
    stage.returns("d0", (1, 1), at=100)
    stage.exchanges("g1", at=110)
    stage.solved(0, 0, 1, at=120)  # d0 moves to g0
    stage.deliver("g1", m.Assignment, at=130)
    stage.returns("d0", (1, 1), at=200)
    stage.deliver("cloud", m.LeaseReleased, at=210)
    late = stage.waiting("g0", m.LeaseGranted)[0]
    stage.lose("g0", m.LeaseGranted)
    stage.lose("g0", m.Assignment)
    # g0 is declared lost; d0 moves back to g1, which triggers it.
    stage.peer_lost("cloud", "g0", at=220)
    stage.solved(1, 1, 1, at=221)
    stage.deliver("g1", m.Assignment, at=222)
    stage.exchanges("g1", at=223)
    assert 0 in stage.in_flight("g1").values()
    # g0 begins again and is granted d0 as soon as g1 releases it.
    stage.peer_lost("g0", "cloud", at=230)
    stage.deliver("cloud", m.Hello, at=231)
    stage.deliver("g0", m.Fenced, at=232)
    stage.deliver("cloud", m.Hello, at=233)
    while stage.solves:
        stage.solved(0, 1, 1, at=240)
    while stage.waiting("g0", m.Assignment):
        stage.deliver("g0", m.Assignment, at=241)
    stage.deliver("g0", m.GlobalModel, at=242)
    assert stage.in_flight("g0") == {}
    # Now the lease arrives that was granted to the former incarnation.
    stage.happens("g0", Received(250.0, CLOUD, late))
    assert stage.in_flight("g0") == {}


def test_a_cloud_that_lost_its_state_refuses_a_gateway_that_is_ahead_of_it() -> None:
    stage = Stage(gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 1), at=100)
    stage.exchanges("g0", at=110)
    stage.returns("d0", (1, 1), at=200)  # base epoch 1
    beginner = Stage()
    beginner.begin(0, 0, 1)
    stage.nodes["cloud"] = beginner.cloud
    stage.deliver("cloud", m.Upload, at=210)
    assert stage.cloud.state.epoch == 0
    assert life(stage)[-1] == ("refused", "g0")
    refused = stage.deliver("g0", m.Refused, at=220)
    assert "cloud epoch 1" in refused.reason
    assert stage.stopped == {"g0": refused.reason}
    assert stage.gateways[0].state.phase == "over"
    assert stage.gateways[0].state.in_flight_jobs == {}
    assert Counter(j.reason for j in stage.jobs()) == {"aggregated": 2, "run_ended": 1}


# The end ---------------------------------------------------------------------------------------------------------


def test_everything_open_ends_with_the_run() -> None:
    stage = Stage(cloud={"epochs": 1})
    stage.begin(0, 1, 1)
    stage.returns("d0", (1, 1), at=100)  # g0: one mixed, not uploaded; d0 in flight again
    stage.returns("d2", (1, 1), at=110)
    stage.returns("d2", (1, 1), at=120)  # g1 uploads
    stage.exchanges("g1", at=130)
    stage.returns("d2", (1, 1), at=140)
    stage.returns("d2", (1, 1), at=150)  # g1 uploads again: never answered
    stage.returns("d1", (1, 1), at=160)  # held
    stage.evaluated(0.5, at=170)  # H = 1 is reached
    assert life(stage) == [("finished", "cloud")]
    stage.deliver("g0", m.Finish, at=180)
    stage.deliver("g1", m.Finish, at=180)
    assert stage.stopped == {"cloud": "", "g0": "", "g1": ""}
    assert [(str(j.job), j.reason) for j in stage.jobs()[-2:]] == [("g0.1.2", "run_ended"), ("g1.1.1", "run_ended")]
    sent = [message.job for message in stage.sent if type(message) is m.Train]
    assert Counter(j.job for j in stage.jobs()) == Counter(sent)
    assert max(Counter(sent).values()) == 1
    assert [(str(u.upload), u.reason, u.updates) for u in stage.uploads()] == [
        ("u1.1.1", "mixed", 2),
        ("u0.1.1", "run_ended", 1),
        ("u1.1.2", "run_ended", 2),
    ]
    assert all(gateway.state.in_flight_jobs == {} for gateway in stage.gateways)
    # Later messages change nothing; a gateway that missed the end is told again.
    records = len(stage.records)
    stage.trains("d0", (1, 1), at=190)
    stage.deliver("g0", m.Update, at=191)
    stage.deliver("cloud", m.Upload, at=192)
    assert len(stage.records) == records
    assert len(stage.waiting("g1", m.Finish)) == 1


def test_an_upload_that_the_cloud_mixed_has_no_second_end() -> None:
    """In every run the finish overtakes the last answer, which carries a model; nothing may count twice."""
    stage = Stage(cloud={"epochs": 1}, gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d2", (1, 1), at=100)
    stage.deliver("cloud", m.Upload, at=110)
    stage.evaluated(0.5, at=110)
    stage.deliver("g1", m.Finish, at=120)
    stage.deliver("g1", m.Answer, at=130)
    assert [(str(u.upload), u.reason) for u in stage.uploads()] == [("u1.1.1", "mixed")]


def test_the_run_ends_when_the_mean_of_three_evaluations_passes() -> None:
    stage = Stage(gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    for epoch, metric in enumerate((0.95, 0.8, 0.91, 1.0), start=1):
        at = 100.0 * epoch
        stage.returns("d2", (1, 1), at=at)
        stage.exchanges("g1", at=at + 1)
        stage.evaluated(metric, at=at + 2)
    # The first crosses 0.9 alone; the mean of (0.95, 0.8, 0.91) is 0.887, that of (0.8, 0.91, 1) 0.903.
    assert [e.epoch for e in stage.of(EpochRecord)] == [1, 2, 3, 4]
    assert [e.target_reached for e in stage.of(EpochRecord)] == [False, False, False, True]
    assert life(stage) == [("target_reached", "cloud"), ("finished", "cloud")]
    # They count at the time when their model was made, however long the evaluation took.
    assert (stage.cloud.state.progress.first_at, stage.cloud.state.progress.held_at) == (101.0, 401.0)


def test_epochs_after_the_target() -> None:
    stage = Stage(gateway={"epochs": 1}, cloud={"epochs_after_target": 2})
    stage.begin(0, 0, 1)
    for epoch in range(1, 6):
        assert stage.stopped == {}
        stage.returns("d2", (1, 1), at=100.0 * epoch)
        stage.exchanges("g1", at=100.0 * epoch + 1)
        stage.evaluated(0.95, at=100.0 * epoch + 2)
    assert [e.target_reached for e in stage.of(EpochRecord)] == [False, False, True, True, True]
    assert stage.stopped == {"cloud": ""}


def test_an_evaluation_record_counts_the_updates_of_its_model() -> None:
    """An evaluation takes time; another upload may be mixed before its result is known."""
    stage = Stage()
    stage.begin(0, 0, 1)
    for at in (100, 200):
        stage.returns("d2", (1, 1), at=at)
    stage.deliver("cloud", m.Upload, at=210)
    for device in ("d0", "d1"):
        stage.returns(device, (1, 1), at=220)
    stage.deliver("cloud", m.Upload, at=230)
    stage.evaluated(0.1, at=240)
    stage.evaluated(0.2, at=250)
    assert [(e.epoch, e.updates) for e in stage.of(EpochRecord)] == [(1, 2), (2, 4)]


# Relay -----------------------------------------------------------------------------------------------------------


def test_a_relay_passes_each_update_on_and_sends_the_newest_model() -> None:
    stage = Stage(aggregation=Relay, cloud={"evaluate_every": 2, "max_staleness": 2})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 0), at=100)
    stage.returns("d1", (0, 1), at=110)
    # Both uploads are in transfer: the devices are idle, nothing was mixed, no device is triggered yet.
    first, second = stage.waiting("cloud", m.Upload)
    assert (first.upload.number, second.upload.number, second.answered_below) == (1, 2, 1)
    assert (stage.in_flight("g0"), stage.gateways[0].state.load) == ({}, 0.0)
    assert_close(stage.model("g0"), (0.0, 0.0))
    assert stage.jobs() == []
    # Epoch 1: a = 0.3; epoch 2 from epoch 0: staleness 2, a = 0.2: 0.8 (0.3, 0) + 0.2 (0, 1).
    stage.deliver("cloud", m.Upload, at=120)
    assert_close(stage.cloud.state.weights, (0.3, 0.0))
    assert stage.evaluations == []
    stage.deliver("cloud", m.Upload, at=130)
    assert_close(stage.cloud.state.weights, (0.24, 0.2))
    assert [evaluate.epoch for evaluate in stage.evaluations] == [2]
    # The second answer overtakes the first: the older model is not adopted.
    stage.deliver("g0", m.Answer, at=140, newest=True)
    assert_close(stage.model("g0"), (0.24, 0.2))
    assert stage.in_flight("g0") == {3: 0, 4: 1}
    stage.deliver("g0", m.Answer, at=150)
    assert_close(stage.model("g0"), (0.24, 0.2))
    assert [(str(j.job), j.reason, j.staleness, pytest.approx(j.weight)) for j in stage.jobs()] == [
        ("g0.1.2", "aggregated", 2, 0.2),
        ("g0.1.1", "aggregated", 1, 0.3),
    ]
    # g1's device trained from epoch 0; the cloud would make epoch 3: beyond the bound of 2.
    stage.returns("d2", (9, 9), at=160)
    stage.exchanges("g1", at=170)
    assert_close(stage.cloud.state.weights, (0.24, 0.2))
    assert (str(stage.jobs()[-1].job), stage.jobs()[-1].reason, stage.jobs()[-1].staleness) == ("g1.1.1", "stale", 3)
    assert stage.in_flight("g1") == {2: 2}
    assert stage.waiting("d2", m.Train)[0].base_epoch == 2


def test_relayed_updates_without_an_answer_end_with_the_run() -> None:
    stage = Stage(aggregation=Relay)
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 0), at=100)
    stage.happens("g0", Received(110.0, CLOUD, m.Finish(0)))
    assert [(j.device, j.reason) for j in stage.jobs()] == [(0, "run_ended"), (1, "run_ended")]
    assert [(str(u.upload), u.reason) for u in stage.uploads()] == [("u0.1.1", "run_ended")]
