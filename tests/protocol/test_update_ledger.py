"""The update ledger: which acknowledged updates are in the global model, and which are lost, is known by name."""

from __future__ import annotations

from protocol_stage import Stage, address

from async_hfl.core.identifiers import CLOUD, JobId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Acknowledged, Received, Started
from async_hfl.core.protocol.records import LateRecord, LostRecord
from async_hfl.nodes.config import GatewayDeployment
from async_hfl.nodes.reliability.number_set import NumberSet


def acknowledged(stage: Stage, device: str, gateway: str, at: float) -> None:
    """Tell the device that its last update was acknowledged."""
    update = next(message for message in reversed(stage.sent) if type(message) is m.Update)
    stage.happens(device, Acknowledged(at, address(gateway), update))


def returns(stage: Stage, device: str, gateway: str, at: float) -> None:
    stage.returns(device, (1, 2), at=at)
    acknowledged(stage, device, gateway, at)


def unsettled(stage: Stage, device: str) -> list[str]:
    return [str(job) for job in stage.nodes[device].state.unsettled]


def begun() -> Stage:
    """d0 and d1 work for g0, d2 for g1."""
    stage = Stage(gateway={"deployment": GatewayDeployment(track_losses=True)}, cloud={"association_period": 1})
    stage.begin(0, 0, 1)
    return stage


def test_an_upload_names_its_jobs_and_the_next_job_tells_the_device() -> None:
    stage = begun()
    returns(stage, "d0", "g0", 100)
    returns(stage, "d1", "g0", 110)
    assert (unsettled(stage, "d0"), unsettled(stage, "d1")) == (["g0.1.1"], ["g0.1.2"])
    (upload,) = stage.waiting("cloud", m.Upload)
    assert upload.jobs == (1, 2)
    stage.deliver("d0", m.Train, at=111)  # sent before the upload
    assert unsettled(stage, "d0") == ["g0.1.1"]
    stage.exchanges("g0", at=120)
    assert 1 in stage.cloud.state.ledgers[0, 1].decided
    stage.deliver("d1", m.Train, at=130)
    assert unsettled(stage, "d1") == []


def test_updates_that_a_lost_gateway_had_acknowledged_since_its_last_upload_are_listed_once() -> None:
    stage = begun()
    returns(stage, "d0", "g0", 100)
    returns(stage, "d1", "g0", 110)
    stage.deliver("d0", m.Train, at=112)
    stage.exchanges("g0", at=120)
    returns(stage, "d0", "g0", 130)  # mixed, never uploaded
    stage.peer_lost("cloud", "g0", at=140)
    assert stage.of(LostRecord) == []  # no device has reported an update yet
    while stage.solves:
        stage.solved(1, 1, 1, at=150)
    stage.lose("d0", m.Train)  # the last job of g0
    while stage.waiting("g1", m.Assignment):
        stage.deliver("g1", m.Assignment, at=160)
    stage.deliver("d0", m.Train, at=180)
    reported = stage.deliver("g1", m.Unsettled, at=181)
    assert [str(job) for job in reported.jobs] == ["g0.1.1", "g0.1.3"]
    stage.deliver("cloud", m.Unsettled, at=182, keep=True)
    assert [(str(record.job), record.device) for record in stage.of(LostRecord)] == [("g0.1.3", 0)]
    stage.deliver("cloud", m.Unsettled, at=183)  # reported again: listed once
    assert len(stage.of(LostRecord)) == 1
    assert unsettled(stage, "d0") == ["g0.1.1", "g0.1.3"]
    stage.deliver("g1", m.SettledAck, at=184)
    stage.deliver("d0", m.SettledAck, at=185)
    assert unsettled(stage, "d0") == []


def test_a_reported_update_of_a_live_gateway_is_settled_by_its_upload_or_lost_with_it() -> None:
    for lives in (True, False):
        stage = begun()
        returns(stage, "d0", "g0", 100)
        # The device was moved to g1 and reports there.
        stage.happens("cloud", Received(101, address("g1"), m.Unsettled(0, (JobId(0, 1, 1),))))
        assert stage.of(LostRecord) == []
        if lives:
            returns(stage, "d1", "g0", 110)
            stage.exchanges("g0", at=120)
        stage.peer_lost("cloud", "g0", at=130)
        assert len(stage.of(LostRecord)) == (0 if lives else 1)


def test_a_gateway_lists_updates_that_came_too_late_for_the_end_of_the_run() -> None:
    stage = begun()
    returns(stage, "d0", "g0", 100)
    returns(stage, "d1", "g0", 110)  # uploaded with the first, not answered
    stage.deliver("d0", m.Train, at=112)
    returns(stage, "d0", "g0", 120)  # kept until the answer
    stage.happens("g0", Received(130, CLOUD, m.Finish(7)))
    assert [(str(late.job), late.device) for late in stage.of(LateRecord)] == [
        ("g0.1.1", 0),
        ("g0.1.2", 1),
        ("g0.1.3", 0),
    ]


def test_an_upload_that_was_decided_on_is_not_late_if_its_answer_was_lost() -> None:
    stage = begun()
    returns(stage, "d0", "g0", 100)
    returns(stage, "d1", "g0", 110)
    outcomes = ((1, m.Outcome(True, 1, 0.5)),)
    stage.happens("g0", Received(130, CLOUD, m.Finish(7, outcomes)))
    assert stage.of(LateRecord) == []


def test_an_update_after_the_end_is_listed_once() -> None:
    stage = begun()
    stage.happens("g0", Received(90, CLOUD, m.Finish(7)))
    stage.deliver("d0", m.Train, at=91)
    stage.trains("d0", (1, 2), at=100)
    stage.deliver("g0", m.Update, at=101, keep=True)
    stage.deliver("g0", m.Update, at=102)
    assert [str(late.job) for late in stage.of(LateRecord)] == ["g0.1.1"]


def test_warm_up_updates_are_never_lost() -> None:
    stage = Stage(
        gateway={"deployment": GatewayDeployment(track_losses=True)}, cloud={"warmup": True, "warmup_quorum": 1.0}
    )
    stage.happens("cloud", Started(0.0))
    stage.deliver("g0", m.WarmUp, at=0)
    stage.returns("d0", (1, 2), at=10)
    acknowledged(stage, "d0", "g0", 11)
    assert unsettled(stage, "d0") == []


def test_a_number_set_stores_ranges() -> None:
    numbers = NumberSet()
    assert [numbers.add(n) for n in (5, 3, 4, 4, 9, 1, 2, 5)] == [True, True, True, False, True, True, True, False]
    assert (numbers.firsts, numbers.lasts) == ([1, 9], [5, 9])
    assert list(numbers) == [1, 2, 3, 4, 5, 9]
    assert (len(numbers), 9 in numbers, 6 in numbers, 0 in numbers) == (6, True, False, False)
