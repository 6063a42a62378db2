"""Synchronous rounds at a gateway, computed by hand: d0 and d1 belong to g0, d2 to g1; Z = 2 rounds."""

from __future__ import annotations

from typing import Any

from protocol_stage import Stage, assert_close

from async_hfl.core.protocol import messages as m
from async_hfl.nodes.gateway.aggregation.rounds import Rounds


def rounds(**gateway: Any) -> Stage:
    stage = Stage(aggregation=Rounds, gateway=gateway)
    stage.begin(0, 0, 1)
    return stage


def ends(stage: Stage) -> list[tuple[str, str, float, int, float]]:
    return [(str(j.job), j.reason, j.at, j.staleness, round(j.weight, 6)) for j in stage.jobs()]


def test_a_round_averages_by_samples_when_all_updates_have_arrived() -> None:
    stage = rounds()
    assert stage.in_flight("g0") == {1: 0, 2: 1}
    stage.returns("d0", (1, 2), at=100, samples=30)
    # One update has arrived: nothing is aggregated, and the idle device waits for the next round.
    assert_close(stage.model("g0"), (0, 0))
    assert (stage.in_flight("g0"), stage.jobs()) == ({2: 1}, [])
    stage.returns("d1", (5, -2), at=120, samples=10)
    # (30 (1, 2) + 10 (5, -2)) / 40.
    assert_close(stage.model("g0"), (2, 1))
    assert ends(stage) == [("g0.1.1", "aggregated", 120, 1, 0.75), ("g0.1.2", "aggregated", 120, 1, 0.25)]
    assert stage.gateways[0].state.gateway_epoch == 1
    # The next round begins at once, from that model.
    assert stage.in_flight("g0") == {3: 0, 4: 1}
    assert_close(stage.waiting("d1", m.Train)[-1].weights, (2, 1))
    stage.returns("d1", (0, 5), at=200, samples=10)
    stage.returns("d0", (4, 1), at=220, samples=10)
    assert_close(stage.model("g0"), (2, 3))
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples, upload.base_epoch, upload.early) == (4, 60, 0, False)
    assert (stage.gateways[0].state.phase, stage.in_flight("g0")) == ("uploading", {})


def test_a_late_device_is_dropped_from_its_round_and_takes_bandwidth_until_it_answers() -> None:
    stage = rounds()
    stage.returns("d0", (1, 1), at=100)
    assert stage.timers["g0", "aggregation"] == 300  # three times the expected round latency of 100 s
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (1, 1))
    # d1 is still training; the second round consists of d0 alone.
    assert stage.in_flight("g0") == {2: 1, 3: 0}
    assert stage.gateways[0].state.load == 20
    stage.returns("d1", (9, 9), at=350)
    assert ends(stage)[-1] == ("g0.1.2", "round_closed", 350, 0, 0.0)
    assert_close(stage.model("g0"), (1, 1))
    assert (stage.in_flight("g0"), stage.gateways[0].state.load) == ({3: 0}, 10)
    # Its loss is used all the same.
    device_table = stage.gateways[0].state.device_table
    assert device_table.loss[device_table.slot_of[1]] == 0.5
    stage.returns("d0", (2, 2), at=400)
    assert_close(stage.model("g0"), (2, 2))
    assert stage.gateways[0].state.phase == "uploading"


def test_a_late_update_that_arrives_during_the_upload_does_not_count() -> None:
    stage = rounds(epochs=1)
    stage.returns("d0", (1, 1), at=100)
    stage.fire("g0", "aggregation")
    stage.returns("d1", (9, 9), at=350)
    assert ends(stage)[-1][:2] == ("g0.1.2", "round_closed")
    stage.exchanges("g0", at=360)
    # Epoch 1: 0.3 x (1, 1).
    assert_close(stage.model("g0"), (0.3, 0.3))
    assert stage.in_flight("g0") == {3: 0, 4: 1}


def test_a_round_without_a_timeout_waits_for_every_device() -> None:
    stage = rounds(round_patience=float("inf"))
    stage.returns("d0", (1, 1), at=100)
    assert ("g0", "aggregation") not in stage.timers
    stage.returns("d1", (3, 3), at=490)
    assert_close(stage.model("g0"), (2, 2))


