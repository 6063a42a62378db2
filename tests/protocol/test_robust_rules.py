"""Robust aggregation at a gateway, computed by hand. Mix: fresh updates weigh 0.4, those overtaken once 4/15."""

from __future__ import annotations

from math import sqrt
from typing import Any

from protocol_stage import Stage, assert_close, vector

from async_hfl.nodes.config import Robust
from async_hfl.nodes.gateway.aggregation.buffer import Buffer
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.rounds import Rounds


def stage_of(robust: Robust, *association: int, **options: Any) -> Stage:
    gateway = {"robust": robust, **options.pop("gateway", {})}
    stage = Stage(gateway=gateway, **options)
    stage.begin(*(association or (0, 0, 1)))
    return stage


def test_mix_moves_by_the_median_of_the_latest_changes() -> None:
    stage = stage_of(Robust(rule="median"))
    stage.returns("d0", (1, 2), at=100)
    assert_close(stage.model("g0"), (0.4, 0.8))  # nothing to compare with
    stage.returns("d1", (3, -2), at=110)
    # The median of (1, 2) and (3, -2) is (2, 0); d1 started from (0, 0):   11/15 (0.4, 0.8) + 4/15 (2, 0).
    assert_close(stage.model("g0"), (12.4 / 15, 8.8 / 15))


def test_a_device_counts_once_with_its_latest_change() -> None:
    stage = stage_of(Robust(rule="median"), gateway={"epochs": 9})
    stage.returns("d1", (3, -2), at=90)
    stage.returns("d0", (1, 2), at=100)
    before = stage.model("g0")
    assert before is not None
    started = stage.gateways[0].state.in_flight_jobs[4].sent  # d0's second job
    stage.returns("d0", (float(started[0]) + 5, float(started[1]) + 4), at=110)
    # (3, -2) of d1 and the new (5, 4) of d0: (4, 1).   w + 0.4 (sent + (4, 1) - w), and w is what was sent.
    assert_close(stage.model("g0"), (float(before[0]) + 1.6, float(before[1]) + 0.4))


def test_the_window_forgets_the_device_that_reported_first() -> None:
    stage = stage_of(Robust(rule="median", window=1), gateway={"epochs": 9})
    stage.returns("d0", (1, 2), at=100)
    stage.returns("d1", (3, -2), at=110)
    # Only d1 is compared:   11/15 (0.4, 0.8) + 4/15 (3, -2).
    assert_close(stage.model("g0"), (16.4 / 15, 0.8 / 15))
    assert len(stage.gateways[0].state.latest) == 1


def test_mix_cuts_a_change_to_the_median_norm() -> None:
    stage = stage_of(Robust(rule="clip"))
    stage.returns("d0", (1, 0), at=100)
    assert_close(stage.model("g0"), (0.4, 0))
    stage.returns("d1", (30, 40), at=110)
    # Norms 1 and 50: the lower one of the two.   11/15 (0.4, 0) + 4/15 (0.6, 0.8).
    assert_close(stage.model("g0"), (6.8 / 15, 3.2 / 15))


def test_drag_pulls_towards_the_model_that_was_sent_as_before() -> None:
    stage = stage_of(Robust(rule="median"), gateway={"drag": 0.0})
    stage.returns("d0", (1, 2), at=100)
    stage.returns("d1", (3, -2), at=110)
    # (0.4, 0.8) + 4/15 (2, 0).
    assert_close(stage.model("g0"), (14 / 15, 0.8))


def test_a_round_moves_by_the_median_whatever_samples_a_device_states() -> None:
    stage = stage_of(Robust(rule="median"), 1, 1, 1, aggregation=Rounds)
    stage.returns("d0", (1, 0), at=100)
    stage.returns("d1", (2, 2), at=110)
    stage.returns("d2", (900, -500), at=120, samples=1_000_000)
    assert_close(stage.model("g1"), (2, 0))


def test_a_buffer_moves_by_the_trimmed_mean() -> None:
    stage = stage_of(Robust(rule="trimmed-mean", trim=0.3), 1, 1, 1, aggregation=Buffer, gateway={"buffer_share": 1.0})
    stage.returns("d0", (1, 0), at=100)
    stage.returns("d1", (2, 2), at=110)
    stage.returns("d2", (-9, 5), at=120)
    # 0.3 of three, rounded up, is one at each end. Three updates of age 0 with the weight 1/3.
    assert_close(stage.model("g1"), (1, 2))


def test_a_period_keeps_the_step_of_its_shares() -> None:
    stage = stage_of(
        Robust(rule="median"),
        1,
        1,
        1,
        aggregation=Periods,
        gateway={"period": 200.0, "weighting": "share", "gain": 1.5},
    )
    stage.returns("d0", (1, 0), at=100)
    stage.returns("d1", (3, 2), at=110)
    stage.fire("g1", "aggregation")
    # The weights are 1.5 x 10/30 each, and the median of both changes is (2, 1).
    assert_close(stage.model("g1"), (2, 1))


def test_running_statistics_are_compared_as_values() -> None:
    stage = Stage(
        gateway={"robust": Robust(rule="median"), "gradient_size": 1}, cloud={"gradient_size": 1}, weights=vector(0, 1)
    )
    stage.begin(0, 0, 1)
    stage.returns("d0", (2, 0.5), at=100)
    assert_close(stage.model("g0"), (0.8, 0.8))
    stage.returns("d1", (4, 0.1), at=110)
    # Changes 2 and 4: 3. Values 0.5 and 0.1: 0.3.   11/15 (0.8, 0.8) + 4/15 (3, 0.3).
    assert_close(stage.model("g0"), (20.8 / 15, 10 / 15))


def test_running_statistics_have_a_bound_of_their_own() -> None:
    stage = Stage(
        gateway={"robust": Robust(rule="clip"), "gradient_size": 1}, cloud={"gradient_size": 1}, weights=vector(0, 1)
    )
    stage.begin(0, 0, 1)
    stage.returns("d0", (2, 0.5), at=100)
    stage.returns("d1", (1, 0), at=110)
    # Changes 2 and 1: 1, so d1's stays. Of the variance 0.5 and 1: d1's is cut to 0.5, its value becomes 0.5.
    assert_close(stage.model("g0"), ((11 * 0.8 + 4) / 15, (11 * 0.8 + 4 * 0.5) / 15))


def test_the_norm_of_a_lone_change_is_its_own_bound() -> None:
    stage = stage_of(Robust(rule="clip"))
    stage.returns("d0", (3, 4), at=100)
    assert_close(stage.model("g0"), (1.2, 1.6))
    (only,) = stage.gateways[0].state.latest_norms.values()
    assert only == (5.0, 0.0)
    assert sqrt(only[0] ** 2) == 5.0
