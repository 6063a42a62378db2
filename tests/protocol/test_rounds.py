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


def test_a_round_closes_at_the_deadline_with_those_who_have_answered() -> None:
    stage = rounds(round_deadline=150.0)
    assert (stage.timers["g0", "aggregation"], stage.timers["g1", "aggregation"]) == (150, 150)
    stage.returns("d0", (1, 1), at=100)
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (1, 1))
    assert stage.in_flight("g0") == {2: 1, 3: 0}
    # A time-out of three times the slowest device's 100 s comes later; with a shorter one it is the other way round.
    assert rounds(round_deadline=150.0, round_patience=1.0).timers["g0", "aggregation"] == 100


def test_the_deadline_may_be_the_quantile_of_all_latencies_that_the_cloud_tells() -> None:
    """Links in use: 40, 80 and 400 s. Each gateway's own slowest device would give 240 and 1200 s."""
    latency = (40.0, 1.0, 80.0, 2.0, 400.0)
    for quantile, deadline in ((0.5, 80.0), (0.3, 40.0)):
        stage = Stage(
            aggregation=Rounds,
            gateway={"round_deadline": 0.0},
            cloud={"reference_quantile": quantile},
            latency=latency,
            averages=True,
        )
        stage.begin(0, 0, 1)
        assert (stage.timers["g0", "aggregation"], stage.timers["g1", "aggregation"]) == (deadline, deadline)


def test_devices_that_are_too_slow_for_the_deadline_are_not_selected() -> None:
    stage = Stage(aggregation=Rounds, gateway={"round_deadline": 100.0}, latency=(90.0, 1.0, 101.0, 1.0, 900.0))
    stage.begin(0, 0, 1)
    assert stage.in_flight("g0") == {1: 0}
    # g1 has nobody else. Its device is busy then, and rounds pass without it.
    assert stage.in_flight("g1") == {1: 2}
    stage.fire("g1", "aggregation")
    assert (stage.in_flight("g1"), stage.timers["g1", "aggregation"]) == ({1: 2}, 200)
    # d0 has become slow: now g0 has no quick device either, and nothing in flight. Both may be selected.
    stage.returns("d0", (1, 1), at=150)
    assert stage.in_flight("g0") == {2: 0, 3: 1}


def test_with_a_deadline_empty_rounds_count_and_the_upload_is_not_held_up() -> None:
    """d2, the only device of g1, needs 1000 s; the rounds of g1 pass without it, and it takes part in no model."""
    stage = rounds(round_deadline=150.0)
    stage.fire("g1", "aggregation")
    g1 = stage.gateways[1].state
    assert (g1.phase, g1.gateway_epoch, stage.in_flight("g1")) == ("open", 0, {1: 2})
    assert stage.timers["g1", "aggregation"] == 300, "the second round has no device and ends at its deadline, too"
    stage.fire("g1", "aggregation")
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples, upload.early) == (0, 0, False)
    stage.returns("d2", (9, 9), at=1000)
    assert ends(stage)[-1] == ("g1.1.1", "round_closed", 1000, 0, 0.0)


def test_a_round_without_devices_ends_when_one_is_idle() -> None:
    stage = rounds(round_deadline=150.0, epochs=3)
    stage.fire("g1", "aggregation")
    stage.returns("d2", (9, 9), at=200)
    assert ends(stage)[-1] == ("g1.1.1", "round_closed", 200, 0, 0.0)
    assert (stage.in_flight("g1"), stage.timers["g1", "aggregation"]) == ({2: 2}, 350)
    stage.returns("d2", (2, 2), at=300)
    assert_close(stage.model("g1"), (2, 2))


def test_without_devices_at_all_the_clock_stops() -> None:
    stage = rounds(round_deadline=150.0, patience_floor=10.0, patience_factor=1.2, epochs=5)
    stage.fire("g1", "patience")  # d2 has timed out at 120 s: nothing is in flight
    assert (stage.gateways[1].state.active, stage.gateways[1].aggregation.due) == (0, float("inf"))


def test_over_selection_closes_a_round_with_part_of_the_answers() -> None:
    stage = rounds(over_selection=2.0)
    assert stage.in_flight("g0") == {1: 0, 2: 1}
    stage.returns("d1", (4, 2), at=90)
    # One of two answers is enough.
    assert_close(stage.model("g0"), (4, 2))
    assert ends(stage) == [("g0.1.2", "aggregated", 90, 1, 1.0)]
    assert stage.in_flight("g0") == {1: 0, 3: 1}
    stage.returns("d0", (9, 9), at=100)
    assert ends(stage)[-1] == ("g0.1.1", "round_closed", 100, 0, 0.0)


def test_participants_are_split_by_devices() -> None:
    """A third of the devices: one of the two at g0, and the only one at g1, although all fit the bandwidth."""
    stage = rounds(participation=1 / 3)
    assert [len(stage.in_flight(gateway)) for gateway in ("g0", "g1")] == [1, 1]
    # Twice as many are selected as are waited for.
    stage = rounds(participation=1 / 3, over_selection=2.0)
    assert [len(stage.in_flight(gateway)) for gateway in ("g0", "g1")] == [2, 1]
    stage.returns("d0", (4, 2), at=90)
    assert_close(stage.model("g0"), (4, 2))
