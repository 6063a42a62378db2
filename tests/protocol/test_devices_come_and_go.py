"""Devices that time out, are lost or superseded; selection under a tight bandwidth; cycles without devices."""

from __future__ import annotations

from itertools import pairwise

import pytest
from protocol_stage import Stage, assert_close

from async_hfl.core.identifiers import CLOUD, JobId, device_address, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import PeerLost, Received, Started
from async_hfl.core.protocol.records import LifecycleRecord, SelectionRecord

WITH_LATENCIES = (100.0, 100.0, 50.0, 100.0, 100.0)
"""d1 is twice as fast at g0: R = 20 bytes/s, where the others have 10."""


def selections(stage: Stage, gateway: int = 0) -> list[tuple[int, tuple[int, ...], bool, bool]]:
    return [(s.candidates, s.devices, s.bound, s.lone) for s in stage.of(SelectionRecord) if s.gateway == gateway]


def life(stage: Stage) -> list[tuple[str, str]]:
    return [(record.what, record.node) for record in stage.of(LifecycleRecord)]


# Bandwidth -------------------------------------------------------------------------------------------------------


def test_selection_keeps_within_the_bandwidth() -> None:
    stage = Stage(gateway={"bandwidth": 25.0}, latency=WITH_LATENCIES)
    stage.begin(0, 0, 1)
    # 10 and 20 bytes/s do not fit together; both have the same value per byte, so the larger fills more: d1.
    assert selections(stage) == [(2, (1,), True, False)]
    assert stage.gateways[0].state.load == pytest.approx(20.0)
    # It took 100 s, not 50: R = 10 from now on, and both fit.
    stage.returns("d1", (1, 1), at=100)
    assert selections(stage)[1] == (2, (0, 1), False, False)
    assert stage.gateways[0].state.load == pytest.approx(20.0)


def test_a_device_that_exceeds_the_bandwidth_is_triggered_alone() -> None:
    stage = Stage(gateway={"bandwidth": 5.0}, latency=WITH_LATENCIES)
    stage.begin(0, 0, 1)
    # No device fits and nothing is in flight: the best one (1 / 50 > 1 / 100) is triggered, which is recorded.
    assert selections(stage) == [(2, (1,), True, True)]
    assert stage.in_flight("g0") == {1: 1}
    # While it is in flight no other device is triggered.
    stage.happens("g0", Received(10.0, device_address(0), m.Alive()))
    assert selections(stage)[1:] == [(1, (), True, False)]
    stage.returns("d1", (1, 1), at=50)
    assert selections(stage)[2:] == [(2, (1,), True, True)]
    assert stage.in_flight("g0") == {2: 1}


# Timeouts --------------------------------------------------------------------------------------------------------


def silent(**gateway: float) -> Stage:
    """Let d0, which g0 triggered at 0, time out at 500 = 5 x its expected 100 s."""
    stage = Stage(gateway={"epochs": 10, **gateway})
    stage.begin(0, 1, 1)
    stage.deliver("d0", m.Train, at=10)
    assert stage.timers["g0", "patience"] == 500.0
    stage.fire("g0", "patience")
    return stage


def test_a_silent_device_times_out() -> None:
    stage = silent()
    state = stage.gateways[0].state
    assert (state.load, state.active) == (0.0, 0)
    assert stage.in_flight("g0") == {1: 0}  # overdue, not ended
    assert stage.jobs() == []
    assert life(stage) == [("device_given_up", "d0")]
    (report,) = stage.waiting("cloud", m.Report)
    assert (report.lost, report.heard) == ((0,), ())
    # The cloud knows, and d0 has another link: a minute later the cloud solves the association without the lost one.
    stage.deliver("cloud", m.Report, at=510)
    assert stage.solves == []
    assert stage.timers["cloud", "association"] == 570.0
    stage.fire("cloud", "association")
    problem = stage.solves[0].problem
    pairs = list(zip(problem.link_device.tolist(), problem.link_gateway.tolist(), strict=True))
    assert pairs == [(0, 1), (1, 0), (1, 1), (2, 1)]


def test_devices_lost_one_after_another_share_one_solution() -> None:
    stage = silent()
    stage.deliver("cloud", m.Report, at=510)
    for number, device in enumerate((1, 2), 9):
        stage.happens("cloud", Received(520.0 + number, gateway_address(1), m.Report(1, number, lost=(device,))))
    assert stage.timers["cloud", "association"] == 570.0
    stage.fire("cloud", "association")
    (solve,) = stage.solves
    links = zip(solve.problem.link_device.tolist(), solve.problem.link_gateway.tolist(), strict=True)
    assert list(links) == [(0, 1), (1, 0)]
    # A device that is lost during a solution is part of the next one.
    stage.happens("cloud", Received(571.0, gateway_address(0), m.Report(1, 9, lost=(1,))))
    assert len(stage.solves) == 1


