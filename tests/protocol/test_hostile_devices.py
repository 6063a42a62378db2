"""Messages of one device that could harm others: each is dropped or refused, put on record, and ends nothing else.

d0, d1 --invented messages--> g0 or g1          what the others do afterwards counts as before
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pytest
from protocol_stage import CLOUD, Stage, address, vector

from async_hfl.core.identifiers import JobId, device_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Received, TimerFired
from async_hfl.core.protocol.records import JobRecord, LifecycleRecord
from async_hfl.nodes.cloud.update_ledger import MOST_CLAIMS
from async_hfl.nodes.config import GatewayDeployment

WATCHFUL = GatewayDeployment(track_losses=True, failures=3, overdue_factor=3.0, overdue_floor=2.0)


def update(job: JobId, *values: float, samples: int = 10, loss: float = 0.5) -> m.Update:
    return m.Update(job, vector(*(values or (9.0, 9.0))), samples, 5, loss, 0.25, None, 0.1, 0.1)


def says(stage: Stage, device: str, message: m.Message, at: float, gateway: str = "g0") -> None:
    """Deliver a message that a device has invented."""
    stage.happens(gateway, Received(at, address(device), message))


def refusals(stage: Stage) -> list[tuple[str, str]]:
    return [(record.node, record.detail) for record in stage.of(LifecycleRecord) if record.what == "refused"]


def job_of(stage: Stage, device: str, gateway: str = "g0") -> JobId:
    number = next(job for job, owner in stage.in_flight(gateway).items() if owner == address(device).number)
    return JobId(address(gateway).number, 1, number)


def given(stage: Stage, device: str) -> JobId:
    """Take the oldest job that was sent to a device out of the post; the test answers for the device."""
    letter = next(x for x in stage.post if x.to == address(device) and isinstance(x.message, m.Train))
    stage.post.remove(letter)
    return letter.message.job


# Jobs of others ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["update", "dropped"])
def test_a_device_cannot_end_the_job_of_another(kind: str) -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    victim, before = job_of(stage, "d1"), stage.model("g0")
    for number in range(1, 20):  # whoever guesses sends many
        guessed = JobId(0, 1, number)
        if guessed != job_of(stage, "d0"):
            says(stage, "d0", update(guessed) if kind == "update" else m.JobDropped(guessed, "device_lost", 0), 10.0)
    assert stage.jobs() == []
    assert stage.model("g0") is before
    assert refusals(stage)[0] == ("d0", f"by g0: a message about {victim}: the job of another device")
    assert {who for who, _ in refusals(stage)} == {"d0"}
    stage.returns("d1", (1.0, 1.0), 20.0)
    assert [(job.job, job.device, job.reason) for job in stage.jobs()] == [(victim, 1, "aggregated")]


def test_jobs_of_other_gateways_and_jobs_never_sent_are_refused() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    says(stage, "d0", update(JobId(1, 1, 1)), 10.0)
    says(stage, "d0", update(JobId(0, 1, 7)), 11.0)
    says(stage, "d0", update(JobId(0, 99, 1)), 12.0)  # of an incarnation before this one, perhaps
    assert [why.partition(": ")[2] for _, why in refusals(stage)] == [
        "a message about g1.1.1: another gateway's job",
        "a message about g0.1.7: a job that was never sent",
    ]
    assert stage.jobs() == []


def test_invented_jobs_are_not_named_in_an_upload() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    for number in range(100, 140):
        says(stage, "d0", update(JobId(0, 1, number)), 10.0)
    stage.returns("d1", (1.0, 1.0), 20.0)
    stage.returns("d1", (1.0, 1.0), 30.0)
    (upload,) = stage.waiting("cloud", m.Upload)
    assert sorted(upload.jobs) == [job.job.number for job in stage.jobs() if job.reason == "aggregated"]


def test_who_guesses_gets_no_job_for_a_while_whatever_it_sends() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    says(stage, "d0", update(job_of(stage, "d1")), 10.0)
    says(stage, "d0", m.JobDropped(job_of(stage, "d0"), "device_lost", 0), 11.0)
    for at in (12.0, 13.0):
        says(stage, "d0", m.Alive(), at)
    assert set(stage.in_flight("g0").values()) == {1}
    stage.fire("g0", "probe")  # it was set aside for the guess, and for longer after the failure
    assert stage.at == pytest.approx(10.0 + 60.0)
    assert not stage.waiting("d0", m.Probe)
    stage.fire("g0", "probe")
    assert stage.at == pytest.approx(11.0 + 120.0)
    stage.deliver("d0", m.Probe, stage.at)
    stage.deliver("g0", m.Alive, stage.at)
    assert set(stage.in_flight("g0").values()) == {0, 1}


# Updates that change too much ----------------------------------------------------------------------------------------


def changes(stage: Stage, device: str, by: float, at: float) -> None:
    """Let a device of g1 return the model that it was sent, changed by this much in each number."""
    job = stage.gateways[1].state.in_flight_jobs[job_of(stage, device, "g1").number]
    stage.returns(device, (np.asarray(job.sent) + by).tolist(), at)


@pytest.mark.parametrize("huge", [1e6, 3.4e38, -1e30])
def test_an_update_far_beyond_the_usual_is_refused(huge: float) -> None:
    stage = Stage(gateway={"max_change": 10.0, "epochs": 100, "deployment": WATCHFUL})
    stage.begin(1, 1, 1)
    for at in (10.0, 20.0):
        for device in ("d1", "d2"):
            changes(stage, device, 0.1, at)
    before = stage.model("g1")
    stage.returns("d0", (huge, 0.0), 30.0)
    assert stage.model("g1") is before
    last = stage.jobs()[-1]
    assert (last.device, last.reason) == (0, "refused")
    ((who, why),) = refusals(stage)
    assert who == "d0"
    assert "more than 10 times what is usual, 0.1" in why
    changes(stage, "d1", 0.2, 40.0)
    assert [job.reason for job in stage.jobs() if job.device != 0] == ["aggregated"] * 5


def test_one_device_cannot_shift_the_bound() -> None:
    stage = Stage(gateway={"max_change": 10.0, "epochs": 100})
    stage.begin(1, 1, 1)
    at, step = 10.0, 0.1
    for _ in range(12):  # each time twice as much as the last time
        for device in ("d1", "d2"):
            changes(stage, device, 0.1, at)
        changes(stage, "d0", step, at)
        at, step = at + 10.0, step * 2.0
    accepted = [job.reason == "aggregated" for job in stage.jobs() if job.device == 0]
    assert accepted == [True] * 4 + [False] * 8


def test_one_device_cannot_shift_the_bound_by_many_updates() -> None:
    stage = Stage(gateway={"max_change": 10.0, "epochs": 1000})
    stage.begin(1, 1, 1)
    for device in ("d1", "d2"):
        changes(stage, device, 0.1, 10.0)
    for number in range(8):
        changes(stage, "d0", 0.9, 20.0 + number)
    changes(stage, "d0", 1.1, 30.0)
    assert [job.reason for job in stage.jobs()] == ["aggregated"] * 10 + ["refused"]


def test_a_rise_that_most_devices_share_is_followed() -> None:
    stage = Stage(gateway={"max_change": 10.0, "epochs": 100})
    stage.begin(1, 1, 1)
    for size, at in ((0.1, 10.0), (500.0, 20.0), (500.0, 30.0)):
        for device in ("d0", "d1", "d2"):
            changes(stage, device, size, at)
    reasons = [job.reason for job in stage.jobs()]
    assert reasons[:4] == ["aggregated"] * 3 + ["refused"]
    assert reasons[-3:] == ["aggregated"] * 3


def test_the_first_updates_have_a_bound_as_well() -> None:
    stage = Stage(gateway={"max_change": 10.0})
    stage.begin(1, 1, 1)
    stage.returns("d0", (1e3, 0.0), 10.0)
    stage.returns("d1", (5.0, 0.0), 10.0)
    assert [job.reason for job in stage.jobs()] == ["refused", "aggregated"]


def test_running_statistics_have_a_bound_of_their_own() -> None:
    stage = Stage(gateway={"max_change": 10.0, "epochs": 100, "gradient_size": 1})
    stage.begin(1, 1, 1)
    for at in (10.0, 20.0):
        for device in ("d1", "d2"):
            stage.returns(device, (1.0, 0.01), at)
    stage.returns("d0", (1.0, 50.0), 30.0)
    assert stage.jobs()[-1].reason == "refused"


@pytest.mark.parametrize("loss", [inf, -1e300, nan])
def test_a_loss_that_is_not_finite_and_bounded_is_refused(loss: float) -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.returns("d0", (1.0, 1.0), 10.0, loss=loss)
    assert [job.reason for job in stage.jobs()] == ["refused"]


@pytest.mark.parametrize("averages", [True, False])
def test_the_cloud_adopts_no_model_that_is_not_finite_and_bounded(averages: bool) -> None:
    stage = Stage(averages=averages)
    stage.begin(0, 0, 1)
    before = stage.cloud.state.weights
    for value in (nan, inf, 3e38):
        for gateway in (0, 1):
            upload = m.Upload(
                stage_upload(stage, gateway), vector(value, 1.0), stage.cloud.state.epoch, 1, 1, False, 1, ()
            )
            stage.happens("cloud", Received(stage.at + 1.0, address(f"g{gateway}"), upload))
    assert stage.cloud.state.weights is before
    assert {record.reason for record in stage.uploads()} == {"dropped"}
    assert {who for who, _ in refusals(stage)} == {"g0", "g1"}
    assert len([answer for answer in stage.sent if isinstance(answer, m.Answer)]) == 6


def test_an_upload_that_is_not_finite_does_not_cost_those_that_it_would_be_averaged_with() -> None:
    stage = Stage(averages=True)
    stage.begin(0, 0, 1)
    for gateway, value in ((0, nan), (1, 2.0), (0, 3.0)):
        upload = m.Upload(stage_upload(stage, gateway), vector(value, 1.0), 0, 1, 1, False, 1, ())
        stage.happens("cloud", Received(stage.at + 1.0, address(f"g{gateway}"), upload))
    assert [(record.upload.gateway, record.reason) for record in stage.uploads()][1:] == [(0, "mixed"), (1, "mixed")]
    assert {who for who, _ in refusals(stage)} == {"g0"}


def stage_upload(stage: Stage, gateway: int) -> m.UploadId:
    number = 1 + max(stage.cloud.state.members[gateway].outcomes, default=0)
    return m.UploadId(gateway, 1, number)


# Silence -------------------------------------------------------------------------------------------------------------


def test_a_silent_device_frees_its_bandwidth_long_before_it_times_out() -> None:
    """Each job takes the whole bandwidth, so that the second device waits for the first."""
    stage = Stage(gateway={"bandwidth": 10.0, "deployment": WATCHFUL}, latency=(100.0,) * 5)
    stage.begin(0, 0, 1)
    (silent,) = stage.in_flight("g0").values()
    stage.fire("g0", "patience")
    assert stage.at == pytest.approx(300.0)  # three round latencies; it would time out after five
    assert sorted(stage.in_flight("g0").values()) == [0, 1]
    assert stage.gateways[0].state.load == pytest.approx(10.0)
    honest = 1 - silent
    stage.returns(f"d{honest}", (1.0, 1.0), 400.0)
    assert honest in stage.in_flight("g0").values()
    # The late update of the silent one still counts, and the load is what the others use.
    stage.returns(f"d{silent}", (1.0, 1.0), 410.0)
    assert [job.reason for job in stage.jobs()] == ["aggregated", "aggregated"]


def test_repeated_timeouts_set_a_device_aside_with_growing_pauses_and_alive_does_not_end_them() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL, "epochs": 10**6})
    stage.begin(0, 0, 1)
    sent: list[float] = []  # times at which the silent device is given a job
    while stage.at < 40_000.0:
        key = min((at, key) for (who, key), at in stage.timers.items() if who == "g0" and key in ("patience", "probe"))
        stage.fire("g0", key[1])
        for letter in [letter for letter in stage.post if letter.to == address("d0")]:
            stage.post.remove(letter)
            if isinstance(letter.message, m.Train):
                sent.append(stage.at)
        says(stage, "d0", m.Alive(), stage.at)  # it claims to be alive all the time
        if "d1" in stage.training or stage.waiting("d1", m.Train):
            stage.returns("d1", (1.0, 1.0), stage.at)
    waits = np.diff(sent)
    assert len(sent) < 20
    assert waits[-1] >= 3600.0
    assert (np.diff(waits[1:6]) > 0.0).all()
    pauses = [
        (record.at, float(record.detail.partition("for ")[2].partition(" s")[0]))
        for record in stage.of(LifecycleRecord)
        if "set aside" in record.detail
    ]
    assert [pause for _, pause in pauses] == [60.0, 120.0, 240.0, 480.0]
    assert not any(at < given_at < at + pause for at, pause in pauses for given_at in sent)


def test_an_update_ends_the_series_of_failures() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL, "epochs": 100})
    stage.begin(0, 0, 1)
    for at in range(10, 100, 10):
        job = given(stage, "d0")
        if at % 30:
            says(stage, "d0", m.JobDropped(job, "device_lost", 0), float(at))
        else:
            says(stage, "d0", update(job, 1.0, 1.0), float(at))
    assert [job.reason for job in stage.jobs()] == ["device_lost", "device_lost", "aggregated"] * 3
    assert not any(record.what == "device_given_up" for record in stage.of(LifecycleRecord))


def test_a_job_that_timed_out_and_is_dropped_afterwards_is_one_failure() -> None:
    """A slow device drops the old job when it is sent a new one."""
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    late = given(stage, "d0")
    while not stage.gateways[0].state.in_flight_jobs[late.number].overdue:
        stage.fire("g0", "patience")
    says(stage, "d0", m.JobDropped(late, "superseded", 0), stage.at + 1.0)
    assert stage.gateways[0].state.device_table.failures[0] == 1


def test_a_device_that_drops_every_job_is_set_aside() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    dropped = 0
    while stage.waiting("d0", m.Train):
        says(stage, "d0", m.JobDropped(given(stage, "d0"), "device_lost", 0), 10.0)
        dropped += 1
        assert dropped < 10
    assert dropped == 3


# Lists ---------------------------------------------------------------------------------------------------------------


def claims(stage: Stage) -> int:
    return sum(len(ledger.claims) for ledger in stage.cloud.state.ledgers.values())


def unsettled(stage: Stage, gateway: int, first: int, incarnation: int = 1, device: int = 0) -> None:
    jobs = tuple(JobId(gateway, incarnation, first + number) for number in range(m.MOST_UNSETTLED))
    stage.happens("cloud", Received(stage.at, address("g1"), m.Unsettled(device, jobs)))


def test_invented_lists_take_little_room_and_leave_others_theirs() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    for turn in range(40):
        unsettled(stage, 0, 1000 + turn * m.MOST_UNSETTLED)
        unsettled(stage, 0, 1, incarnation=1000 + turn)  # incarnations that never were
        unsettled(stage, 5, 1)  # a gateway that does not exist
    assert claims(stage) == MOST_CLAIMS
    assert set(stage.cloud.state.ledgers) == {(0, 1)}
    stage.happens("cloud", Received(stage.at, address("g1"), m.Unsettled(1, (JobId(0, 1, 1000), JobId(0, 1, 5)))))
    ledger = stage.cloud.state.ledgers[0, 1]
    assert ledger.claims[1000] == 0, "the first claim on a job counts"
    assert ledger.claims[5] == 1


def test_a_gateway_does_not_forward_a_list_of_jobs_that_it_never_sent() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    says(stage, "d0", m.Unsettled(None, (JobId(1, 1, 1),)), 1.0)
    says(stage, "d0", m.Unsettled(None, (JobId(1, 1, 1), JobId(0, 1, 50))), 2.0)
    says(stage, "d0", m.Unsettled(None, (job_of(stage, "d1"),)), 3.0)
    assert stage.waiting("cloud", m.Unsettled) == [m.Unsettled(0, (JobId(1, 1, 1),))]
    assert len(refusals(stage)) == 2


def test_a_device_may_send_few_lists_for_each_job() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    for number in range(30):
        says(stage, "d0", m.Unsettled(None, (JobId(1, 1, number + 1),)), 1.0)
    assert len(stage.waiting("cloud", m.Unsettled)) == 12
    assert {who for who, _ in refusals(stage)} == {"d0"}
    for at in (10.0, 20.0, 30.0):  # one that works may send more
        stage.returns("d1", (1.0, 1.0), at)
        for number in range(4):
            says(stage, "d1", m.Unsettled(None, (JobId(1, 1, 100 + number),)), at)
        if stage.waiting("cloud", m.Upload):
            stage.exchanges("g0", at)
    assert len(stage.waiting("cloud", m.Unsettled)) == 24
    assert {who for who, _ in refusals(stage)} == {"d0"}


def test_a_device_with_many_unsettled_updates_sends_several_lists() -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    jobs = tuple(JobId(1, 1, number) for number in range(1, 2501))
    device = stage.nodes["d0"]
    device.state.unsettled = jobs
    stage.deliver("d0", m.Train, 1.0)
    lists = [message.jobs for message in stage.sent if isinstance(message, m.Unsettled)]
    assert [len(part) for part in lists] == [1024, 1024, 452]
    assert tuple(job for part in lists for job in part) == jobs


def test_an_impossible_evaluation_reaches_the_cloud_as_none() -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.nodes["g0"].state.evaluations_asked[0] = [1, 2, 3]
    says(stage, "d0", m.EvaluateResult(1, 1e300, 0.0), 1.0)
    says(stage, "d0", m.EvaluateResult(2, 0.5, nan), 1.0)
    says(stage, "d0", m.EvaluateResult(3, 0.5, 0.7), 1.0)
    broken, undefined, whole = stage.waiting("cloud", m.EvaluateResult)
    assert all(isnan(value) for one in (broken, undefined) for value in (one.metric, one.loss))
    assert (whole.metric, whole.loss, whole.device) == (0.5, 0.7, 0)


def test_an_update_after_the_end_is_late_only_if_its_job_was_sent() -> None:
    stage = Stage(gateway={"deployment": WATCHFUL})
    stage.begin(0, 0, 1)
    own, other = job_of(stage, "d0"), job_of(stage, "d1")
    stage.happens("g0", Received(5.0, CLOUD, m.Finish(1)))
    for job in (other, JobId(0, 1, 77), own, own):
        says(stage, "d0", update(job), 6.0)
    late = [record for record in stage.records if type(record).__name__ == "LateRecord"]
    assert [(record.job, record.device) for record in late] == [(own, 0)]
    assert {job.reason for job in stage.of(JobRecord)} == {"run_ended"}


@pytest.mark.parametrize("size", [1, 3])
def test_a_projected_gradient_of_another_length_is_ignored(size: int) -> None:
    from async_hfl.core.maths.projection import CountSketch

    stage = Stage(gateway={"gradient": "last", "sketch": CountSketch(1, 2), "epochs": 100})
    stage.begin(0, 0, 1)
    wrong = replace(update(job_of(stage, "d0")), gradient=np.ones(size, np.float32), compressed=True)
    says(stage, "d0", wrong, 1.0)
    right = replace(update(job_of(stage, "d1")), gradient=np.ones(2, np.float32), compressed=True)
    says(stage, "d1", right, 2.0)
    table = stage.gateways[0].state.device_table.gradients
    assert table is not None
    assert table.known.tolist() == [False, True]
    assert [job.reason for job in stage.jobs()] == ["aggregated", "aggregated"]


def test_a_simulated_device_is_never_set_aside() -> None:
    """Simulated devices behave well, and failures are part of what is simulated."""
    stage = Stage()
    stage.begin(0, 0, 1)
    for number in range(12):
        says(stage, "d0", m.JobDropped(given(stage, "d0"), "device_lost", 0), float(number))
    assert stage.waiting("d0", m.Train)
    stage.happens("g0", TimerFired(20.0, "patience"))
    assert device_address(1).number in stage.in_flight("g0").values()
