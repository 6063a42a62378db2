"""Semi-asynchronous periods at a gateway, computed by hand: periods of 100 s, Z = 2 periods, s(age) = 1 / (age + 1)."""

from __future__ import annotations

from typing import Any

from protocol_stage import Stage, assert_close

from async_hfl.core.identifiers import CLOUD
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Received
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.state import NEVER


def periods(*association: int, **gateway: Any) -> Stage:
    stage = Stage(aggregation=Periods, gateway={"period": 100.0, **gateway})
    stage.begin(*(association or (0, 0, 1)))
    return stage


def ends(stage: Stage) -> list[tuple[str, str, float, int, float]]:
    return [(str(j.job), j.reason, j.at, j.staleness, round(j.weight, 6)) for j in stage.jobs()]


def test_two_periods_and_an_update_that_arrives_after_the_upload() -> None:
    stage = periods()
    g0 = stage.gateways[0].state
    stage.returns("d0", (1, 2), at=40, samples=30)
    stage.returns("d1", (4, 0), at=60, samples=10)
    # Inside a period nothing is aggregated and no device is triggered.
    assert_close(stage.model("g0"), (0, 0))
    assert (stage.in_flight("g0"), stage.jobs()) == ({}, [])
    stage.fire("g0", "aggregation")
    assert stage.at == 100
    # 0 + (30 (1, 2) + 10 (4, 0)) / 40, age 0.
    assert_close(stage.model("g0"), (1.75, 1.5))
    assert ends(stage) == [("g0.1.1", "aggregated", 100, 0, 0.75), ("g0.1.2", "aggregated", 100, 0, 0.25)]
    assert (g0.gateway_epoch, stage.in_flight("g0")) == (1, {3: 0, 4: 1})
    stage.returns("d0", (2.75, 1.5), at=150)
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (2.75, 1.5))
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples, g0.phase) == (3, 50, "uploading")

    # d1's job was sent in the second period. Its update is kept for the first period of the next cycle: age 1.
    stage.returns("d1", (3.75, 5.5), at=250, samples=20)
    stage.exchanges("g0", at=260)
    # Epoch 1: 0.3 (2.75, 1.5).
    assert_close(stage.model("g0"), (0.825, 0.45))
    assert (g0.gateway_epoch, stage.timers["g0", "aggregation"]) == (2, 360)
    stage.fire("g0", "aggregation")
    # Its change was (2, 4), it is the only update, s = 1/2.
    assert_close(stage.model("g0"), (1.825, 2.45))
    assert ends(stage)[-1] == ("g0.1.4", "aggregated", 360, 1, 0.5)


def test_shares_are_by_samples_and_then_discounted_by_age() -> None:
    stage = periods(epochs=5)
    stage.returns("d0", (3, 0), at=50, samples=10)
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (3, 0))
    stage.returns("d0", (3, 6), at=120, samples=10)  # change (0, 6), age 0
    stage.returns("d1", (8, 8), at=130, samples=30)  # from (0, 0), sent a period ago: change (8, 8), age 1
    stage.fire("g0", "aggregation")
    # (3, 0) + 1/4 (0, 6) + 3/4 x 1/2 (8, 8).
    assert_close(stage.model("g0"), (6, 4.5))
    assert ends(stage)[-2:] == [("g0.1.3", "aggregated", 200, 0, 0.25), ("g0.1.2", "aggregated", 200, 1, 0.375)]


def test_an_empty_period_changes_nothing_and_an_empty_cycle_is_uploaded() -> None:
    stage = periods()
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (0, 0))
    assert (stage.gateways[0].state.gateway_epoch, stage.in_flight("g0")) == (1, {1: 0, 2: 1})
    stage.fire("g0", "aggregation")
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples) == (0, 0)