def test_a_solution_for_another_reason_includes_waiting_devices() -> None:
    stage = silent()
    stage.deliver("cloud", m.Report, at=510)
    stage.happens("cloud", PeerLost(530.0, gateway_address(1)))
    assert len(stage.solves) == 1
    stage.fire("cloud", "association")
    assert len(stage.solves) == 1


def test_a_silent_device_that_moves_can_be_triggered_by_the_other_gateway() -> None:
    stage = silent()
    stage.deliver("cloud", m.Report, at=510)
    stage.fire("cloud", "association")
    stage.solved(1, 1, 1, at=571)
    stage.deliver("g0", m.Assignment, at=572)
    stage.deliver("g1", m.Assignment, at=572)
    stage.deliver("cloud", m.LeaseReleased, at=573)
    stage.deliver("g1", m.LeaseGranted, at=574)
    assert 0 in stage.in_flight("g1").values()
    # The device was only out of g0's reach: it drops the old job for the new one, and g0 is told.
    stage.deliver("d0", m.Train, at=580)
    assert stage.training["d0"].job == JobId(1, 1, 3)
    stage.deliver("g0", m.JobDropped, at=590)
    assert [(str(j.job), j.reason) for j in stage.jobs()] == [("g0.1.1", "superseded")]
    assert stage.waiting("d0", m.Train) == []  # g0 has no lease of it any more


def test_probes_back_off_from_a_minute_to_an_hour() -> None:
    stage = silent()
    times = [stage.at]
    for _ in range(9):
        stage.fire("g0", "probe")
        times.append(stage.at)
    assert len(stage.waiting("d0", m.Probe)) == 9
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_an_answer_to_a_probe_makes_the_link_feasible() -> None:
    stage = silent()
    stage.fire("g0", "probe")
    stage.deliver("d0", m.Probe, at=570)
    stage.deliver("g0", m.Alive, at=580)
    assert life(stage)[-1] == ("device_heard", "d0")
    reports = stage.waiting("cloud", m.Report)
    assert [(r.number, r.lost, r.heard) for r in reports] == [(1, (0,), ()), (2, (), (0,))]
    # The device is triggered again, and not probed any more.
    assert stage.in_flight("g0") == {1: 0, 2: 0}
    stage.fire("g0", "probe")
    assert stage.waiting("d0", m.Probe) == []
    # Reports may overtake each other: the newer one counts.
    stage.deliver("cloud", m.Report, at=700, newest=True)
    stage.deliver("cloud", m.Report, at=701)
    link = stage.cloud.links.find(0, 0)
    assert stage.cloud.state.association.usable[link]


def test_a_late_update_of_a_device_that_timed_out_is_mixed() -> None:
    stage = silent()
    stage.returns("d0", (1, 2), at=900)
    # z 1, zeta 0: staleness 1, b = 0.4.
    assert_close(stage.model("g0"), (0.4, 0.8))
    (job,) = stage.jobs()
    assert (job.reason, job.staleness, job.sent_at, job.at) == ("aggregated", 1, 0.0, 900.0)
    assert life(stage)[-1] == ("device_heard", "d0")
    assert stage.in_flight("g0") == {2: 0}
    state = stage.gateways[0].state
    # Its latency is 900 s now: the first measurement replaces the prior.
    assert (state.active, state.load) == (1, pytest.approx(1000 / 900))


def test_a_device_that_is_triggered_again_drops_its_overdue_job() -> None:
    stage = silent()
    stage.happens("g0", Received(600.0, device_address(0), m.Alive()))
    assert stage.in_flight("g0") == {1: 0, 2: 0}
    stage.deliver("d0", m.Train, at=610)  # drops job 1 at once
    dropped = stage.deliver("g0", m.JobDropped, at=620)
    assert (dropped.job, dropped.reason) == (JobId(0, 1, 1), "superseded")
    assert [(str(j.job), j.reason) for j in stage.jobs()] == [("g0.1.1", "superseded")]
    assert stage.in_flight("g0") == {2: 0}
    assert stage.gateways[0].state.active == 1
    stage.returns("d0", (1, 1), at=700)
    assert (str(stage.jobs()[-1].job), stage.jobs()[-1].reason) == ("g0.1.2", "aggregated")


# Outages ---------------------------------------------------------------------------------------------------------