def test_a_round_without_any_update_does_not_count() -> None:
    stage = rounds()
    stage.fire("g0", "aggregation")
    g0 = stage.gateways[0].state
    assert (g0.gateway_epoch, g0.phase, stage.in_flight("g0")) == (0, "open", {1: 0, 2: 1})
    assert stage.jobs() == []
    # No device can be selected before one is idle, which begins the next round. It took 350 s: the timeout is 1050.
    stage.returns("d0", (5, 5), at=350)
    assert ends(stage) == [("g0.1.1", "round_closed", 350, 0, 0.0)]
    assert stage.in_flight("g0") == {2: 1, 3: 0}
    assert stage.timers["g0", "aggregation"] == 1400
    assert_close(stage.model("g0"), (0, 0))


def test_a_round_that_does_not_fit_the_bandwidth_waits_for_the_late_device() -> None:
    stage = rounds(bandwidth=10.0)
    ((number, device),) = stage.in_flight("g0").items()
    other = 1 - device
    stage.fire("g0", "aggregation")
    assert stage.in_flight("g0") == {number: device}
    assert stage.gateways[0].state.device_table.candidate.sum() == 1
    stage.returns(f"d{device}", (1, 1), at=340)
    # 10 bytes/s are free: one of the two begins the round (d0 or d1, as the knapsack chooses), not both.
    assert len(stage.in_flight("g0")) == 1
    assert set(stage.in_flight("g0").values()) <= {device, other}


def test_a_device_that_lost_its_job_closes_the_round() -> None:
    stage = rounds()
    stage.deliver("d1", m.Train, at=10)
    stage.returns("d0", (1, 1), at=100)
    stage.returned("d1", at=150)
    stage.deliver("g0", m.JobDropped, at=160)
    assert ends(stage) == [("g0.1.2", "device_lost", 160, 0, 0.0), ("g0.1.1", "aggregated", 160, 1, 1.0)]
    assert_close(stage.model("g0"), (1, 1))
    assert stage.in_flight("g0") == {3: 0, 4: 1}


def test_a_round_does_not_wait_for_an_update_that_was_refused() -> None:
    stage = rounds()
    stage.returns("d0", (1, 1), at=100)
    stage.returns("d1", (float("nan"), 0), at=110)
    assert_close(stage.model("g0"), (1, 1))
    assert [end[1] for end in ends(stage)] == ["refused", "aggregated"]


def test_a_round_closes_when_its_last_device_times_out_and_its_update_is_too_late() -> None:
    stage = rounds(round_patience=float("inf"))
    stage.returns("d0", (1, 1), at=100)
    stage.fire("g0", "patience")
    assert stage.at == 500
    assert_close(stage.model("g0"), (1, 1))
    assert stage.in_flight("g0") == {2: 1, 3: 0}
    stage.returns("d1", (9, 9), at=600)
    assert ends(stage)[-1] == ("g0.1.2", "round_closed", 600, 0, 0.0)
    # Its link is feasible again, and it takes part in the next round.
    stage.returns("d0", (2, 2), at=610)
    stage.exchanges("g0", at=620)
    assert sorted(stage.in_flight("g0").values()) == [0, 1]


def test_an_update_after_a_device_timeout_counts_while_the_round_is_open() -> None:
    """A fast device may time out long before a round ends that waits for a slow one."""
    stage = Stage(aggregation=Rounds)
    stage.begin(0, 0, 1)
    aggregation = stage.gateways[0].aggregation
    assert isinstance(aggregation, Rounds)
    aggregation.failed(stage.gateways[0].gateway, (1,), 500.0)  # timed out: the round waits for it no longer
    assert aggregation.state.awaited == {2}
    stage.returns("d0", (1, 1), at=600)
    assert stage.jobs() == []
    stage.returns("d1", (3, 3), at=1000)
    assert_close(stage.model("g0"), (2, 2))
    assert [end[1] for end in ends(stage)] == ["aggregated", "aggregated"]


def test_rounds_are_uploaded_early_when_no_device_is_left() -> None:
    stage = rounds()
    stage.returns("d0", (1, 1), at=100)
    stage.returns("d1", (1, 1), at=100)
    stage.fire("g0", "aggregation")  # no update arrived: this round does not count
    stage.fire("g0", "patience")
    stage.fire("g0", "patience")  # both have timed out
    assert stage.at == 600
    assert (stage.gateways[0].state.active, stage.timers["g0", "idle"]) == (0, 1200)
    stage.fire("g0", "idle")
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.early) == (2, True)


def test_discarding_ends_late_jobs_at_the_upload() -> None:
    stage = rounds(epochs=1, in_flight="discard")
    stage.returns("d0", (1, 1), at=100)
    stage.fire("g0", "aggregation")
    assert ends(stage)[-1] == ("g0.1.2", "round_closed", 300, 0, 0.0)
    assert (stage.in_flight("g0"), stage.gateways[0].state.load) == ({}, 0)