def test_an_update_beyond_the_staleness_bound_is_dropped() -> None:
    stage = periods(epochs=9, max_staleness=1)
    for _ in range(2):
        stage.fire("g0", "aggregation")
    stage.returns("d0", (1, 1), at=250)
    stage.fire("g0", "aggregation")
    assert ends(stage) == [("g0.1.1", "stale", 300, 2, 0.0)]
    assert_close(stage.model("g0"), (0, 0))


def test_the_clock_is_stopped_while_there_is_nothing_to_wait_for() -> None:
    stage = periods(1, 1, 1)
    g0 = stage.gateways[0]
    assert (g0.aggregation.due, ("g0", "aggregation") in stage.timers) == (NEVER, False)
    # A device is assigned: the first period begins with its first job.
    lease = m.Lease(0, 9, 2)
    known = m.DeviceKnowledge(0, 100.0, False, 10, float("nan"), float("nan"))
    stage.happens("g0", Received(500.0, CLOUD, m.Assignment(1, 2, (0,), (lease,), (known,))))
    assert (stage.in_flight("g0"), g0.aggregation.due) == ({1: 0}, 600)


def test_immediate_refill_triggers_a_device_within_the_period() -> None:
    stage = periods(refill="immediate")
    stage.returns("d0", (3, 3), at=40)
    # The next job starts from the same model, in the same period; the clock goes on.
    assert (stage.in_flight("g0"), stage.timers["g0", "aggregation"]) == ({2: 1, 3: 0}, 100)
    assert_close(stage.waiting("d0", m.Train)[-1].weights, (0, 0))
    stage.returns("d0", (5, 1), at=90)
    stage.fire("g0", "aggregation")
    # Both updates of d0 are 0 periods old: ((3, 3) + (5, 1)) / 2.
    assert_close(stage.model("g0"), (4, 2))
    # d0 is in flight with the model of the first period: its change (6, 0) counts half.
    stage.returns("d0", (6, 0), at=150)
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (7, 2))
    assert ends(stage)[-1] == ("g0.1.4", "aggregated", 200, 1, 0.5)


def test_immediate_refill_waits_for_the_bandwidth() -> None:
    stage = periods(refill="immediate", bandwidth=10.0)  # one device at a time
    assert list(stage.in_flight("g0")) == [1]
    first = stage.in_flight("g0")[1]
    stage.returns(f"d{first}", (1, 1), at=50)
    assert list(stage.in_flight("g0")) == [2]


def test_an_update_has_the_weight_of_its_share_of_the_data_whoever_else_arrives() -> None:
    # Both devices have 10 samples: alone or together, an update has the weight 3 x 10 / 20 x s(age).
    stage = periods(weighting="share", gain=3.0)
    stage.returns("d0", (2, 4), at=50)
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (3, 6))
    stage.returns("d0", (5, 6), at=120)  # change (2, 0), age 0
    stage.returns("d1", (0, 4), at=130)  # from (0, 0), sent a period ago: change (0, 4), age 1
    stage.fire("g0", "aggregation")
    # (3, 6) + 3/2 (2, 0) + 3/4 (0, 4).
    assert_close(stage.model("g0"), (6, 9))
    assert ends(stage)[-2:] == [("g0.1.3", "aggregated", 200, 0, 1.5), ("g0.1.2", "aggregated", 200, 1, 0.75)]
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples) == (3, 20)  # the cloud weighs the gateway by the data of its devices


def test_updates_of_more_samples_than_the_devices_have_weigh_together_as_much_as_all_devices() -> None:
    stage = periods(0, 1, 1, weighting="share", gain=2.0, refill="immediate")  # d0 alone, with 10 samples
    stage.returns("d0", (1, 0), at=30)
    stage.returns("d0", (0, 3), at=60)
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (1, 3))  # 2 x 10 / 20 of each


def test_a_gateway_without_updates_is_weighed_by_its_data_all_the_same() -> None:
    stage = periods(weighting="share", epochs=1)
    stage.fire("g0", "aggregation")
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.samples) == (0, 20)
