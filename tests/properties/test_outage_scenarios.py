"""Single outages and their consequences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from outage_worlds import MODEL_BYTES, OutageScenario, outage_simulator
from run_worlds import Memory, Plan, network_of

from async_hfl.core.errors import UserError
from async_hfl.core.protocol.effects import Evaluate
from async_hfl.core.protocol.records import JobRecord, LifecycleRecord, SentRecord, UploadRecord
from async_hfl.network.outages.plan import Change, OutagePlan
from async_hfl.simulation.simulator import Simulator

RUN = Plan(5, 6, 3, 1.0, 12, 3, False, False, False, "none", False, "reply", 0.5, "carry", False, None)
QUIET = OutagePlan(1)
"""A plan without outages: nodes are wrapped for delivery, but nothing fails."""


def run(*scheduled: Change, plan: Plan = RUN, **more: float) -> tuple[Simulator, Memory]:
    outages = replace(QUIET, scheduled=scheduled, **more)  # type: ignore[arg-type]
    simulator, journal = outage_simulator(OutageScenario(plan, outages, False, False))
    simulator.start()
    simulator.run()
    return simulator, journal


def jobs(journal: Memory, reason: str) -> list[JobRecord]:
    return [job for job in journal.of(JobRecord) if job.reason == reason]


def lifecycle(journal: Memory, node: str) -> list[tuple[float, str]]:
    return [(record.at, record.what) for record in journal.of(LifecycleRecord) if record.node == node]


def first_job(journal: Memory, gateway: int = 0) -> JobRecord:
    return next(j for j in journal.of(JobRecord) if j.job.gateway == gateway and j.reason == "aggregated")


def test_without_outages_the_delivery_layer_changes_no_result() -> None:
    plain, wanted = outage_simulator(OutageScenario(RUN, None, False, False))
    plain.start()
    plain.run()
    _, found = run()
    assert [(j.job, j.at, j.staleness) for j in found.of(JobRecord) if j.reason == "aggregated"] == [
        (j.job, j.at, j.staleness) for j in wanted.of(JobRecord) if j.reason == "aggregated"
    ]
    assert [u for u in found.of(UploadRecord) if u.reason == "mixed"] == [
        u for u in wanted.of(UploadRecord) if u.reason == "mixed"
    ]


def test_an_outage_of_a_device_ends_its_job_and_the_device_reports_it_when_it_is_back() -> None:
    _, quiet = run()
    job = first_job(quiet)
    training = job.sent_at + job.download_s + 0.5 * job.training_s
    back = training + 20.0
    _, journal = run(Change(training, "device", job.device, "down"), Change(back, "device", job.device, "up"))
    lost = jobs(journal, "device_lost")
    assert [record.job for record in lost] == [job.job]
    assert back < lost[0].at < back + 1.0
    assert lifecycle(journal, f"d{job.device}")[:2] == [(training, "went_down"), (back, "came_back")]


def test_a_device_with_an_outage_during_its_upload_retries_and_both_attempts_count() -> None:
    _, quiet = run()
    job = first_job(quiet)
    half = job.at - 0.5 * (job.at - job.sent_at - job.download_s - job.training_s)
    _, journal = run(Change(half, "device", job.device, "down"), Change(half + 30.0, "device", job.device, "up"))
    assert not jobs(journal, "device_lost")  # its training was complete: nothing is lost
    sent = [r for r in journal.of(SentRecord) if r.message == "Update" and r.about == str(job.job)]
    assert [record.model for record in sent] == [pytest.approx(0.5 * MODEL_BYTES, rel=0.05), MODEL_BYTES]
    assert sent[1].at == half + 30.0


def test_an_outage_of_a_link_delays_its_messages() -> None:
    _, quiet = run()
    job = first_job(quiet)
    place = network_of(RUN).links.find(job.device, job.job.gateway)
    during = job.sent_at + job.download_s + 0.5 * job.training_s
    _, journal = run(Change(during, "link", place, "down"), Change(job.at + 40.0, "link", place, "up"))
    (record,) = [j for j in journal.of(JobRecord) if j.job == job.job]
    assert record.training_s == job.training_s  # the device did not notice
    assert record.at > job.at + 40.0
    assert lifecycle(journal, f"d{job.device}-g{job.job.gateway}") == [
        (during, "went_down"),
        (job.at + 40.0, "came_back"),
    ]


def test_a_gateway_that_is_back_before_detection_continues() -> None:
    _, journal = run(Change(60.0, "gateway", 0, "down"), Change(100.0, "gateway", 0, "up"), detection_s=60.0)
    assert lifecycle(journal, "g0") == [(60.0, "went_down"), (100.0, "came_back")]
    assert not jobs(journal, "gateway_lost")
    assert {j.job.incarnation for j in journal.of(JobRecord)} == {1}
    assert any(j.at > 100.0 and j.job.gateway == 0 for j in jobs(journal, "aggregated"))


def test_a_gateway_that_was_declared_lost_starts_again_when_it_is_back() -> None:
    _, journal = run(Change(60.0, "gateway", 0, "down"), Change(150.0, "gateway", 0, "up"), detection_s=30.0)
    told = lifecycle(journal, "g0")
    assert told[:3] == [(60.0, "went_down"), (90.0, "gateway_lost"), (150.0, "came_back")]
    assert [what for _, what in told[3:]] == ["gateway_joined"]
    assert jobs(journal, "gateway_lost")
    assert {j.job.incarnation for j in journal.of(JobRecord) if j.job.gateway == 0} == {1, 2}


def test_the_jobs_of_a_dead_gateway_end_and_its_devices_move() -> None:
    simulator, journal = run(Change(60.0, "gateway", 0, "dies"), detection_s=30.0)
    assert lifecycle(journal, "g0") == [(60.0, "died"), (90.0, "gateway_lost")]
    lost = jobs(journal, "gateway_lost")
    assert lost
    assert {(j.at, j.job.gateway) for j in lost} == {(90.0, 0)}
    links, gateway_of = network_of(RUN).links, simulator.world.cloud.state.association.gateway_of
    reach = {d for d in range(RUN.devices) if set(links.link_gateway[links.of(d)].tolist()) != {0}}
    assert reach
    assert all(gateway_of[device] != 0 for device in reach)
    moved = {j.device for j in lost} & reach
    assert all(any(j.device == d and j.at > 90 for j in jobs(journal, "aggregated")) for d in moved)


def test_the_jobs_of_a_gateway_that_dies_undetected_end_with_the_run() -> None:
    quiet, _ = run()
    assert quiet.finished_at is not None
    _, journal = run(Change(quiet.finished_at - 1.0, "gateway", 0, "dies"), detection_s=1e6)
    sent = {r.about for r in journal.of(SentRecord) if r.message == "Train"}
    assert sent <= {str(j.job) for j in journal.of(JobRecord)}
    assert jobs(journal, "gateway_lost")


def test_stragglers_are_slower_from_their_time_on() -> None:
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


def test_an_evaluation_that_ends_while_its_node_is_down_is_dropped() -> None:
    outages = replace(QUIET, scheduled=(Change(10.0, "device", 0, "down"),))
    simulator, _ = outage_simulator(OutageScenario(RUN, outages, False, False))
    simulator.start()
    assert simulator.outages is not None
    device, down = simulator._devices_from, simulator.outages.down
    simulator.run(stop=lambda: bool(down[device]))
    assert down[device]
    simulator._evaluate(device, Evaluate(1, simulator.world.learner.initial_weights(1)))
    assert len(simulator._evaluations) == 1
    simulator.run(stop=lambda: not any(index == device for _, _, index, _ in simulator.queue.heap))
    assert simulator._evaluations == {}
    simulator.run()


def test_a_run_whose_gateways_are_all_dead_is_an_error() -> None:
    dead = [Change(50.0, "gateway", gateway, "dies") for gateway in range(RUN.gateways)]
    with pytest.raises(UserError, match=r"the run stalled: no new global model since .* under \[outages\]"):
        run(*dead, Change(10.0, "device", 0, "down"))


def test_a_run_continues_without_a_dead_device() -> None:
    simulator, journal = run(Change(30.0, "device", 0, "dies"))
    assert simulator.finished_at is not None
    assert all(j.device != 0 for j in jobs(journal, "aggregated") if j.at > 60.0)
