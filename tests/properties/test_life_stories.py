"""One outage at a time, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from living_worlds import MODEL_BYTES, LivingPlan, living_simulator
from run_worlds import Memory, Plan, network_of

from async_hfl.core.errors import UserError
from async_hfl.core.protocol.effects import Evaluate
from async_hfl.core.protocol.records import JobRecord, LifecycleRecord, SentRecord, UploadRecord
from async_hfl.network.outages.plan import Change, OutagePlan
from async_hfl.simulation.simulator import Simulator

RUN = Plan(5, 6, 3, 1.0, 12, 3, False, False, False, "none", False, "reply", 0.5, "carry", False, None)
QUIET = OutagePlan(1)
"""Wrapped for delivery as where things fail, but nothing does."""


def run(*scheduled: Change, plan: Plan = RUN, **more: float) -> tuple[Simulator, Memory]:
    life = replace(QUIET, scheduled=scheduled, **more)  # type: ignore[arg-type]
    simulator, journal = living_simulator(LivingPlan(plan, life, False, False))
    simulator.start()
    simulator.run()
    return simulator, journal


def jobs(journal: Memory, reason: str) -> list[JobRecord]:
    return [job for job in journal.of(JobRecord) if job.reason == reason]


def life(journal: Memory, node: str) -> list[tuple[float, str]]:
    return [(record.at, record.what) for record in journal.of(LifecycleRecord) if record.node == node]


def first_job(journal: Memory, gateway: int = 0) -> JobRecord:
    return next(j for j in journal.of(JobRecord) if j.job.gateway == gateway and j.reason == "aggregated")


def test_where_nothing_fails_delivery_changes_nothing_that_is_learnt() -> None:
    plain, wanted = living_simulator(LivingPlan(RUN, None, False, False))
    plain.start()
    plain.run()
    _, found = run()
    assert [(j.job, j.at, j.staleness) for j in found.of(JobRecord) if j.reason == "aggregated"] == [
        (j.job, j.at, j.staleness) for j in wanted.of(JobRecord) if j.reason == "aggregated"
    ]
    assert [u for u in found.of(UploadRecord) if u.reason == "mixed"] == [
        u for u in wanted.of(UploadRecord) if u.reason == "mixed"
    ]


def test_a_device_outage_kills_its_job_and_the_device_says_so_on_its_return() -> None:
    _, quiet = run()
    job = first_job(quiet)
    training = job.sent_at + job.download_s + 0.5 * job.training_s
    back = training + 20.0
    _, journal = run(Change(training, "device", job.device, "down"), Change(back, "device", job.device, "up"))
    lost = jobs(journal, "device_lost")
    assert [record.job for record in lost] == [job.job]
    assert back < lost[0].at < back + 1.0
    assert life(journal, f"d{job.device}")[:2] == [(training, "went_down"), (back, "came_back")]


def test_a_device_that_goes_during_its_upload_sends_it_again_and_both_count() -> None:
    _, quiet = run()
    job = first_job(quiet)
    half = job.at - 0.5 * (job.at - job.sent_at - job.download_s - job.training_s)
    _, journal = run(Change(half, "device", job.device, "down"), Change(half + 30.0, "device", job.device, "up"))
    assert not jobs(journal, "device_lost")  # it was trained: nothing is lost
    sent = [r for r in journal.of(SentRecord) if r.message == "Update" and r.about == str(job.job)]
    assert [record.model for record in sent] == [pytest.approx(0.5 * MODEL_BYTES, rel=0.05), MODEL_BYTES]
    assert sent[1].at == half + 30.0


def test_a_link_outage_delays_what_is_sent_over_it() -> None:
    _, quiet = run()
    job = first_job(quiet)
    place = network_of(RUN).links.find(job.device, job.job.gateway)
    during = job.sent_at + job.download_s + 0.5 * job.training_s
    _, journal = run(Change(during, "link", place, "down"), Change(job.at + 40.0, "link", place, "up"))
    (record,) = [j for j in journal.of(JobRecord) if j.job == job.job]
    assert record.training_s == job.training_s  # the device did not notice
    assert record.at > job.at + 40.0
    assert life(journal, f"d{job.device}-g{job.job.gateway}") == [
        (during, "went_down"),
        (job.at + 40.0, "came_back"),
    ]


def test_a_gateway_back_before_it_is_missed_goes_on_where_it_was() -> None:
    _, journal = run(Change(60.0, "gateway", 0, "down"), Change(100.0, "gateway", 0, "up"), detection_s=60.0)
    assert life(journal, "g0") == [(60.0, "went_down"), (100.0, "came_back")]
    assert not jobs(journal, "gateway_lost")
    assert {j.job.incarnation for j in journal.of(JobRecord)} == {1}
    assert any(j.at > 100.0 and j.job.gateway == 0 for j in jobs(journal, "aggregated"))


def test_a_gateway_missed_too_long_begins_anew_when_it_is_back() -> None:
    _, journal = run(Change(60.0, "gateway", 0, "down"), Change(150.0, "gateway", 0, "up"), detection_s=30.0)
    told = life(journal, "g0")
    assert told[:3] == [(60.0, "went_down"), (90.0, "gateway_lost"), (150.0, "came_back")]
    assert [what for _, what in told[3:]] == ["gateway_joined"]
    assert jobs(journal, "gateway_lost")
    assert {j.job.incarnation for j in journal.of(JobRecord) if j.job.gateway == 0} == {1, 2}


def test_a_gateway_that_dies_leaves_its_jobs_ended_and_its_devices_to_others() -> None:
    simulator, journal = run(Change(60.0, "gateway", 0, "dies"), detection_s=30.0)
    assert life(journal, "g0") == [(60.0, "died"), (90.0, "gateway_lost")]
    lost = jobs(journal, "gateway_lost")
    assert lost
    assert {(j.at, j.job.gateway) for j in lost} == {(90.0, 0)}
    links, gateway_of = network_of(RUN).links, simulator.world.cloud.state.directory.gateway_of
    reach = {d for d in range(RUN.devices) if set(links.link_gateway[links.of(d)].tolist()) != {0}}
    assert reach
    assert all(gateway_of[device] != 0 for device in reach)
    moved = {j.device for j in lost} & reach
    assert all(any(j.device == d and j.at > 90 for j in jobs(journal, "aggregated")) for d in moved)


def test_one_that_dies_unnoticed_at_the_very_end_has_ends_too() -> None:
    quiet, _ = run()
    assert quiet.finished_at is not None
    _, journal = run(Change(quiet.finished_at - 1.0, "gateway", 0, "dies"), detection_s=1e6)
    sent = {r.about for r in journal.of(SentRecord) if r.message == "Train"}
    assert sent <= {str(j.job) for j in journal.of(JobRecord)}
    assert jobs(journal, "gateway_lost")


def test_stragglers_take_longer_from_that_time_on() -> None:
    slow = [Change(100.0, "device", device, "slow") for device in range(RUN.devices)]
    _, journal = run(*slow, slow_factor=3.0)
    early: dict[int, float] = {}
    late: dict[int, float] = {}
    for job in journal.of(JobRecord):
        if job.training_s:
            (late if job.sent_at + job.download_s >= 100.0 else early)[job.device] = job.training_s
    both = early.keys() & late.keys()
    assert both
    assert all(late[device] == pytest.approx(3.0 * early[device]) for device in both)


def test_an_evaluation_that_ends_where_nobody_is_any_more_is_forgotten() -> None:
    life = replace(QUIET, scheduled=(Change(10.0, "device", 0, "down"),))
    simulator, _ = living_simulator(LivingPlan(RUN, life, False, False))
    simulator.start()
    assert simulator.life is not None
    device, down = simulator._devices_from, simulator.life.down
    simulator.run(stop=lambda: bool(down[device]))
    assert down[device]
    simulator._evaluate(device, Evaluate(1, simulator.world.learner.initial_weights(1)))
    assert len(simulator._evaluations) == 1
    simulator.run(stop=lambda: not any(index == device for _, _, index, _ in simulator.queue.heap))
    assert simulator._evaluations == {}
    simulator.run()


def test_with_every_gateway_dead_the_run_says_so() -> None:
    dead = [Change(50.0, "gateway", gateway, "dies") for gateway in range(RUN.gateways)]
    with pytest.raises(UserError, match=r"the run stalled: no new global model since .* under \[outages\]"):
        run(*dead, Change(10.0, "device", 0, "down"))


def test_a_device_down_for_good_is_done_without() -> None:
    simulator, journal = run(Change(30.0, "device", 0, "dies"))
    assert simulator.finished_at is not None
    assert all(j.device != 0 for j in jobs(journal, "aggregated") if j.at > 60.0)