def test_a_device_reports_after_an_outage_that_its_job_is_lost() -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.deliver("d0", m.Train, at=10)
    stage.returned("d0", at=60)
    assert "d0" not in stage.training
    stage.deliver("g0", m.JobDropped, at=70)
    assert [(str(j.job), j.device, j.reason, j.loss) for j in stage.jobs()] == [("g0.1.1", 0, "device_lost", None)]
    assert_close(stage.model("g0"), (0.0, 0.0))
    assert stage.in_flight("g0") == {2: 1, 3: 0}


def test_an_idle_device_reports_after_an_outage_that_it_is_alive() -> None:
    stage = silent()
    stage.lose("d0", m.Probe)
    stage.trains("d0", (1, 1), at=600)
    stage.lose("g0", m.Update)  # as if it had died with the machine
    stage.returned("d0", at=700)
    stage.deliver("g0", m.Alive, at=710)
    assert life(stage)[-1] == ("device_heard", "d0")
    assert stage.in_flight("g0") == {1: 0, 2: 0}
    # A device that no gateway has ever triggered sends nothing.
    stage.returned("d2", at=720)
    assert stage.waiting("g1", m.Alive) == []


# Association versions at a device --------------------------------------------------------------------------------


def test_a_device_obeys_the_highest_version_and_its_old_gateway_releases_it() -> None:
    stage = Stage(cloud={"association_period": 1}, gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 1), at=100)  # g0 uploads
    stage.deliver("cloud", m.Upload, at=110)
    stage.solved(1, 0, 1, at=120)
    # g1 has the new association, g0 not yet: g0 adopts its answer and triggers d0 once more, with version 1.
    stage.deliver("g1", m.Assignment, at=130)
    stage.deliver("g0", m.Answer, at=140)
    assert stage.in_flight("g0") == {2: 1, 3: 0}
    # Suppose the device has a job of version 2 (g0 was wrongly declared lost, say).
    train = m.Train(JobId(1, 1, 7), stage.waiting("d0", m.Train)[0].weights, 0, 0, 2)
    stage.happens("d0", Received(150.0, gateway_address(1), train))
    stage.deliver("d0", m.Train, at=160)
    dropped = stage.deliver("g0", m.JobDropped, at=170)
    assert (dropped.reason, dropped.version) == ("superseded", 2)
    assert stage.training["d0"].job == JobId(1, 1, 7)
    # g0 receives a version higher than its own: it releases the device, and does not trigger it again.
    assert [released.lease.device for released in stage.waiting("cloud", m.LeaseReleased)] == [0]
    assert stage.in_flight("g0") == {2: 1}


# Cycles without devices ------------------------------------------------------------------------------------------


def test_early_upload_after_cycle_patience() -> None:
    stage = Stage(gateway={"epochs": 10})
    stage.begin(0, 1, 1)
    stage.returns("d0", (1, 2), at=100)  # (0.4, 0.8); d0 is triggered again and never answers
    assert ("g0", "idle") not in stage.timers
    stage.fire("g0", "patience")
    # The timer looked at the first job's deadline, 500; the second was sent at 100.
    stage.fire("g0", "patience")
    assert stage.at == 600.0
    assert stage.timers["g0", "idle"] == 1200.0
    assert stage.waiting("cloud", m.Upload) == []
    stage.fire("g0", "idle")
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.early, upload.updates, upload.base_epoch) == (True, 1, 0)
    assert_close(upload.weights, (0.4, 0.8))
    stage.deliver("cloud", m.Upload, at=1210)
    assert [(u.early, u.updates, u.reason) for u in stage.uploads()] == [(True, 1, "mixed")]
    # Nothing was mixed since: no second early upload is planned.
    stage.deliver("g0", m.Answer, at=1220)
    assert ("g0", "idle") not in stage.timers


def test_a_cycle_without_updates_is_not_uploaded_early() -> None:
    stage = silent()
    assert ("g0", "idle") not in stage.timers


def test_cycle_patience_starts_again_when_a_device_was_triggered() -> None:
    """Nothing may be in flight during the whole of `cycle_patience`, not only at its start and end."""
    stage = Stage(gateway={"epochs": 10})
    stage.begin(0, 1, 1)
    stage.returns("d0", (1, 2), at=100)
    stage.fire("g0", "patience")
    stage.fire("g0", "patience")  # times out at 600; the early upload would be at 1200
    stage.happens("g0", Received(690.0, device_address(0), m.Alive()))
    stage.deliver("d0", m.Train, at=700)
    stage.deliver("d0", m.Train, at=710)
    stage.deliver("g0", m.JobDropped, at=720)
    assert stage.gateways[0].state.active == 1
    # d0 is associated elsewhere, and sends its last update at 1190: nothing is in flight from now on.
    stage.happens("g0", Received(1180.0, CLOUD, m.Assignment(1, 2, (), (), ())))
    stage.returns("d0", (1, 2), at=1190)
    assert stage.gateways[0].state.active == 0
    if stage.timers["g0", "idle"] == 1200.0:
        stage.fire("g0", "idle")
    assert stage.waiting("cloud", m.Upload) == []
    assert stage.timers["g0", "idle"] == 1790.0
    stage.fire("g0", "idle")
    assert [(upload.early, upload.updates) for upload in stage.waiting("cloud", m.Upload)] == [(True, 2)]


# Discard ---------------------------------------------------------------------------------------------------------


def test_discard_ends_jobs_in_flight_at_the_upload() -> None:
    stage = Stage(gateway={"in_flight": "discard", "epochs": 1})
    stage.begin(0, 0, 1)
    stage.deliver("d1", m.Train, at=10)
    stage.returns("d0", (1, 2), at=100)
    assert [(j.device, j.reason) for j in stage.jobs()] == [(0, "aggregated"), (1, "round_closed")]
    assert (stage.in_flight("g0"), stage.gateways[0].state.load) == ({}, 0.0)
    # Its update arrives too late, and is ignored.
    stage.returns("d1", (9, 9), at=110)
    stage.exchanges("g0", at=120)
    assert_close(stage.model("g0"), (0.12, 0.24))  # 0.3 (0.4, 0.8)
    assert len(stage.jobs()) == 2
    assert stage.in_flight("g0") == {3: 0, 4: 1}


def test_a_new_job_supersedes_a_discarded_one_that_still_trains() -> None:
    stage = Stage(gateway={"in_flight": "discard", "epochs": 1})
    stage.begin(0, 0, 1)
    stage.deliver("d1", m.Train, at=10)
    stage.returns("d0", (1, 2), at=100)
    stage.exchanges("g0", at=120)
    stage.deliver("d1", m.Train, at=130)  # supersedes the discarded one
    stage.deliver("g0", m.JobDropped, at=140)
    assert [(j.device, j.reason) for j in stage.jobs()] == [(0, "aggregated"), (1, "round_closed")]
    stage.returns("d1", (1, 1), at=200)
    # z 2, zeta 1, the same base: staleness 1, b = 0.4.                          0.6 (0.12, 0.24) + 0.4 (1, 1)
    assert_close(stage.model("g0"), (0.472, 0.544))


def test_discard_does_not_end_a_late_warm_up_job() -> None:
    stage = Stage(gateway={"in_flight": "discard", "epochs": 1}, cloud={"warmup": True})
    stage.happens("cloud", Started(0.0))
    stage.deliver("g0", m.WarmUp, at=1)
    stage.deliver("g1", m.WarmUp, at=1)
    for device, at in (("d0", 50.0), ("d2", 60.0)):
        stage.returns(device, (1, 1), at=at)
        stage.deliver("cloud", m.LeaseReleased, at=at)
    stage.solved(0, 0, 1, at=61)
    stage.deliver("g0", m.Assignment, at=62)
    stage.deliver("g0", m.GlobalModel, at=62)
    stage.returns("d0", (1, 1), at=100)  # g0 uploads; d1 has not answered its warm-up yet
    assert stage.in_flight("g0") == {2: 1}
    stage.returns("d1", (1, 1), at=110)
    assert [(j.device, j.reason) for j in stage.jobs()][-2:] == [(0, "aggregated"), (1, "warmup")]


# Between upload and adoption -------------------------------------------------------------------------------------


def test_a_gateway_triggers_no_device_until_it_has_adopted_the_answer() -> None:
    stage = Stage(gateway={"epochs": 1}, cloud={"association_period": 1})
    stage.begin(0, 0, 1)
    stage.deliver("d1", m.Train, at=10)
    stage.returns("d0", (1, 1), at=100)  # uploads
    stage.happens("g0", Received(110.0, device_address(0), m.Alive()))
    stage.returned("d1", at=120)
    stage.deliver("g0", m.JobDropped, at=130)
    stage.returns("d2", (1, 1), at=140)
    stage.deliver("cloud", m.Upload, at=150, newest=True)  # g1's, so that the association is solved again
    stage.solved(0, 0, 1, at=160)
    lease, known = m.Lease(2, 9, 2), m.DeviceKnowledge(2, 100.0, False, 10, float("nan"), float("nan"))
    stage.happens("g0", Received(170.0, CLOUD, m.Assignment(1, 2, (0, 1, 2), (lease,), (known,))))
    assert stage.in_flight("g0") == {}
    stage.deliver("cloud", m.Upload, at=180)
    stage.deliver("g0", m.Answer, at=190)
    assert sorted(stage.in_flight("g0").values()) == [0, 1, 2]
